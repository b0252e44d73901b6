"""What all partitions of a daemon share: its journal, workers and scheduler, and functions of its other parts."""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from jqd.chaining.flows import Release
from jqd.chaining.outbox import Push
from jqd.config import Config
from jqd.domain.clock import Clock
from jqd.domain.job import Job
from jqd.domain.joblog import JobLog
from jqd.domain.outcome_followers import FollowerOptions
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
    """Its wall time follows the store's clock."""
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
    """Takes jobs, encoded, that are to follow another one, and the scopes of their token. Returns what is wrong with
    them, or ""."""
    options: FollowerOptions
    stores: Sequence[Store]
    """The stores of all partitions, in order."""
    push: Push
    """Pushes jobs that follow others, from the entries of an outbox."""
    release: Release
    """Releases jobs that waited for others."""
    followed: Callable[[Sequence[Job]], None]
    """Counts and logs jobs that arrived together with the success of the job that they follow."""
    settled: Callable[[Collection[int]], bool]
    wake: Callable[[Iterable[str]], None]
    """Wakes the requests that wait for these jobs."""
