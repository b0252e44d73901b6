"""Mistakes about schedules, pauses, drains and expiry, planted as those of `bugs.py`: what was said does not hold."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import trio
from msgspec import structs

from jqd.cron import decide as choice
from jqd.cron import firing
from jqd.cron import loop as dates_loop
from jqd.cron.decide import Step
from jqd.cron.loop import CronLoop
from jqd.cron.schedules import KnownSchedule, Schedules, Watched
from jqd.domain.dates import iso
from jqd.domain.settings import Setting
from jqd.partition import Partition
from jqd.runner.runner import Runner
from jqd.service import frames
from tests.simulation.loop import EPOCH_MS
from tests.simulation.mistake import Mistake, Real, in_scripts, mistake


def _of_the_moment(real: Real) -> Real:
    def job_id(self: KnownSchedule, date_ms: int) -> str:
        return f"{self.name}@{iso(EPOCH_MS + round(trio.current_time() * 1000))}"

    return job_id


def _untold(real: Real) -> Real:
    def is_told(self: CronLoop, home: int, life: str) -> bool:
        return True

    return is_told


_pending: dict[int, tuple[Any, ...]] = {}


def _write_later(real: Real) -> Real:
    def write(services: Any, *args: Any, **named: Any) -> Any:
        _pending[id(services)] = args, named
        return SimpleNamespace(job_ids=[], position=services.journal.end, callbacks={})

    return write


def _note_first(real: Real) -> Real:
    async def note(services: Any, settings: Sequence[Setting]) -> None:
        args, named = _pending.pop(id(services), ((), {}))
        await real(services, settings)
        if args:
            await services.journal.wsync(frames.write(services, *args, **named).position)

    return note


def _no_job(real: Real) -> Real:
    def write(services: Any, *args: Any, **named: Any) -> Any:
        return SimpleNamespace(job_ids=[], position=services.journal.end, callbacks={})

    return write


def _from_now_on(real: Real) -> Real:
    def look(self: Schedules, one: KnownSchedule) -> None:
        real(self, one)
        if one.next_ms is not None:
            one.next_ms = one.schedule.when.after(max(one.through_ms, self.now_ms()))
            self._note(one)

    return look


def _paused_too(real: Real) -> Real:
    def look(self: Schedules, one: KnownSchedule) -> None:
        paused, one.schedule = one.schedule, structs.replace(one.schedule, paused_at_ms=0)
        real(self, one)
        one.schedule = paused

    return look


def _never_missed(real: Real) -> Real:
    def missed(due: Sequence[int], now_ms: int, watched: Watched) -> Sequence[int]:
        return ()

    return missed


def _once_for_all(real: Real) -> Real:
    def decide(one: KnownSchedule, runs: bool, now_ms: int) -> Step | None:
        schedule = structs.replace(one.schedule, missed="once")
        return real(structs.replace(one, schedule=schedule), runs, now_ms)  # type: ignore[no-any-return]

    return decide


def _take_all_the_same(real: Real) -> Real:
    def offer(self: Runner, *args: Any, **named: Any) -> Any:
        paused, self.paused.types.names = self.paused.types.names, frozenset()
        try:
            return real(self, *args, **named)
        finally:
            self.paused.types.names = paused

    return offer


def _knows_no_drain(real: Real) -> Real:
    def drained(self: Partition) -> str | None:
        return None

    return drained


UNDUE: dict[str, Mistake] = {
    "fired-of-the-moment": mistake(
        "",
        1,
        "twice,lost",
        "the job of a date is called after the moment in which it is fired",
        (KnownSchedule, "job_id", _of_the_moment),
        schedules=True,
    ),
    "fires-untold": mistake(
        "purge,cut,pause",
        14,
        "twice",
        "a date is fired though the store did not say of late what others fired",
        (CronLoop, "_is_current", _untold),
        schedules=True,
        dense=2,
    ),
    "note-before-job": mistake(
        "kill,disk",
        139,
        "note,lost",
        "that a date was fired is on disk before its job is",
        (firing, "write", _write_later),
        (firing, "note", _note_first),
        schedules=True,
        dense=2,
    ),
    "note-without-job": mistake(
        "",
        0,
        "note",
        "a date is noted as fired, and its job is forgotten",
        (firing, "write", _no_job),
        schedules=True,
    ),
    "passed-dates-forgotten": mistake(
        "away",
        0,
        "lost",
        "a daemon looks for dates from now on, and not from the last one that was fired",
        (Schedules, "_look", _from_now_on),
        schedules=True,
    ),
    "fires-while-paused": mistake(
        "kill",
        16,
        "paused",
        "a schedule that is paused is fired",
        (Schedules, "_look", _paused_too),
        schedules=True,
    ),
    "nothing-is-missed": mistake(
        "away",
        6,
        "missed",
        "dates that passed long ago are all fired, whatever the schedule says",
        (choice, "_missed", _never_missed),
        schedules=True,
    ),
    "all-is-once": mistake(
        "away",
        14,
        "missed",
        "of dates that passed long ago only the last is fired, whatever the schedule says",
        (dates_loop, "decide", _once_for_all),
        schedules=True,
    ),
    "pause-at-look": mistake(
        "kill",
        36,
        "paused",
        "what was seen to wait is claimed, also if its type was paused since",
        (Runner, "offer", _take_all_the_same),
        pauses=True,
        dense=3,
    ),
    "drained-claims": mistake(
        "kill",
        0,
        "drained",
        "a daemon that is drained begins jobs as ever",
        (Partition, "_drained", _knows_no_drain),
        drains=True,
    ),
    "expired-starts": mistake(
        "away",
        0,
        "expired",
        "a job begins however late it is",
        in_scripts("due, ids, dates = call.has_expiring and", "due, ids, dates = call.is_mistaken and"),
        expires=True,
        pauses=True,
    ),
    "expired-dropped": mistake(
        "away",
        97,
        "lost",
        "a job that expired is forgotten, and not dead",
        in_scripts(
            "  redis.call('HSET', K.outcome, id, Move.EXPIRED .. digits(at_ms))\n",
            "  redis.call('ZREM', K.dead, id)\n  redis.call('HDEL', K.jobs, id)\n",
        ),
        expires=True,
        pauses=True,
    ),
}
"""By name."""
