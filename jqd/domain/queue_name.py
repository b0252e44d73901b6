"""The name of a job's queue in the store. It consists of the jobtype, the version of all constraints, and each
constraint that limits the job, with its name, its cost and the value of its key. `lua/shared/limits.lua` reads it
(docs/adr/0048)."""

from typing import NamedTuple, Protocol

from jqd.domain.job import Job

BETWEEN, WITHIN = "\x1e", "\x1d"  # BETWEEN is before each part but the jobtype; WITHIN separates a constraint's values
FAILED = "!"  # the key of a job whose matching expression failed


class QueueNames(Protocol):
    """Makes the names of jobs' queues from the constraints that limit the jobs. `version`: that of the constraints."""

    version: str

    def queue_of(self, job: Job) -> str: ...
    def is_current(self, queue: str) -> bool: ...


class Item(NamedTuple):
    """One constraint, as the name of a queue contains it."""

    name: str
    cost: int | None
    """How much one start of the job uses of the limit; None: the expression that matches jobs failed for this job."""
    key: str


def items_of(queue: str) -> list[Item]:
    """Return the constraints in the name of a queue."""
    rows = (part.split(WITHIN) for part in queue.split(BETWEEN)[2:])
    return [Item(row[0], int(row[1]) if row[1] else None, row[2]) for row in rows if len(row) == 3]


def limits(queue: str) -> bool:
    """Return whether any constraint limits the jobs of a queue."""
    return queue.count(BETWEEN) > 1
