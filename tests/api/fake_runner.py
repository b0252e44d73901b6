"""Small stand-ins for who runs jobs, and for who tells how the daemon stands."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from jqd.domain.backoff import Backoff
from jqd.domain.errors import JournalRefused, Overloaded
from jqd.domain.job import Held, Outcome
from jqd.domain.joblog import Row
from jqd.domain.lease import Peer
from jqd.domain.record import Lane
from jqd.runner import Report, Running, WorkerHealth
from jqd.runner.departures import Gone, Kind
from jqd.runner.lease_handover import Given
from jqd.runner.outcome import end_attempt, succeed_late
from jqd.runner.worker_health import WELL
from jqd.service import JobSpec
from tests.api.fakes import FakeJournal


class FakeRunner:
    """What is at work, and the reports it was told."""

    is_working = True

    def __init__(self) -> None:
        self.at_work: dict[str, Running] = {}
        self.reports: list[tuple[str, str, Report]] = []
        self.knows = True
        self.untold: dict[str, Outcome] = {}
        self.unnoted: JournalRefused | None = None
        self.lost: list[tuple[str, int]] = []
        self.given: dict[tuple[str, int], Given] = {}

    def of(self, job_id: str) -> FakeRunner:
        return self

    def ended(self, job_id: str) -> Outcome | None:
        return self.untold.get(job_id)

    def end(self, held: Held, report: Report, worker_id: str) -> Outcome:
        return end_attempt(
            held,
            report,
            backoff=Backoff(jitter=0.0),
            source=random.Random(1),
            worker=worker_id,
            started_at_ms=1,
            finished_at_ms=5,
            result_bytes_max=10,
            wrong=lambda _: "",
        )

    def release_undelivered(self, claims: Iterable[tuple[str, int]], *, maybe_delivered: bool = False) -> None:
        self.lost += claims

    def succeed_late(self, attempt: Outcome, report: Report, then: bytes, trace: str = "") -> Outcome | None:
        return succeed_late(attempt, report, then=then, trace=trace, finished_at_ms=5, result_bytes_max=10)

    def running(self, job_id: str) -> Running | None:
        return self.at_work.get(job_id)

    async def wait_durable(self, job_id: str, fence: int) -> None:
        await trio.lowlevel.checkpoint()
        if self.unnoted is not None:
            raise self.unnoted

    def done(self, job_id: str, report: Report, *, fence: int = 0, worker_id: str = "") -> bool:
        self.reports.append((worker_id, job_id, report))
        return self.knows


class FakeControl:
    """Ready unless told; `apply` plays the ingest of a lane."""

    def __init__(self, journal: FakeJournal) -> None:
        self.not_pushing: str | None = None
        self.not_running: str | None = None
        self.pressure: Overloaded | None = None
        self.applies = True
        self.calm = True
        self.warned: list[str] = []
        self.peers: list[Peer] = []
        self.names = ["fake"]
        self.left: list[Gone] = []
        self.views: dict[str, WorkerHealth] = {}
        self.held: dict[str, int | None] = {}
        self.acknowledged: list[tuple[Sequence[str], Sequence[JobSpec]]] = []
        self.on_apply: dict[Lane, Any] = {}
        self.ears: list[Callable[[Sequence[Row]], None]] = []
        self.shelves: Counter[str] = Counter()
        self._journal = journal

    def push_ready(self) -> str | None:
        return self.not_pushing or self._journal.refusing

    def pressed(self) -> Overloaded | None:
        return self.pressure

    def run_ready(self) -> str | None:
        return self.not_running

    def warnings(self) -> Sequence[str]:
        return self.warned

    def waiting_parents(self, tenant: str) -> int:
        return self.shelves[tenant]

    def waits_for_quota(self, tenant: str) -> bool:
        return self.shelves[tenant] > 0

    def quota_wait_warning(self, tenant: str) -> str | None:
        return (
            f"what follows {self.waiting_parents(tenant)} jobs of {tenant} waits"
            if self.waits_for_quota(tenant)
            else None
        )

    def settled(self, where: Collection[int]) -> bool:
        return self.calm

    def daemons(self) -> Sequence[Peer]:
        return self.peers

    def gone(self, kind: Kind) -> Sequence[Gone]:
        return [each for each in self.left if each.row.kind == kind]

    def sharers(self) -> list[str]:
        return self.names

    def urls(self, peer: str | None, *, absent: bool = False) -> list[str]:
        return ["http://127.0.0.1:7420"]

    def posted(self, worker_id: str) -> int:
        return 0

    def seen(self, worker_id: str) -> Mapping[str, WorkerHealth]:
        return {"fake": self.views.get(worker_id, WELL)}

    async def in_flight(self, sysid: str) -> int | None:
        await trio.lowlevel.checkpoint()
        return self.held.get(sysid, 0)

    def stats(self) -> Mapping[str, object]:
        return {"daemon": "fake", "uptime_s": 1.5}

    async def wait_caught_up(self, lane: Lane, position: int, timeout_s: float, where: Collection[int]) -> bool:
        await trio.lowlevel.checkpoint()
        if self.applies:
            self._journal.read_points[lane] = position
            if lane in self.on_apply:
                self.on_apply[lane]()
        return self.applies

    async def wait_ingested(self, timeout_s: float) -> bool:
        return await self.wait_caught_up(Lane.JOBS, self._journal.end, timeout_s, ())

    @contextmanager
    def listening(self, listener: Callable[[Sequence[Row]], None]) -> Iterator[None]:
        self.ears.append(listener)
        try:
            yield
        finally:
            self.ears.remove(listener)

    def entered(self, job_ids: Sequence[str], jobs: Sequence[JobSpec], tenant: str = "") -> None:
        self.acknowledged.append((job_ids, jobs))
