"""Schedules: jobs that the daemons push by themselves, at recurring dates (docs/adr/0044).

Each schedule is two settings: the schedule itself, of the kind `schedule`, and the last date that was fired or skipped,
of the kind `fired`. The revision of `fired` is made from that date, so the setting with the latest date wins, in
whatever order daemons learn of them. If the store's clock was ahead for a while, dates in the future were fired then;
`set_back` makes a `fired` setting whose date is the present, and whose revision is higher all the same.
"""

import hashlib
import heapq
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import trio
from msgspec import Meta, Raw, Struct, structs

from jqd.cron.expression import UTC, Recurrence, expect_cron, zone
from jqd.domain.array_split import Steps, finish
from jqd.domain.clock import Clock
from jqd.domain.dates import instant_ms, iso
from jqd.domain.job import Name
from jqd.domain.job_spec import Date, JobOptions, Tags, Value, nothing
from jqd.domain.log import get_logger
from jqd.domain.settings import FIRED, ORIGINS, SCHEDULE, Setting, SettingTable
from jqd.domain.tenant import bare, of_tenant

FORGOTTEN = 2  # the bit in the revision of a `fired` setting that is deleted together with its schedule
NAME_LENGTH_MAX = 100  # a schedule's name, "@" and a date are the id of a job, which may have 128 characters
OVERDUE_S = 60.0  # health reports a date that passed so long ago and was not fired
OVERDUE_SHOWN_MAX = 10  # so many are reported; the list of schedules has all
AHEAD_MS = 600_000  # if a date so far in the future was fired or skipped, the store's clock was ahead then

CRON_LENGTH_MAX = 200  # characters: a longer expression takes long to check for dates that never come
EVERY_S_MIN, EVERY_S_MAX = 1.0, 366 * 86_400.0  # a worker's own loop is better for shorter times, cron for longer ones
JITTER_S_MAX = 86_400.0  # a day

Missed = Literal["skip", "once", "all"]
Overlap = Literal["skip", "queue", "replace"]
Watched = tuple[tuple[int, int], ...]
"""Spans of time: the first and the last instant of each (Unix ms), in order."""


Cron = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=CRON_LENGTH_MAX,
        description="a cron expression like '30 2 * * *': minute, hour, day of the month, month, day of the week",
        extra={"check": expect_cron},
    ),
]
Every = Annotated[
    float,
    Meta(ge=EVERY_S_MIN, le=EVERY_S_MAX, description=f"a number of seconds, {EVERY_S_MIN:.0f} to {EVERY_S_MAX:.0f}"),
]
Zone = Annotated[
    str, Meta(max_length=64, description="the name of a time zone, like 'Europe/Berlin'", extra={"check": zone})
]
Jitter = Annotated[float, Meta(ge=0, le=JITTER_S_MAX, description=f"a number of seconds, 0 to {JITTER_S_MAX:.0f}")]


class Template(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """The job that a schedule pushes, without an id and a date: these are added for each date."""

    name: Name
    argument: Value = msgspec.field(default_factory=nothing)
    tags: Tags = ()


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule as a client sets it, with either `cron` or `every`."""

    job: Template
    cron: Cron | None = None
    every: Every | None = None
    tz: Zone = UTC
    missed: Missed = "once"
    overlap: Overlap = "queue"
    jitter: Jitter = 0.0
    until: Date | None = None

    def own_fields(self) -> dict[str, Any]:
        """Return the fields that Plan itself has, as a dict, without those that a subclass adds."""
        return {name: getattr(self, name) for name in Plan.__struct_fields__}


class Schedule(Plan, frozen=True, kw_only=True, omit_defaults=True):
    """A stored schedule: the body of the setting `schedule`."""

    anchor_ms: int = 0
    """The date (ms) from which `every` is counted."""
    since_ms: int = 0
    """When the schedule was set or resumed last (Unix ms): only later dates are fired, and earlier ones do not count as
    missed."""
    paused_at_ms: int = 0
    """When the schedule was paused (Unix ms); 0: it is not paused."""

    @property
    def when(self) -> Recurrence:
        """Return the schedule's recurring dates. Raises ValueError if `until` is no date."""
        until_ms = 0 if self.until is None else max(1, instant_ms(self.until))
        if self.every is not None:
            return Recurrence(every_ms=round(self.every * 1000), anchor_ms=self.anchor_ms, until_ms=until_ms)
        return Recurrence(self.cron or "", tz=self.tz, until_ms=until_ms)

    @property
    def packed_job(self) -> bytes:
        """Return the schedule's job, encoded like a job in the body of a push."""
        return _encoder.encode(self.job)


class FiredDate(Struct, frozen=True, omit_defaults=True):
    """The body of the setting `fired`: the last date that was fired or skipped, and the job pushed last."""

    through_ms: int
    """The last date that was fired or skipped (Unix ms)."""
    job_id: str = ""
    """The pusher's own id of the job that was pushed last, made of schedule and date."""
    date_ms: int = 0
    """The date for which that job was pushed."""
    at_ms: int = 0
    """When that job was pushed."""
    fired: int = 0
    skipped: int = 0
    """How many dates were skipped so far; `fired`: how many were fired. Approximate: two daemons that do it at the same
    moment count once."""
    given: str = ""
    """The daemon's id of that job, from the store. If the job is purged, its name may be reserved again with another
    id."""
    watched: Watched = ()
    """When daemons looked at the dates that wait for that job to end (`overlap` `queue`): these dates are not missed.
    Dates of an outage are in none of the spans."""


class ComingSince(NamedTuple):
    """When this daemon first saw that the last job of a schedule is in a journal, but not in the store."""

    since_s: float
    """The time of the boot clock at that moment."""
    end: int
    """The end of this daemon's journal at that moment: if this journal has the job, it is before that position."""


class KnownSchedule(Struct):
    """One schedule, and what this daemon knows of its dates."""

    name: str
    schedule: Schedule
    fired: FiredDate
    setting: Setting | None = None
    """The schedule's setting `fired`; None if there is none."""
    next_ms: int | None = None
    """The first date that was neither fired nor skipped (Unix ms); None if there is none."""
    trouble: str = ""
    """Why this daemon could not fire the schedule; empty if it could."""
    again_at_s: float = 0.0
    """When this daemon tries to fire it again, by the monotonic clock; 0 if it has not failed since the last date."""
    taken_at_s: float = 0.0
    """Since when the id of the next date's job has been reserved by others, by the boot clock; 0 if it is not."""
    coming: ComingSince | None = None
    """Since when the last job has been on its way to the store; None if it is not on its way."""

    @property
    def through_ms(self) -> int:
        """Return the instant after which dates are still to be fired."""
        return max(self.schedule.since_ms, self.fired.through_ms)

    def job_id(self, date_ms: int) -> str:
        """Return the pusher's own id of the job for a date, which is the same at every daemon."""
        return f"{self.name}@{iso(date_ms)}"

    def run_at_ms(self, date_ms: int) -> int:
        """Return when the job for a date may start: the date plus a random delay (jitter), the same at every daemon."""
        jitter_ms = round(self.schedule.jitter * 1000)
        if not jitter_ms:
            return date_ms
        drawn = hashlib.blake2b(self.job_id(date_ms).encode(), digest_size=8).digest()
        return date_ms + int.from_bytes(drawn, "big") % (jitter_ms + 1)


def fired_setting(name: str, fired: FiredDate, *, now_ms: int, after: Setting | None = None) -> Setting:
    """Return the setting `fired` for a date that was fired or skipped. `after`: the setting that it replaces.

    If one daemon fired a date and another skipped it, the setting of the one that fired wins. Of settings that differ
    only in which dates wait, with the same revision, the later one wins.
    """
    is_fired = fired.date_ms == fired.through_ms
    revision = fired.through_ms * ORIGINS + is_fired
    if after is not None and revision < after.revision:
        revision = (after.revision // ORIGINS + 1) * ORIGINS + is_fired
    elif after is not None and revision == after.revision:
        now_ms = max(now_ms, after.at_ms + 1)
    return Setting(FIRED, name, revision, now_ms, Raw(_encoder.encode(fired)))


def set_back(setting: Setting, *, now_ms: int) -> Setting | None:
    """Return a `fired` setting with the present date, to replace `setting`, whose date lies in the future because the
    store's clock was ahead. Return None if the date of `setting` does not lie in the future."""
    seen = _seen_to(setting)
    if seen.through_ms <= now_ms + AHEAD_MS:
        return None
    back = structs.replace(seen, through_ms=now_ms, watched=())
    return fired_setting(setting.name, back, now_ms=now_ms, after=setting)


def forgotten(setting: Setting, *, now_ms: int) -> Setting:
    """Return the setting that deletes this `fired` setting, for a schedule that is deleted.

    If a schedule of that name fires a later date, the setting of that date wins.
    """
    return Setting(FIRED, setting.name, setting.revision | FORGOTTEN, now_ms)


def _seen_to(setting: Setting) -> FiredDate:
    """Return the body of a `fired` setting. A deleted setting has no body: then return one with just the date, which
    the setting's revision tells.

    The date is needed after a deletion, too: a daemon that has not learned of the deletion may change the schedule,
    which restores it. Then dates up to that date must not be fired, since their settings would have lower revisions."""
    return FiredDate(setting.revision // ORIGINS) if setting.is_deleted else _fired_decoder.decode(setting.body)


_encoder = msgspec.msgpack.Encoder()
_schedule_decoder = msgspec.msgpack.Decoder(Schedule)
_fired_decoder = msgspec.msgpack.Decoder(FiredDate)
NEVER = FiredDate(0)


def body_of(schedule: Schedule) -> bytes:
    return _encoder.encode(schedule)


class Schedules:
    """All schedules that this daemon knows, and a heap of their next dates."""

    def __init__(self, settings: SettingTable, clock: Clock) -> None:
        self.changed = trio.Event()
        """Set, and replaced by a new event, when a schedule was changed, or was fired by any daemon."""
        self.counts = {"fired": 0, "skipped": 0}
        """How many dates this daemon fired and skipped since it started."""
        self._settings = settings
        self._clock = clock
        self._known: dict[str, KnownSchedule] = {}
        self._new: set[str] = set()  # names whose next date is not computed yet; a start reads many `fired` settings
        self._heap: list[tuple[int, str]] = []
        self._log = get_logger("schedules")
        settings.read(SCHEDULE, lambda setting: _schedule_decoder.decode(setting.body))
        settings.read(FIRED, _seen_to)
        for kind in (SCHEDULE, FIRED):
            settings.watch(kind, self._ruled)

    @property
    def known(self) -> dict[str, KnownSchedule]:
        finish(self.looks())
        return self._known

    def looks(self) -> Steps[None]:
        """Compute the next dates of schedules that changed since the last call, one schedule in each step of some 0.2
        ms."""
        while self._new:
            one = self._known.get(self._new.pop())
            if one is not None:
                self._look(one)
            yield

    def now_ms(self) -> int:
        """Return the time (Unix ms) by the clock of the store, which also decides when jobs start."""
        return self._settings.now_ms(self._clock)

    def due(self) -> list[KnownSchedule]:
        """Return the schedules whose next date has come, the longest overdue first."""
        finish(self.looks())
        found, now_ms = dict[str, KnownSchedule](), self.now_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            one = self._first()
            if one is not None:
                found[one.name] = one  # the heap may have the same date twice
                heapq.heappop(self._heap)
        for one in found.values():
            self._note(one)
        return [*found.values()]

    def next_ms(self) -> int | None:
        finish(self.looks())
        while self._heap:
            if self._first() is not None:
                return self._heap[0][0]
        return None

    def overdue(self) -> Iterator[tuple[KnownSchedule, int]]:
        """Yield (schedule, date) for each schedule whose next date passed OVERDUE_S ago and was not fired.

        A schedule whose next date cannot be computed here is yielded, too, with the instant after which dates are to be
        fired."""
        now_ms = self.now_ms()
        for one in self.known.values():
            if one.next_ms is not None and now_ms - one.next_ms > OVERDUE_S * 1000:
                yield one, one.next_ms
            elif one.next_ms is None and one.trouble:
                yield one, one.through_ms

    def stats(self) -> dict[str, int]:
        paused = sum(1 for one in self.known.values() if one.schedule.paused_at_ms)
        late = sum(1 for _ in self.overdue())
        return {"count": len(self.known), "paused": paused, "late": late, **self.counts}

    def complaints(self) -> list[str]:
        """Return sentences about the overdue schedules, for `/readyz`."""
        late = [*self.overdue()]
        rows = [
            f"schedule {bare(one.name)!r}{of_tenant(one.name)} was to be fired at {iso(since_ms)}, and was not: "
            f"{one.trouble or 'no daemon came to it, for no reason that is known here'}"
            for one, since_ms in late[:OVERDUE_SHOWN_MAX]
        ]
        ahead_ms = self.now_ms() + AHEAD_MS
        ahead = [one for one in self.known.values() if one.through_ms > ahead_ms and not one.schedule.paused_at_ms]
        rows += [
            f"schedule {bare(one.name)!r}{of_tenant(one.name)} fires nothing until {iso(one.through_ms)}: dates were "
            "passed while the store's clock was ahead; when it is right, `jqd schedules resume` lets them come again"
            for one in ahead[:OVERDUE_SHOWN_MAX]
        ]
        more = len(late) + len(ahead) - len(rows)
        return [*rows, *([f"and {more} more schedules; `jqd schedules` shows them"] if more else [])]

    def _first(self) -> KnownSchedule | None:
        """Return the schedule at the head of the heap. If the head is outdated, as the schedule's date has changed,
        drop it and return None."""
        next_ms, name = self._heap[0]
        one = self._known.get(name)
        if one is not None and one.next_ms == next_ms:
            return one
        heapq.heappop(self._heap)
        return None

    def _ruled(self, setting: Setting) -> None:
        saved, fired = self._settings.get(SCHEDULE, setting.name), self._settings.get(FIRED, setting.name)
        before = self._known.pop(setting.name, None)
        if saved is not None and not saved.is_deleted:
            schedule = before.schedule if before and setting.kind == FIRED else _schedule_decoder.decode(saved.body)
            done = NEVER if fired is None else _seen_to(fired)
            one = KnownSchedule(setting.name, schedule, done, fired)
            if before and before.fired.job_id == done.job_id:
                one.coming = before.coming  # kept: this is called for skipped dates, too, which push no job
            if before and setting.kind == FIRED and before.fired.through_ms == done.through_ms:
                one.trouble, one.again_at_s = before.trouble, before.again_at_s  # its dates go on waiting
            self._known[setting.name] = one
            self._new.add(setting.name)
        self.changed.set()
        self.changed = trio.Event()

    def _look(self, one: KnownSchedule) -> None:
        if one.schedule.paused_at_ms:
            return
        try:
            one.next_ms = one.schedule.when.after(one.through_ms)
        except ValueError as error:
            one.trouble = f"{error}: install what this machine lacks, other daemons fire it meanwhile"
            self._log.error("schedules.unknown_zone", name=one.name, error=str(error))
        self._note(one)

    def _note(self, one: KnownSchedule) -> None:
        if one.next_ms is not None:
            heapq.heappush(self._heap, (one.next_ms, one.name))
