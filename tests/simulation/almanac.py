"""What must hold of schedules: each date is fired once, whoever fires it, and as the schedule says.

ghost   a job of a schedule runs that no journal brought
overlap, date, again   as of any job (`check.py`)
twice   two jobs run for one date, or its job begins anew after it had ended, without a cause
note    a date is noted as fired, and no journal brought its job
lost    a date passed while the schedule held, and nobody saw to it; or its job never came to an end
missed  a date is passed over that was not missed, or fired that was, against what the schedule says
paused  a date is fired that came when the schedule was paused or deleted

What a schedule was to do is known from the last word on it that was answered well, if no other overlaps it. Up to which
date it was seen to is read from the notes as they come to the store. A date may be fired twice if the store loses data
while the daemon that fired it is away, or if a store that keeps nothing that ended deletes its job before the note of
the date comes: then nobody knows of it (docs/adr/0044).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trio

from jqd.cron.schedules import FiredDate, Schedule, Schedules
from jqd.domain.dates import instant_ms, iso
from jqd.domain.job import Fate, Job, Outcome, State
from jqd.domain.jobid import partition_of_name
from jqd.domain.settings import FIRED, Setting
from jqd.store import JobView
from jqd.testing.store import FakeStore
from tests.simulation.causes import Attempt
from tests.simulation.loop import EPOCH_MS
from tests.simulation.node import CURRENT_S, GIVEN_S, LATE_S, NOTE_S
from tests.simulation.notes import Notes
from tests.simulation.plan import PURGE
from tests.simulation.said import HEARD_S, Word
from tests.simulation.say import PUT, SCHEDULES
from tests.simulation.word import DATE_S, ENDS, Run, end

SLACK_MS = round(GIVEN_S * 1000) + 100  # from the choice of a date to its note
KNOWN_S = HEARD_S + CURRENT_S  # nobody fires who was not told for longer than that

_fired_decoder = msgspec.msgpack.Decoder(FiredDate)
_schedule_decoder = msgspec.msgpack.Decoder(Schedule)


@dataclass
class Date:
    """One date of one schedule."""

    schedule: str
    at_ms: int
    jobs: dict[str, str] = field(default_factory=dict)
    """Ids of jobs that came for it → whose journal brought them."""
    runs: list[Run] = field(default_factory=list)
    noted: dict[float, str] = field(default_factory=dict)
    """When somebody noted that he fired it → who."""
    told_s: dict[str, float] = field(default_factory=dict)
    """Who noted it → when the store learned it."""
    over_s: float = math.inf
    """When the store learned how its job ended."""

    @property
    def name(self) -> str:
        """Of its job."""
        return f"{self.schedule}@{iso(self.at_ms)}"

    @property
    def at_s(self) -> float:
        """By the world's clock."""
        return _s(self.at_ms)


@dataclass(frozen=True)
class Note:
    """Somebody saw to all dates up to one."""

    through_ms: int
    fires: bool
    at_ms: int
    date_ms: int = 0
    """Which date the last job was of, as far as who wrote it knew."""


class Almanac:
    """All dates of all schedules."""

    def __init__(self, history: Notes) -> None:
        self.numbers = {say.slots for say in history.plan.says if say.dates is not None and say.what == PUT}
        """Of the works of their jobs."""
        self._history = history
        self._dates: dict[tuple[str, int], Date] = {}
        self._by_id: dict[str, Date] = {}
        self._notes: dict[str, dict[Note, None]] = {}
        self._seen: set[bytes] = set()

    # ------------------------------------------------------------ what happened

    def applied(self, node: str, job: Job) -> None:
        """A journal brought a job to the store."""
        schedule, _, date = job.name.partition("@")
        if schedule in SCHEDULES and date:
            one = self._date(schedule, instant_ms(date))
            one.jobs.setdefault(job.id, node)
            self._by_id[job.id] = one

    def told(self, node: str, settings: Iterable[Setting]) -> None:
        """A journal brought rules to the store: its own, and what it learned of others."""
        for setting in settings:
            if setting.kind == FIRED and not setting.is_deleted and bytes(setting.body) not in self._seen:
                self._seen.add(bytes(setting.body))
                fired = _fired_decoder.decode(setting.body)
                fires = fired.date_ms == fired.through_ms
                if fires and setting.at_ms != fired.at_ms:
                    continue  # it says only that dates wait for that job
                self._notes.setdefault(setting.name, {})[
                    Note(fired.through_ms, fires, setting.at_ms, fired.date_ms)
                ] = None
                if fires:
                    date = self._date(setting.name, fired.date_ms)
                    date.noted[_s(setting.at_ms)] = node
                    date.told_s.setdefault(node, trio.current_time())

    def started(self, life: str, fence: int, job_id: str) -> None:
        """A worker has such a job."""
        history, now_s = self._history, trio.current_time()
        one = self._by_id.get(job_id)
        if one is None:
            history.wrong(f"ghost: {job_id} started by {life} is of no date")
            return
        home = partition_of_name(one.name, history.plan.partitions)
        run = Run(
            life, life.partition(".")[0], fence, now_s, job_id=job_id, claimed=history.claims.get((home, fence), 0)
        )
        for other in history.runs(job_id, life):
            history.wrong(f"overlap: {one.name} started by {life} while {other} runs it and rightly trusts its lease")
        if now_s < one.at_s - DATE_S - history.wrong_s(now_s):
            history.wrong(f"date: {one.name} started by {life} {one.at_s - now_s:.3f} s too early")
        for past in one.runs:
            self._check_again(one, past, run, home)
        one.runs.append(run)

    def _check_again(self, one: Date, past: Run, run: Run, home: int) -> None:
        anew = past.job_id != run.job_id
        over = past.fate not in (None, Fate.RETRY) and not past.gave_way(run.claimed)
        unknown = any(self._history.forgotten(home, at_s, node, run.at_s) for at_s, node in one.noted.items())
        if anew and PURGE in self._history.plan.kinds and one.over_s <= run.at_s:
            unknown = unknown or one.told_s.get(past.life.partition(".")[0], math.inf) > run.at_s - KNOWN_S
        if (anew or over) and not unknown and (anew or not self._history.again(home, past, run.at_s)):
            self._history.wrong(
                f"twice: {one.name} ran as {past.job_id} at {past.life}, {run.job_id} starts at {run.life}"
            )

    def ended(self, life: str, job_id: str, fence: int, fate: Fate) -> None:
        """A daemon heard how an attempt ended."""
        if (one := self._by_id.get(job_id)) is not None:
            end(one.runs, life, job_id, fence, fate)

    def settled(self, outcomes: Iterable[Outcome]) -> None:
        """A journal told the store how attempts ended."""
        for outcome in outcomes:
            if outcome.fate in ENDS and outcome.job_id in self._by_id:
                self._by_id[outcome.job_id].over_s = trio.current_time()

    def runs(self) -> list[tuple[str, Attempt]]:
        """All, each with the id of its job."""
        return [(run.job_id, run) for one in self._dates.values() for run in one.runs]

    def _date(self, schedule: str, at_ms: int) -> Date:
        return self._dates.setdefault((schedule, at_ms), Date(schedule, at_ms))

    # ------------------------------------------------------------ at the end

    async def check(self, words: Sequence[Word], stores: Sequence[FakeStore]) -> None:
        """Once all is quiet."""
        for one in self._dates.values():
            if one.noted and not one.jobs:
                self._history.wrong(f"note: {one.name} is noted as fired at {one.noted}, and no journal has its job")
            elif one.jobs and not await self._came_to_an_end(one, words, stores):
                self._history.wrong(f"lost: {one.name} was fired as {[*one.jobs]}, and none of them came to an end")
        for name in SCHEDULES:
            last = _last([word for word in words if word.say.name == name and not word.refused])
            if last is None or last.setting is None:
                continue
            schedule = None if last.setting.is_deleted else _schedule_decoder.decode(last.setting.body)
            if schedule is None or schedule.paused_at_ms:
                self._check_paused(name, last)
            else:
                self._check_dates(name, schedule, last)

    async def _came_to_an_end(self, one: Date, words: Sequence[Word], stores: Sequence[FakeStore]) -> bool:
        replaces = any(
            word.say.dates is not None and word.say.name == one.schedule and word.say.dates.overlap == "replace"
            for word in words
        )
        if replaces or any(run.fate in ENDS for run in one.runs):
            return True
        store = stores[partition_of_name(one.name, len(stores))].another_client()
        views: list[Any] = [await store.get_job(job_id) for job_id in one.jobs]
        return any(
            isinstance(view, JobView) and view.state.is_final and view.state is not State.CANCELLED for view in views
        )

    def _check_paused(self, name: str, last: Word) -> None:
        """None of the dates that came after the last word."""
        for one in self._dates.values():
            if one.schedule == name and one.jobs and self._came_after(one, last):
                what = f"answered at {last.answered_s:.3f} s at {last.node}"
                self._history.wrong(f"paused: {one.name} was fired after a {last.say.what} {what}")

    def _came_after(self, one: Date, word: Word) -> bool:
        """Whether that date came when all could know of that word."""
        since_s = max(word.answered_s, self._history.hindered_to(word.sent_s, one.at_s, word.node))
        return one.at_s > since_s + KNOWN_S and not self._history.clock_jumps

    def _check_dates(self, name: str, schedule: Schedule, last: Word) -> None:
        """All of those that came after the last word."""
        notes = sorted(self._notes.get(name, {}), key=lambda note: (note.through_ms, not note.fires, note.at_ms))
        since_ms = max(schedule.since_ms, EPOCH_MS + round(last.answered_s * 1000))
        dates = set(schedule.when.dates(since_ms))
        for one in self._dates.values():
            if one.schedule == name and one.jobs and one.at_ms not in dates and self._came_after(one, last):
                self._history.wrong(f"twice: {one.name} was fired, and is no date of {name}")
        for at_ms in sorted(dates):
            fired = self._dates.get((name, at_ms))
            note = next((note for note in notes if note.through_ms >= at_ms), None)
            if note is None and (fired is None or not fired.jobs):
                self._history.wrong(f"lost: nobody saw to {name}@{iso(at_ms)}")
            elif (
                note is not None and not self._history.clock_jumps and not (note.fires and note.through_ms not in dates)
            ):
                # Whoever had not heard of the last word yet fired a date of the word before: above it is seen that it
                # could not have heard. What lies before that date is passed over (docs/adr/0044, known limits).
                self._check_policy(name, schedule, at_ms, note)

    def _check_policy(self, name: str, schedule: Schedule, at_ms: int, note: Note) -> None:
        one = self._dates.get((name, at_ms))
        fired = one is not None and bool(one.jobs)
        # Of two that fire at once each may know another last job: the note says which one its writer knew.
        noted = self._dates.get((name, note.date_ms)) if note.date_ms < at_ms else None
        lasts = (self._before(name, at_ms), noted)
        waited = any(before is not None and before.over_s >= _s(at_ms) - DATE_S for before in lasts)
        late_ms = note.at_ms - at_ms
        if not fired:
            let_by = waited if schedule.overlap == "skip" else False
            legal = let_by or (schedule.missed != "all" and late_ms > round(LATE_S * 1000))
            what = "passed over"
        else:
            following_ms = (schedule.when.after(at_ms) or math.inf) if schedule.missed == "once" else at_ms
            most_s = LATE_S + (NOTE_S if schedule.overlap == "queue" else 0)  # it may have been seen before a note
            too_late = note.fires and note.through_ms == at_ms and note.at_ms - following_ms > most_s * 1000 + SLACK_MS
            legal = schedule.missed == "all" or waited or not too_late
            what = "fired"
        if not legal:
            settings = f"missed {schedule.missed}, overlap {schedule.overlap}"
            self._history.wrong(f"missed: {name}@{iso(at_ms)} was {what} {late_ms} ms after its date ({settings})")

    def _before(self, name: str, at_ms: int) -> Date | None:
        fired = (one for one in self._dates.values() if one.schedule == name and one.at_ms < at_ms and one.jobs)
        return max(fired, key=lambda one: one.at_ms, default=None)


def _last(words: Sequence[Word]) -> Word | None:
    """The last word, if it surely is, and holds: under wrong clocks one that was said before may have the higher
    revision."""
    for word in words:
        others = [other for other in words if other is not word]
        if word.answered_s < math.inf and all(
            other.answered_s < word.sent_s and _revision(other) <= _revision(word) for other in others
        ):
            return word
    return None


def _revision(word: Word) -> int:
    return 0 if word.setting is None else word.setting.revision


def late(all_services: Iterable[Any]) -> Iterator[str]:
    """Schedules of which a date has come that nobody saw to."""
    for services in all_services:
        now_ms = services.feature(Schedules).now_ms()
        for one in services.feature(Schedules).known.values():
            if one.next_ms is not None and one.next_ms <= now_ms:
                yield f"{one.name}@{iso(one.next_ms)} is not fired yet ({one.trouble})"


def _s(at_ms: float) -> float:
    return (at_ms - EPOCH_MS) / 1000
