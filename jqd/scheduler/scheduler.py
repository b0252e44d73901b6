"""Chooses the jobtype to run next, and counts what runs.

The rule of the LightJQ specification: the smallest priority number over all jobtypes goes first. A whole batch is
claimed at once, so the choice also says how far down its own priorities that batch may reach before it would overtake
a better job of another jobtype.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jqd.scheduler.counts import Counts
from jqd.scheduler.policy import OldestFirst, Policy, Waiting
from jqd.words.job import PRIORITY_MAX


class Selection(NamedTuple):
    """A jobtype to claim a batch of."""

    jobtype: str
    no_worse_than: int
    """Claim no job with a greater priority number: a job that may run waits there in another jobtype. Equal ones may
    run on."""


class SchedulerStats(NamedTuple):
    """A snapshot of the counts."""

    running: Mapping[str, int]
    """Jobtype → jobs in hand."""
    started_total: int
    stopped_total: int


def _any_may_run(row: Any) -> bool:
    return True


class Scheduler:
    """One per daemon. `policy` ranks the jobtypes."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy: Policy = policy or OldestFirst()
        self._counts = Counts()

    def select_jobtype_to_run(
        self, waiting: Sequence[Waiting], *, may_run: Callable[[Any], bool] = _any_may_run
    ) -> Selection | None:
        """The jobtype to claim from, or None when nothing that waits may run.

        `may_run` gets rows of `waiting`, in order of rank, and only until the two best are known.
        """
        running = self._counts.running()
        best: Waiting | None = None
        for row in sorted(waiting, key=lambda row: self._policy.key(row, running)):
            if row.waiting < 1 or (best is not None and row.jobtype == best.jobtype) or not may_run(row):
                continue
            if best is not None:
                # Priority leads every ranking, so no row after this one is better.
                return Selection(best.jobtype, row.priority)
            best = row
        return None if best is None else Selection(best.jobtype, PRIORITY_MAX)

    def jobs_started(self, jobtype: str, count: int) -> None:
        """`count` jobs of `jobtype` were claimed. Balanced by `jobs_stopped`, asserted."""
        self._counts.started(jobtype, count)

    def jobs_stopped(self, jobtype: str, count: int) -> None:
        """`count` of the jobs claimed are out of hand: their end is in the store, or they went back."""
        self._counts.stopped(jobtype, count)

    def running(self) -> Mapping[str, int]:
        """Jobtype → jobs in hand."""
        return self._counts.running()

    def stats(self) -> SchedulerStats:
        """A snapshot."""
        return SchedulerStats(self._counts.running(), self._counts.started_total, self._counts.stopped_total)
