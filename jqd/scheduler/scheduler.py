"""Chooses what to run next, and counts what runs.

As LightJQ specifies, the smallest priority number over all jobtypes goes first; a policy orders equal priorities
(`policies.py`). Where jobs age, ranks are compared in place of priorities (docs/adr/0048). A row is a jobtype that
waits in one partition of the store. A whole batch is claimed at once, so a selection bounds the rank of its jobs, lest
they overtake a better job of another row.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from jqd.scheduler.policies import Fair, Policy, Waiting

NO_BOUND = 1 << 53  # worse than any rank; the store's functions still count exactly so far

Row = TypeVar("Row", bound=Waiting)


class Selection(NamedTuple, Generic[Row]):
    """A row (jobtype that waits in a partition) to claim a batch from, and the worst rank that jobs of the batch may
    have."""

    row: Row
    no_worse_than: int
    """Claim no job of a greater rank, because the next row has a better job. Equal ranks may be claimed."""


class Scheduler:
    """Chooses what runs next, and counts what runs. A wrong count is a bug, and fails an assertion."""

    def __init__(self, policy: Policy | None = None, *, period_ms: int = 0) -> None:
        """`policy`: orders rows of equal rank; None: `Fair`. `period_ms`: the period of ageing; 0: jobs do not age."""
        self._policy = policy or Fair()
        self.period_ms = period_ms
        self._running: dict[str, int] = {}

    def ranked(self, waiting: Iterable[Row]) -> list[Row]:
        """Return the rows (waiting jobtypes) of one partition, best first."""
        return sorted(waiting, key=self._rank)

    def select_rows_to_run(
        self, waiting: Sequence[Sequence[Row]], *, may_run: Callable[[Row], bool]
    ) -> Iterator[Selection[Row]]:
        """Yield the rows (waiting jobtypes) to claim from, best first: all rows of the best rank that may run. Yields
        nothing if no row may run.

        `waiting`: the rows of each partition, as `ranked` returns them. `may_run` is called in that order, for no more
        rows than needed."""
        best: Row | None = None
        for row in waiting[0] if len(waiting) == 1 else heapq.merge(*waiting, key=self._rank):
            if row.waiting < 1 or not may_run(row):
                continue
            if best is not None:
                # All further rows have this rank or a worse one, so it bounds the batch of `best`.
                yield Selection(best, row.rank)
                if row.rank > best.rank:
                    return
            best = row
        if best is not None:
            yield Selection(best, NO_BOUND)

    def chosen(self, row: Row) -> None:
        self._policy.chosen(row)

    def _rank(self, row: Waiting) -> tuple[Any, ...]:
        return row.rank, *self._policy.rank(row)

    def jobs_started(self, jobtype: str, count: int) -> None:
        """Note that `count` jobs of `jobtype` were claimed. The caller reports each of them to `jobs_stopped` later."""
        assert count > 0, f"{count} jobs of {jobtype!r} cannot have started"
        self._running[jobtype] = self._running.get(jobtype, 0) + count
        self._policy.started(jobtype, count)

    def jobs_stopped(self, jobtype: str, count: int) -> None:
        """Note that `count` claimed jobs are no longer in flight: the store knows their end, or has them back."""
        assert count > 0, f"{count} jobs of {jobtype!r} cannot have stopped"
        left = self._running.get(jobtype, 0) - count
        assert left >= 0, f"{-left} jobs of {jobtype!r} stopped that never started"
        if left:
            self._running[jobtype] = left
        else:
            del self._running[jobtype]

    def running(self) -> Mapping[str, int]:
        """Return a copy of jobtype → number of jobs in flight; jobtypes with none are absent."""
        return dict(self._running)
