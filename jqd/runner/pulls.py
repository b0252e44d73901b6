"""Workers that pull: each poll waits here until its worker holds a batch by itself, or its time is over.

    open ──claim──▶ promised ──jobs came──▶ on their way ──the store knows──▶ settled, with the jobs of one claim
      ▲                │ none came
      └────────────────┘

Polls are offered like free slots of workers that batches are posted to, so one choice serves both. A poll is promised
to one claim at a time, so of a thousand idle polls each batch wakes one.
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
"""What a worker takes: jobtypes, and from which priority to which."""


@dataclass(slots=True, eq=False)
class Pull:
    worker: Worker
    jobs_max: int
    """The most jobs that it takes."""
    heartbeat_s: float | None
    """For how many seconds the worker may be silent about the jobs it gets; None: as it registered."""
    number: int
    """Number of the poll in order of arrival."""
    warm: tuple[str, ...] = ()
    """Jobtypes that its worker would run soonest."""
    is_promised: bool = False
    """Whether jobs are being claimed for it, or are on their way to it, or came."""
    is_over: bool = False
    given: list[Held] = field(default_factory=list)
    """Jobs of one claim that its worker holds, as the store knows."""
    silence_s: int = 0
    """For how long the worker may be silent about its jobs."""
    handed_s: float = math.inf
    """When the hand-over of its jobs began, by `Clock.boot_s`: the worker's silence counts from then."""
    _coming: dict[str, Held] = field(default_factory=dict)
    _closes: bool = False
    _begun: trio.Event = field(default_factory=trio.Event)
    _settled: trio.Event = field(default_factory=trio.Event)

    @property
    def is_open(self) -> bool:
        return not (self.is_promised or self._closes)

    def close(self) -> None:
        """Claim no more jobs for this poll; a claim under way is waited for."""
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
        """Note the jobs that are being handed over; `arrived` or `failed` follows for each."""
        self._coming = {each.job.id: each for each in held}

    def arrived(self, job_id: str) -> bool:
        """Note that the store knows the hand-over of this job. Returns False when the poll is over."""
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
        """Wait until each job that was being handed over has arrived or failed, or until closed without any."""
        await self._settled.wait()

    def _settle(self) -> None:
        self._begun.set()
        self._settled.set()


class Offer(NamedTuple):
    """The best free worker for a job, and how much it takes now."""

    worker: Worker
    jobs_max: int
    bytes_max: int
    pull: Pull | None = None
    """The poll of that worker that waits for them; None: they are posted."""
    other: tuple[Worker, int] | None = None
    """The other version of its handler, which takes what is drawn for it, and how many jobs it has room for."""

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
        """Whether the daemon shuts down: then no poll waits."""

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
        """Add what all waiting polls take to `demand`: one step for each kind, however many polls wait."""
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
        """Return the poll that takes such a job and has waited longest; those that are warm for it go first."""
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
    """Return the first poll that no claim is under way for. A few polls are passed over: about one per partition."""
    return next((pull for pull in pulls if pull.is_open), None)
