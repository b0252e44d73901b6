"""Chooses what to run next, and counts what runs.

The rule of the LightJQ specification: the smallest priority number over all jobtypes goes first. A row is a jobtype
that waits, in one partition of the store. A whole batch is claimed at once, so the choice also says how far down its
own priorities that batch may reach before it would overtake a better job of another jobtype.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from jqd.words.job import PRIORITY_MAX


class Waiting(Protocol):
    """A jobtype with jobs ready to run, as the store tells it."""

    @property
    def jobtype(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def head_id(self) -> str: ...
    @property
    def waiting(self) -> int: ...


Row = TypeVar("Row", bound=Waiting)


class Selection(NamedTuple, Generic[Row]):
    """A row to claim a batch of."""

    row: Row
    no_worse_than: int
    """Claim no job with a greater priority number: a job that may run waits there in another row. Equal ones may run
    on."""


class Scheduler:
    """One per daemon. It asserts its counts and never clamps them: a wrong one is a bug to find."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self.started_total = 0
        self.stopped_total = 0

    def select_rows_to_run(self, waiting: Sequence[Row], *, may_run: Callable[[Row], bool]) -> Iterator[Selection[Row]]:
        """The best rows to claim from, best first: all that are as good as the first. None when nothing may run.

        `may_run` gets rows of `waiting`, in order of rank, and no more than are needed.
        """
        best: Row | None = None
        for row in sorted(waiting, key=_rank):
            if row.waiting < 1 or not may_run(row):
                continue
            if best is not None:
                # No row after this one has a better priority.
                yield Selection(best, row.priority)
                if row.priority > best.priority:
                    return
            best = row
        if best is not None:
            yield Selection(best, PRIORITY_MAX)

    def jobs_started(self, jobtype: str, count: int) -> None:
        """`count` jobs of `jobtype` were claimed. `jobs_stopped` must be told of each."""
        assert count > 0, f"{count} jobs of {jobtype!r} cannot have started"
        self._running[jobtype] = self._running.get(jobtype, 0) + count
        self.started_total += count

    def jobs_stopped(self, jobtype: str, count: int) -> None:
        """`count` of the jobs claimed are out of hand: their end is in the store, or they went back."""
        assert count > 0, f"{count} jobs of {jobtype!r} cannot have stopped"
        left = self._running.get(jobtype, 0) - count
        assert left >= 0, f"{-left} jobs of {jobtype!r} stopped that never started"
        if left:
            self._running[jobtype] = left
        else:
            del self._running[jobtype]
        self.stopped_total += count

    def running(self) -> Mapping[str, int]:
        """Jobtype → jobs in hand, a copy; jobtypes with none are absent."""
        return dict(self._running)


def _rank(row: Waiting) -> tuple[int, str, str]:
    """Of equal priorities the job that waits longest, so that no jobtype starves an equal one; names keep one order."""
    return row.priority, row.head_id, row.jobtype
