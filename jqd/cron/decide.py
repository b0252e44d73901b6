"""Decides which date of a schedule is fired next, and which dates are skipped.

To *fire* a date is to push the schedule's job for it. A date is *missed* if it passed some time ago and was not fired.
The decision depends only on the arguments, so all daemons decide alike.
"""

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from jqd.cron.schedules import KnownSchedule

LATE_MS = 60_000  # a date that passed longer ago is missed: a restart or a failover takes less
AT_ONCE = 500  # the most dates in one step, some 10 ms: after an idle day a schedule of every second has 86,400


class Last(NamedTuple):
    """The state of the job that a schedule pushed last."""

    ended_at_ms: int | None
    """When the job ended; None: it has not ended; 0: it has, but when is no longer known."""


class Step(NamedTuple):
    """The next step of a schedule: fire one date, skip some dates, or both. If it leaves dates that have come, another
    step follows."""

    through_ms: int
    """The last date that this step fires or skips."""
    fires: bool = False
    """Whether the date `through_ms` is fired; else it is skipped."""
    skipped: int = 0
    """How many dates are skipped, including `through_ms` if that is not fired."""
    replaces: bool = False
    """Whether the schedule's last job, which still runs, is cancelled."""


class Firing(NamedTuple):
    """A schedule, and the step that it is to take."""

    one: KnownSchedule
    step: Step

    @property
    def job_id(self) -> str:
        """Return the id of the job that the step pushes if it fires."""
        return self.one.job_id(self.step.through_ms)


def decide(one: KnownSchedule, last: Last | None, now_ms: int) -> Step | None:
    """Return the next step of a schedule: the date to fire, or the dates to skip. None if no date has come, or if the
    schedule waits for its last job to end.

    `last`: the job that the schedule pushed last; None if there was none.
    """
    schedule = one.schedule
    running = last is not None and last.ended_at_ms is None
    if running and schedule.overlap == "queue":
        return None
    come = takewhile(lambda date_ms: date_ms <= now_ms, schedule.when.dates(one.through_ms))
    due = [*islice(come, AT_ONCE + 1)]
    if not due:
        return None
    if running and schedule.overlap == "skip":
        return Step(due[-1], skipped=len(due))
    waited_ms = last.ended_at_ms or 0 if last is not None and schedule.overlap == "queue" else 0
    missed = _missed(due, now_ms, waited_ms)
    if not missed or schedule.missed == "all":
        return Step(due[0], fires=True, replaces=running)
    if schedule.missed == "skip" or len(missed) > AT_ONCE:  # more dates may follow, so the latest one is not known yet
        return Step(missed[:AT_ONCE][-1], skipped=len(missed[:AT_ONCE]))
    return Step(missed[-1], fires=True, skipped=len(missed) - 1, replaces=running)


def _missed(due: Sequence[int], now_ms: int, waited_ms: int) -> Sequence[int]:
    """Return the dates in `due` that came more than LATE_MS ago.

    Return none if the first date had come when the last job ended (`waited_ms`): then the dates only waited for that
    job."""
    if due[0] <= waited_ms:
        return ()
    return [date_ms for date_ms in due if now_ms - date_ms > LATE_MS]
