"""Rows: the jobtypes that wait in a partition, updated as jobs are claimed or arrive between two queries of the store.

The best jobs of a row may have been claimed since the query. Then its rank is too good: a claim finds too few jobs or
none, and another query follows. No job overtakes a better one by that, because each claim is bounded by the other rows.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jqd.domain.job import Job
from jqd.scheduler import NO_BOUND

if TYPE_CHECKING:
    from jqd.loops.claims import Claims


class Row(NamedTuple):
    """A jobtype that waits in a partition: a `WaitingType`, and the `Claims` of its partition."""

    jobtype: str
    priority: int
    head_id: str
    waiting: int
    suspect: bool
    rank: int
    claims: "Claims"


def rows_of(jobs: Iterable[Job], claims: "Claims") -> Iterable[Row]:
    """Return rows (waiting jobtypes) made of newly arrived jobs, for a partition where no jobs waited before."""
    rows: dict[str, Row] = {}
    for job in jobs:
        row = rows.get(job.jobtype) or Row(job.jobtype, job.priority, job.id, 0, False, job.priority, claims)
        best = min(row.priority, job.priority)
        rows[job.jobtype] = row._replace(priority=best, rank=best, waiting=row.waiting + 1)
    return rows.values()


def with_jobs(rows: Sequence[Row], jobs: Sequence[Job]) -> list[Row]:
    """Return the rows (waiting jobtypes) with new jobs counted in. Empty if a job has a better priority than its row,
    or no row: then the caller queries the store again."""
    best = {row.jobtype: row.priority for row in rows}
    if any(job.priority < best.get(job.jobtype, NO_BOUND) for job in jobs):
        return []
    counts = Counter(job.jobtype for job in jobs)
    return [row._replace(waiting=row.waiting + counts[row.jobtype]) for row in rows]


def without_jobs(rows: Sequence[Row], jobtype: str, jobs: int) -> list[Row]:
    """Return the rows (waiting jobtypes) after `jobs` jobs of a type were claimed. Empty if that type has no known jobs
    left: then the caller queries the store again."""
    left = [row._replace(waiting=row.waiting - jobs) if row.jobtype == jobtype else row for row in rows]
    return left if any(row.jobtype == jobtype and row.waiting > 0 for row in left) else []
