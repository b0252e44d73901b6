"""What all partitions of a daemon use together: its journal, workers and scheduler, and calls to its other parts."""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from jqd.chaining.flows import Release
from jqd.chaining.outbox import Push
from jqd.config import Config
from jqd.domain.brought import FollowerOptions
from jqd.domain.clock import Clock
from jqd.domain.job import Job
from jqd.domain.joblog import JobLog
from jqd.journal import Journal
from jqd.metrics.meter import Meter
from jqd.rate_limits.constraints import Constraints
from jqd.runner import Capacity, Pool, WorkerRegistry, WorkerViews
from jqd.scheduler import Scheduler
from jqd.store import Store


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The parts of a daemon that all its partitions use."""

    config: Config
    journal: Journal
    clock: Clock
    """Its wall time is the store's."""
    source: random.Random
    scheduler: Scheduler
    workers: WorkerRegistry
    capacity: Capacity
    worker_views: WorkerViews
    pool: Pool
    constraints: Constraints
    joblog: JobLog
    meter: Meter
    partitions: int
    wrong: Callable[[bytes, Sequence[str]], str]
    """Checks jobs that are to follow others: what is wrong with them, or ""; with the scopes that bind them."""
    options: FollowerOptions
    stores: Sequence[Store]
    """The stores of all partitions, in order."""
    push: Push
    """Pushes jobs that follow others, of entries of an outbox."""
    release: Release
    followed: Callable[[Sequence[Job]], None]
    """Counts and logs jobs that came with the success that they follow."""
    settled: Callable[[Collection[int]], bool]
    wake: Callable[[Iterable[str]], None]
    """Wakes who waits for these jobs."""
