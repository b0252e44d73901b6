"""Schedules: jobs that the daemons push by themselves, at dates that come again (docs/adr/0044).

Each is two settings: the schedule itself, of the kind `schedule`, and the last date that was fired, of the kind
`fired`. The revision of `fired` is made of that date, so the latest date holds, in whatever order daemons learn of it.
Where the store's clock was ahead, it goes on from the revision that was made then (`set_back`).
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

FORGOTTEN = 2  # flag in the revision of a date
NAME_LENGTH_MAX = 100  # with "@" and a date behind it a name is the id of a job, of 128 characters at most
OVERDUE_S = 60.0  # health reports a date that passed so long ago and was not fired
OVERDUE_SHOWN_MAX = 10  # reported at once: the list of schedules has all
AHEAD_MS = 600_000  # nobody fires a date so long before it comes: the store's clock was ahead when it was passed

CRON_LENGTH_MAX = 200  # characters: a line; what is longer takes long to look through for a date that never comes
EVERY_S_MIN, EVERY_S_MAX = 1.0, 366 * 86_400.0  # more often is work for a worker's own loop; more rarely one takes cron
JITTER_S_MAX = 86_400.0  # a day: whatever comes more often would come in another order

Missed = Literal["skip", "once", "all"]
Overlap = Literal["skip", "queue", "replace"]


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
    """A job as a schedule pushes it; id and date are the schedule's."""

    name: Name
    argument: Value = msgspec.field(default_factory=nothing)
    tags: Tags = ()


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule as a client sets it: `cron` or `every`."""

    job: Template
    cron: Cron | None = None
    every: Every | None = None
    tz: Zone = UTC
    missed: Missed = "once"
    overlap: Overlap = "queue"
    jitter: Jitter = 0.0
    until: Date | None = None

    def given(self) -> dict[str, Any]:
        """Return its fields, without those that a subclass adds."""
        return {name: getattr(self, name) for name in Plan.__struct_fields__}


class Schedule(Plan, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule in force: the body of the setting `schedule`."""

    anchor_ms: int = 0
    """The date (ms) from which `every` counts."""
    since_ms: int = 0
    """Only later dates count: before it was set, or while it was paused, none was missed."""
    paused_at_ms: int = 0
    """0: it is not paused."""

    @property
    def when(self) -> Recurrence:
        """Return its dates. Raises ValueError for an `until` that is no date."""
        until_ms = 0 if self.until is None else max(1, instant_ms(self.until))
        if self.every is not None:
            return Recurrence(every_ms=round(self.every * 1000), anchor_ms=self.anchor_ms, until_ms=until_ms)
        return Recurrence(self.cron or "", tz=self.tz, until_ms=until_ms)

    @property
    def packed_job(self) -> bytes:
        """Return its job, packed as a push is."""
        return _encoder.encode(self.job)


class FiredDate(Struct, frozen=True, omit_defaults=True):
    """The body of the setting `fired`."""

    through_ms: int
    """The last date that was fired or skipped."""
    job_id: str = ""
    """The id of the last job."""
    date_ms: int = 0
    """The date that it was pushed for."""
    at_ms: int = 0
    """When it was pushed."""
    fired: int = 0
    skipped: int = 0
    """Dates so far, about: two daemons that fire at the same moment count once."""
    given: str = ""
    """The id that the store gave the last job. A daemon that learns of it late may ask for another one by its name."""


class ComingSince(NamedTuple):
    since_s: float
    """On the clock since boot."""
    end: int
    """The end of this daemon's journal then: up to there the job may lie in it."""


class KnownSchedule(Struct):
    """One schedule, and what this daemon knows of its dates."""

    name: str
    schedule: Schedule
    fired: FiredDate
    revision: int = 0
    """Of the setting `fired`."""
    next_ms: int | None = None
    """The first date that was neither fired nor skipped."""
    trouble: str = ""
    """Why this daemon does not fire it."""
    again_at_s: float = 0.0
    """When this daemon tries again, on the monotonic clock; 0: it has not failed since the last date."""
    taken_at_s: float = 0.0
    """Since when another job has had the id of that date, on the clock since boot; 0: none has."""
    coming: ComingSince | None = None
    """Since when the store has said that the last job is on its way; None: it does not."""

    @property
    def through_ms(self) -> int:
        """Return the instant after which dates are still to be fired."""
        return max(self.schedule.since_ms, self.fired.through_ms)

    def job_id(self, date_ms: int) -> str:
        """The id of the job of a date: the same at every daemon."""
        return f"{self.name}@{iso(date_ms)}"

    def run_at_ms(self, date_ms: int) -> int:
        """When the job of a date may start: the date and a jitter, the same at every daemon."""
        jitter_ms = round(self.schedule.jitter * 1000)
        if not jitter_ms:
            return date_ms
        drawn = hashlib.blake2b(self.job_id(date_ms).encode(), digest_size=8).digest()
        return date_ms + int.from_bytes(drawn, "big") % (jitter_ms + 1)


def fired_setting(name: str, fired: FiredDate, *, now_ms: int, after: int = 0) -> Setting:
    """Return the setting of a fired or skipped date. `after`: the revision of the one before.

    For one date fired beats skipped: a daemon that skips may have looked a moment too early.
    """
    is_fired = fired.date_ms == fired.through_ms
    revision = fired.through_ms * ORIGINS + is_fired
    if revision < after:
        revision = (after // ORIGINS + 1) * ORIGINS + is_fired
    return Setting(FIRED, name, revision, now_ms, Raw(_encoder.encode(fired)))


def set_back(setting: Setting, *, now_ms: int) -> Setting | None:
    """Return the setting in place of one that was made while the store's clock was ahead; None: it was not."""
    seen = _seen_to(setting)
    if seen.through_ms <= now_ms + AHEAD_MS:
        return None
    return fired_setting(setting.name, structs.replace(seen, through_ms=now_ms), now_ms=now_ms, after=setting.revision)


def forgotten(setting: Setting, *, now_ms: int) -> Setting:
    """Return the setting that deletes this one together with its schedule. A later date under that name beats it."""
    return Setting(FIRED, setting.name, setting.revision | FORGOTTEN, now_ms)


def _seen_to(setting: Setting) -> FiredDate:
    """Note up to which date a name was fired. A deleted schedule counts, too: a daemon that did not learn of the
    deletion may change the schedule afterwards, which
    restores it. No setting of a date up to that one would hold then."""
    return FiredDate(setting.revision // ORIGINS) if setting.is_deleted else _fired_decoder.decode(setting.body)


_encoder = msgspec.msgpack.Encoder()
_schedule_decoder = msgspec.msgpack.Decoder(Schedule)
_fired_decoder = msgspec.msgpack.Decoder(FiredDate)
NEVER = FiredDate(0)


def body_of(schedule: Schedule) -> bytes:
    return _encoder.encode(schedule)


class Schedules:
    """All schedules that this daemon knows, and which is due next. Costs nothing while there is none."""

    def __init__(self, settings: SettingTable, clock: Clock) -> None:
        self.changed = trio.Event()
        """Set and replaced when a schedule is set, or fired by any daemon."""
        self.counts = {"fired": 0, "skipped": 0}
        """How many dates this daemon fired and skipped since it started."""
        self._settings = settings
        self._clock = clock
        self._known: dict[str, KnownSchedule] = {}
        self._new: set[str] = set()  # whose next date is not computed yet: a start reads a day of `fired` settings
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
        """Compute the next date of schedules that changed since the last call: some take 0.2 ms."""
        while self._new:
            one = self._known.get(self._new.pop())
            if one is not None:
                self._look(one)
            yield

    def now_ms(self) -> int:
        """Return the time by the clock of the store, which also decides when jobs start."""
        return self._settings.now_ms(self._clock)

    def due(self) -> list[KnownSchedule]:
        """Schedules whose date has come, the longest overdue first."""
        finish(self.looks())
        found, now_ms = dict[str, KnownSchedule](), self.now_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            one = self._first()
            if one is not None:
                found[one.name] = one  # the same date may stand there twice
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
        """Return schedules whose date passed long ago, and that date, whatever the firing daemons report."""
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
        """Return the overdue schedules, as sentences for `/readyz`."""
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
        """The schedule at the head of the heap; None, and it is dropped, if its date has changed."""
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
            one = KnownSchedule(setting.name, schedule, done, fired.revision if fired else 0)
            if before and before.fired.job_id == done.job_id:
                one.coming = before.coming  # each date that is skipped comes by here
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
