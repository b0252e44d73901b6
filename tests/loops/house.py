"""One daemon's loops over a fake store, an in-memory journal and a runner worked by hand; the clock may jump."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio

from jqd.domain.errors import JournalRefused
from jqd.domain.job import Held, Job, Wanted
from jqd.domain.lease import LeaseConfig
from jqd.domain.pauses import Paused
from jqd.domain.record import Lane
from jqd.domain.settings import SettingTable
from jqd.domain.tenant import any_of
from jqd.journal import Journal, JournalConfig, open_journal
from jqd.loops.claims import Claims
from jqd.loops.dispatch import Dispatch
from jqd.loops.heartbeat import Heartbeat
from jqd.loops.ingest import Ingest, LaneRules
from jqd.loops.membership import Membership
from jqd.loops.outcomes import OutcomesLoop
from jqd.loops.poison import PoisonGuard
from jqd.loops.reap import Reap
from jqd.rate_limits.constraints import Constraints
from jqd.recovery.recovery import Recovery
from jqd.runner import Offer, Pull, Stopped, Worker
from jqd.runner.departures import Departures
from jqd.scheduler import Scheduler
from jqd.store import Owner
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles


class TrioClock(ManualClock):
    """Time as the test's own clock tells it."""

    def wall_ms(self) -> int:
        return super().wall_ms() + round(trio.current_time() * 1000)

    def mono_s(self) -> float:
        return trio.current_time()


class HandRunner:
    """The runner's edge, by hand: offers what it is told, keeps what it is given."""

    def __init__(self) -> None:
        self.offers: dict[str, Offer] = {}
        self.lingers_s = float("inf")
        self.is_served = True
        self.paused = Paused(SettingTable())
        self.given: list[tuple[str, str, list[Held]]] = []
        self.stopped = Stopped([], [])
        self.out_of_hand_ids: list[str] = []
        self.stops = 0
        self.lost: list[str] = []
        self.cancelled: list[str] = []
        self.over: set[str] = set()  # of those in flight: the store has not heard of it
        self.take_note: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self._in_flight: dict[str, int] = {}
        self._bell = trio.Event()

    def wanted(self) -> list[Wanted]:
        return [
            Wanted(jobtype, one.worker.priority_min, one.worker.priority_max) for jobtype, one in self.offers.items()
        ]

    def linger_s(self) -> float:
        return self.lingers_s

    def offer(self, jobtype: str, priority: int, waiting: int | None = None) -> Offer | None:
        offer = self.offers.get(jobtype)
        return offer if offer and offer.worker.takes(jobtype, priority) else None

    def divide(self, offer: Offer, jobtype: str, held: Sequence[Held]) -> Mapping[str, Sequence[Held]]:
        return {offer.worker.id: held}

    def run_jobs(self, worker_id: str, jobtype: str, held: Sequence[Held], pull: Pull | None = None) -> None:
        self.given.append((worker_id, jobtype, list(held)))
        self._in_flight |= {one.job.id: one.fence for one in held}

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def is_working(self) -> bool:
        return bool(self._in_flight.keys() - self.over)

    async def wait_free(self) -> None:
        await trio.sleep_forever()

    def at_work(self, job_id: str) -> bool:
        return False

    def get_running_jobs(self) -> dict[str, int]:
        return dict(self._in_flight)

    def get_generations(self) -> dict[str, int]:
        return {}

    def stop(self, stopped: Stopped) -> None:
        self.stopped = stopped
        self._bell.set()

    async def wait_stopped(self) -> None:
        await self._bell.wait()

    def get_stopped_jobs(self, limit: int) -> Stopped:
        self._bell = trio.Event()
        stopped, self.stopped = self.stopped, Stopped([], [])
        return stopped

    def mark_durable(self) -> None:
        pass

    def ended(self, job_id: str) -> Any:
        is_over = job_id in self.over and job_id in self._in_flight
        return SimpleNamespace(job_id=job_id, fence=0) if is_over else None

    async def wait_durable(self, job_id: str, fence: int) -> None:
        await self.take_note()

    def refused(self, error: JournalRefused) -> None:
        pass

    def forget(self, claims: Iterable[tuple[str, int]]) -> None:
        for job_id, _ in claims:
            self.out_of_hand_ids.append(job_id)
            self._in_flight.pop(job_id, None)

    def stop_work(self) -> None:
        self.stops += 1

    def cancel(self, claims: Iterable[tuple[str, int]]) -> None:
        self.cancelled += [job_id for job_id, _ in claims]

    def drop_lost(self, job_ids: Iterable[str]) -> None:
        self.lost += job_ids


class House:
    """One daemon without its edge. `join` starts what keeps the seat; the tests start the rest as they need it."""

    def __init__(
        self, journal: Journal, store: FakeStore, clock: ManualClock, sysid: str = "d1", *, sole: bool = False
    ) -> None:
        source = random.Random(3)
        self.store, self.clock, self.journal = store, clock, journal
        self.runner, self.scheduler = HandRunner(), Scheduler()
        runner: Any = self.runner
        self.membership = Membership(sysid, LeaseConfig(), clock, sole=sole)
        self.reap = Reap(
            store=store, membership=self.membership, clock=clock, source=source, departures=Departures(clock)
        )
        self.renew = Heartbeat(
            store=store,
            membership=self.membership,
            clock=clock,
            source=source,
            stop_work=self.runner.stop_work,
            cancelled=self.runner.cancel,
            seen=self.reap.note_members,
        )
        self.started: list[str] = []
        self.claims = Claims(
            store=store,
            scheduler=self.scheduler,
            runner=runner,
            membership=self.membership,
            clock=clock,
            source=source,
            started=lambda worker, held: self.started.extend(h.job.id for h in held),
            constraints=Constraints(SettingTable()),
            outdated=lambda: None,
            rules_at=lambda: 0,
            refresh_settings=trio.lowlevel.checkpoint,
            barred=lambda: self.settle.reason,
        )
        self.dispatch = Dispatch([self.claims], self.scheduler, clock, PoisonGuard(clock))
        self.resting: set[str] = set()  # other daemons that start no jobs
        self.viewed = 0  # so often it was asked whether the store has heard how workers are seen here
        self.settle = OutcomesLoop(
            journal=journal,
            store=store,
            runner=runner,
            scheduler=self.scheduler,
            membership=self.membership,
            publish_view=self._publish_view,
            source=source,
        )
        settings: dict[Lane, LaneRules[Any]] = {
            Lane.JOBS: LaneRules(store.apply_jobs, lambda _: 100, lambda *_: None),
            Lane.OUTCOMES: LaneRules(
                store.apply_outcomes,
                lambda _: 100,
                lambda outcomes, _: self.runner.forget([(o.job_id, o.fence) for o in outcomes]),
            ),
            Lane.CANCELS: LaneRules(store.apply_cancels, lambda _: 100, lambda *_: None),
            Lane.CHANGES: LaneRules(store.apply_changes, lambda _: 100, lambda *_: None),
            Lane.RULES: LaneRules(store.apply_settings, lambda _: 100, lambda *_: None),
        }
        self.lanes: dict[Lane, Ingest[Any]] = {
            lane: Ingest(
                lane,
                setting,
                journal=journal,
                store=store,
                source=source,
                rolled_back=lambda: self.barrier.rolled_back(),
            )
            for lane, setting in settings.items()
        }
        self.barrier = Recovery(
            journal=journal,
            store=store,
            membership=self.membership,
            lanes=self.lanes,
            runner=runner,
            reap=self.reap,
            outcomes=self.settle,
            claims=self.claims.lock,
            source=source,
            starts=lambda sysid: sysid not in self.resting,
        )
        self._position = 0

    async def _publish_view(self) -> None:
        self.viewed += 1

    async def add(self, *jobs: Job) -> None:
        """Jobs that came in at another daemon, whose journal is not ours. It used the store first, if nobody did."""
        if not self._position:
            await self.store.another_client().look(fresh=True)
        await self.store.apply_jobs("ab" * 16, self._position, self._position + 1, jobs)
        self._position += 1

    async def wait_claimable(self) -> Owner:
        """Return the owner once it may claim."""
        await until(lambda: self.membership.not_ready_reason() is None)
        owner = self.membership.joined_as
        assert owner is not None
        return owner

    async def join(self, nursery: trio.Nursery) -> None:
        """Start the lanes and what takes and keeps the seat."""
        for loop in (*(lane.run for lane in self.lanes.values()), self.renew.run, self.renew.run_trust_check):
            await nursery.start(loop)
        await nursery.start(self.barrier.run)


@asynccontextmanager
async def house(*, sole: bool = False) -> AsyncIterator[House]:
    """A daemon with a new journal at a new store."""
    clock = TrioClock()
    config = JournalConfig(directory=Path("/journal"))
    async with open_journal(config, clock=clock, files=MemoryFiles()) as journal:
        yield House(journal, FakeStore(clock), clock, sole=sole)


def offer(jobs_max: int = 10, priority_min: int = -100, priority_max: int = 100, tenant: str = "") -> Offer:
    """Room for so many jobs, any of that tenant."""
    worker = Worker(
        name="w",
        id="w",
        max_jobs=9,
        priority_min=priority_min,
        priority_max=priority_max,
        jobs=(any_of(tenant),) if tenant else None,
        registered_at_ms=0,
    )
    return Offer(worker, jobs_max, 1 << 20)


async def until(holds: Callable[[], object]) -> None:
    """Let tasks and the test's clock go on until `holds()`. What takes minutes is not looked for each hundredth."""
    begun_s = trio.current_time()
    while not holds():
        await trio.sleep(max(0.01, (trio.current_time() - begun_s) / 100))
