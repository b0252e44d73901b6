"""The waiting polls of workers that pull. A poll ends when the worker got jobs, or when its time is over.

    open ──claim──▶ promised ──jobs came──▶ on their way ──the store knows──▶ settled, with the jobs of one claim
      ▲                │ none came
      └────────────────┘

Polls are offered like free slots of workers that batches are posted to, so the dispatcher treats both alike. A poll is
promised to one claim at a time, so of a thousand idle polls each batch wakes only one.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import trio

from jqd.domain.job import Held
from jqd.runner.demand import Demand
from jqd.runner.worker import Worker, takes_type

Key = TypeVar("Key")
Kind = tuple[tuple[str, ...] | None, int, int]
"""What a poll takes: jobtypes (None: any), and the lowest and highest priority."""


@dataclass(slots=True, eq=False)
class Pull:
    worker: Worker
    jobs_max: int
    """The most jobs that this poll takes."""
    heartbeat_s: float | None
    """For how many seconds the worker may be silent about the jobs it gets; None: the heartbeat that it registered."""
    number: int
    """Consecutive number of the poll: a lower one has waited longer."""
    warm: tuple[str, ...] = ()
    """Jobtypes that the worker can start soonest, preferred for it."""
    is_promised: bool = False
    """Whether jobs are being claimed for it, are being handed over to it, or were."""
    is_over: bool = False
    given: list[Held] = field(default_factory=list)
    """Jobs of one claim that the store knows to be held by the worker."""
    silence_s: int = 0
    """For how many seconds the worker may be silent about its jobs."""
    handed_s: float = math.inf
    """When handing over its jobs began, by `Clock.boot_s`. The worker's silence is measured from then."""
    _coming: dict[str, Held] = field(default_factory=dict)
    _closes: bool = False
    _begun: trio.Event = field(default_factory=trio.Event)
    _settled: trio.Event = field(default_factory=trio.Event)

    @property
    def is_open(self) -> bool:
        return not (self.is_promised or self._closes)

    def close(self) -> None:
        """Have no more jobs claimed for this poll. It ends at once, or as soon as the claim under way has ended."""
        self._closes = True
        if not self.is_promised:
            self._settle()

    @contextmanager
    def promised(self) -> Iterator[None]:
        self.is_promised = True
        try:
            yield
        finally:
            self.is_promised = bool(self._coming) or self._settled.is_set()
            if self._closes and not self.is_promised:
                self._settle()

    def bring(self, held: Sequence[Held]) -> None:
        """Note that these jobs are being handed over to the worker that polls. The caller then calls `arrived` or
        `failed` for each job."""
        self._coming = {each.job.id: each for each in held}

    def arrived(self, job_id: str) -> bool:
        """Note that the store knows of the hand-over of this job. Returns False if the poll has ended meanwhile."""
        held = self._coming.pop(job_id)
        if not self.is_over:
            if not self.given:
                self._begun.set()
            self.given.append(held)
            if not self._coming:
                self._settle()
        return not self.is_over

    def failed(self, job_id: str) -> None:
        del self._coming[job_id]
        if not self._coming:
            self._settle()

    async def wait_first(self) -> None:
        await self._begun.wait()

    async def wait(self) -> None:
        """Wait until the hand-over of each job has succeeded or failed, or until the poll is closed without jobs."""
        await self._settled.wait()

    def _settle(self) -> None:
        self._begun.set()
        self._settled.set()


class Offer(NamedTuple):
    """The worker chosen for a job, and how many jobs and bytes it takes now."""

    worker: Worker
    jobs_max: int
    bytes_max: int
    pull: Pull | None = None
    """The waiting poll of that worker which gets the jobs; None: they are posted to its URL."""
    other: tuple[Worker, int] | None = None
    """The other version of the same handler, which gets jobs only by random draw, and the most jobs that it takes."""

    def promised(self) -> AbstractContextManager[None]:
        return self.pull.promised() if self.pull else nullcontext()


class Pulls:
    def __init__(self, arrived: Callable[[], None] = lambda: None) -> None:
        """`arrived`: called when a poll begins to wait."""
        self._arrived = arrived
        self._kinds: dict[Kind, dict[Pull, None]] = {}
        self._warm: dict[str, dict[Pull, None]] = {}  # by jobtype
        self._number = 0
        self.is_closed = False
        """Whether the daemon shuts down, so that no poll waits."""

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    @contextmanager
    def waiting(
        self, worker: Worker, jobs_max: int, heartbeat_s: float | None = None, warm: Sequence[str] = ()
    ) -> Iterator[Pull]:
        self._number += 1
        most = max(worker.max_jobs, worker.batch or 0)  # as for a worker with a URL: quick jobs wait there
        pull = Pull(worker, min(jobs_max, most), heartbeat_s, self._number, tuple(warm))
        if self.is_closed:
            pull.close()
        kind = worker.jobs, worker.priority_min, worker.priority_max
        self._kinds.setdefault(kind, {})[pull] = None
        for jobtype in pull.warm:
            self._warm.setdefault(jobtype, {})[pull] = None
        self._arrived()
        try:
            yield pull
        finally:
            pull.is_over = True
            _drop(self._kinds, kind, pull)
            for jobtype in dict.fromkeys(pull.warm):
                _drop(self._warm, jobtype, pull)

    def close(self) -> None:
        self.is_closed = True
        for pulls in self._kinds.values():
            for pull in pulls:
                pull.close()

    def wish(self, demand: Demand) -> None:
        """Add to `demand` what the waiting polls take. Polls that take the same jobtypes and priorities count once."""
        for (jobs, low, high), pulls in self._kinds.items():
            first = _first(pulls)
            if first is None:
                continue
            if first.worker.takes_any:
                demand.any_type((low, high), frozenset(), first.worker.tenant)
                continue
            for jobtype in jobs or ():
                demand.named(jobtype, (low, high))

    def best(self, jobtype: str, priority: int) -> Pull | None:
        """Return the waiting poll that is to get a job of this type and priority: one with the jobtype in `warm`, else
        the poll that has waited longest; None: no poll takes the job."""
        for pull in self._warm.get(jobtype, ()):
            if pull.is_open and pull.worker.takes(jobtype, priority):
                return pull
        firsts = (
            _first(pulls)
            for (jobs, low, high), pulls in self._kinds.items()
            if low <= priority <= high and takes_type(jobs, jobtype)
        )
        return min(filter(None, firsts), key=lambda pull: pull.number, default=None)


def _drop(pulls: dict[Key, dict[Pull, None]], key: Key, pull: Pull) -> None:
    del pulls[key][pull]
    if not pulls[key]:
        del pulls[key]


def _first(pulls: Iterable[Pull]) -> Pull | None:
    """Return the first poll that no claim is under way for, or None. Few are skipped, about one per partition."""
    return next((pull for pull in pulls if pull.is_open), None)
