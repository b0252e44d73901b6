"""The name of a job's queue: its jobtype, the version of all constraints, and those that limit it.

Of each of these it has the name, the cost and the value of the key. `lua/shared/limits.lua` reads it (docs/adr/0048).
"""

from typing import NamedTuple, Protocol

from jqd.domain.job import Job

BETWEEN, WITHIN = "\x1e", "\x1d"  # before each part, and between the parts of one
FAILED = "!"  # for the key of a job that a matcher failed on


class QueueNames(Protocol):
    """Names the queues of jobs; see `jqd.rate_limits`."""

    version: str

    def queue_of(self, job: Job) -> str: ...
    def is_current(self, queue: str) -> bool: ...


class Item(NamedTuple):
    """One constraint, in the name of a queue."""

    name: str
    cost: int | None
    """The cost of a start; None: the matcher failed on the job."""
    key: str


def items_of(queue: str) -> list[Item]:
    """Return the constraints in the name of a queue."""
    rows = (part.split(WITHIN) for part in queue.split(BETWEEN)[2:])
    return [Item(row[0], int(row[1]) if row[1] else None, row[2]) for row in rows if len(row) == 3]


def limits(queue: str) -> bool:
    """Return whether constraints limit the jobs of that queue."""
    return queue.count(BETWEEN) > 1
