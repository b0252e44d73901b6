"""Decides which date of a schedule is fired next, and which are passed over. Pure: all daemons decide alike."""

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from jqd.cron.schedules import Known

LATE_MS = 60_000  # a date is missed when it passed so long ago: a restart or a failover takes less
AT_ONCE = 500  # dates looked at in one step, some 10 ms: a second's schedule that was away for a day has 86,400


class Last(NamedTuple):
    """The job that a schedule pushed last."""

    ended_at_ms: int | None
    """None: it has not ended. 0: nobody knows any more when."""


class Step(NamedTuple):
    """What is to be done now. Where dates are left, another step follows."""

    through_ms: int
    """The last date that is seen to with it."""
    fires: bool = False
    """That date is fired."""
    skipped: int = 0
    """Dates before it, and it itself where it is not fired, that are passed over."""
    replaces: bool = False
    """The last job is cancelled before."""


class Firing(NamedTuple):
    """A step of a schedule."""

    one: Known
    step: Step

    @property
    def job_id(self) -> str:
        """Of the job that it pushes, if it does."""
        return self.one.job_id(self.step.through_ms)


def decide(one: Known, last: Last | None, now_ms: int) -> Step | None:
    """The next step; None: no date has come, or the last job is waited for. `last`: None where there is none."""
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
    if schedule.missed == "skip" or len(missed) > AT_ONCE:  # of several hundred the latest may not be among these
        return Step(missed[:AT_ONCE][-1], skipped=len(missed[:AT_ONCE]))
    return Step(missed[-1], fires=True, skipped=len(missed) - 1, replaces=running)


def _missed(due: Sequence[int], now_ms: int, waited_ms: int) -> Sequence[int]:
    """The first of these if they passed too long ago, unless they only waited for the last job, until that instant."""
    if due[0] <= waited_ms:
        return ()
    return [date_ms for date_ms in due if now_ms - date_ms > LATE_MS]
