"""Chooses what to run next, and counts what runs.

The rule of the LightJQ specification: the smallest priority number over all jobtypes goes first. A row is a jobtype
that waits, in one partition of the store. A whole batch is
claimed at once, so the choice also says how far down its own priorities that batch may reach before it would overtake
a better job of another jobtype.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from jqd.scheduler.counts import Counts
from jqd.scheduler.policy import OldestFirst, Policy, Waiting
from jqd.words.job import PRIORITY_MAX

Row = TypeVar("Row", bound=Waiting)


class Selection(NamedTuple, Generic[Row]):
    """A row to claim a batch of."""

    row: Row
    no_worse_than: int
    """Claim no job with a greater priority number: a job that may run waits there in another row. Equal ones may run
    on."""


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

    def select_rows_to_run(
        self, waiting: Sequence[Row], *, may_run: Callable[[Row], bool] = _any_may_run
    ) -> Iterator[Selection[Row]]:
        """The best rows to claim from, best first: all that are as good as the first. None when nothing may run.

        `may_run` gets rows of `waiting`, in order of rank, and no more than are needed.
        """
        running = self._counts.running()
        best: Row | None = None
        for row in sorted(waiting, key=lambda row: self._policy.key(row, running)):
            if row.waiting < 1 or not may_run(row):
                continue
            if best is not None:
                # Priority leads every ranking, so no row after this one is better.
                yield Selection(best, row.priority)
                if row.priority > best.priority:
                    return
            best = row
        if best is not None:
            yield Selection(best, PRIORITY_MAX)

    def jobs_started(self, jobtype: str, count: int) -> None:
        """`count` jobs of `jobtype` were claimed. `jobs_stopped` must be told of each."""
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
