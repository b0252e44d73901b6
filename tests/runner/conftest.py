"""A runner that runs, and the jobs to give it."""

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgpack
import msgspec
import pytest
import trio

from jqd.domain.backoff import Backoff
from jqd.domain.clock import Clock, SystemClock
from jqd.domain.job import Held, Job, Outcome
from jqd.runner import Capacity, Runner, RunnerConfig, Worker, WorkerRegistry, WorkerSpec, crash_isolation, make_pool
from jqd.runner.registry import KIND, body_of
from jqd.runner.worker import StyleName
from jqd.service.config import ServiceConfig
from jqd.service.outcome_checks import wrong

WAIT_S = 60.0  # no test waits longer for anything; none that passes comes near
_numbers = itertools.count(1)


def hold(
    count: int = 1, *, jobtype: str = "mail", attempt: int = 1, fence: int = 7, argument: Any = None, **fields: Any
) -> list[Held]:
    """`count` claimed jobs."""
    return [
        Held(
            Job(
                f"JOB{next(_numbers):08}",
                jobtype,
                msgpack.packb(argument),
                created_at_ms=1_700_000_000_000,
                **fields,
            ),
            fence,
            attempt,
        )
        for _ in range(count)
    ]


def ids(held: Sequence[Held]) -> list[str]:
    """Their ids."""
    return [each.job.id for each in held]


def claims(held: Sequence[Held]) -> list[tuple[str, int]]:
    """Their ids and fences."""
    return [(each.job.id, each.fence) for each in held]


@dataclass
class House:
    """A running runner, and what stopped in it so far."""

    runner: Runner
    workers: WorkerRegistry
    trusted: bool = True
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    returned: list[str] = field(default_factory=list)
    unsent: list[str] = field(default_factory=list)

    def register(self, url: str, *, style: StyleName = "native", peer: str | None = None, **fields: Any) -> Worker:
        """A worker that takes anything."""
        scopes, token = fields.pop("scopes", ()), fields.pop("token", "")
        card = WorkerSpec(**{"name": "w", "url": url, "max_jobs": 100, "style": style, **fields})
        worker = self.workers.register(card, peer=peer)
        if not scopes and not token:
            return worker
        worker, settings = msgspec.structs.replace(worker, scopes=scopes, token=token), self.workers.settings
        settings.take(settings.make({(KIND, worker.id): body_of(worker)}, now_ms=0, origin=1))
        return worker

    def run(self, held: Sequence[Held]) -> None:
        """Offer and run, as the dispatching loop does."""
        jobtype = held[0].job.jobtype
        offer = self.runner.offer(jobtype, held[0].job.priority)
        assert offer is not None, "no worker is free"
        assert len(held) <= offer.jobs_max, f"{len(held)} jobs, {offer.jobs_max} slots"
        self.runner.run_jobs(offer.worker.id, jobtype, held)

    async def stopped(self, count: int) -> None:
        """Until `count` jobs in all have stopped; more than that fails the test."""
        with trio.fail_after(WAIT_S):
            while len(self.outcomes) + len(self.returned) < count:
                await self.runner.wait_stopped()
                self.take()
        assert len(self.outcomes) + len(self.returned) == count

    def take(self) -> None:
        """What stopped, without waiting."""
        stopped = self.runner.get_stopped_jobs(10_000)
        for outcome in stopped.outcomes:
            assert outcome.job_id not in self.outcomes, f"{outcome.job_id} stopped twice"
            self.outcomes[outcome.job_id] = outcome
        self.returned += ids(stopped.returned)
        self.unsent += ids(stopped.unsent)

    async def run_to_end(self, held: Sequence[Held]) -> list[Outcome]:
        """Run them, wait for their outcomes; in the order of `held`. None may come back."""
        self.run(held)
        await self.stopped(len(self.outcomes) + len(self.returned) + len(held))
        assert not set(self.returned) & set(ids(held)), "some came back untried"
        return [self.outcomes[job_id] for job_id in ids(held)]

    async def run_out(self, held: Sequence[Held]) -> list[Outcome]:
        """Run them, and what comes back untried once more, as the loops do, until all have ended; in order."""
        waiting, begun = [*held], {each.job.id: each for each in held}
        with trio.fail_after(WAIT_S):
            while any(job_id not in self.outcomes for job_id in begun):
                offer = self.runner.offer(held[0].job.jobtype, held[0].job.priority) if waiting else None
                if offer is None:
                    with trio.move_on_after(0.005):  # a back-off ends without a bell
                        await self.runner.wait_stopped()
                else:
                    part, waiting = waiting[: offer.jobs_max], waiting[offer.jobs_max :]
                    self.runner.run_jobs(offer.worker.id, held[0].job.jobtype, part)
                self.take()
                for job_id in [job_id for job_id in self.returned if job_id in begun]:
                    self.returned.remove(job_id)
                    self.runner.forget([(job_id, begun[job_id].fence)])
                    begun[job_id] = msgspec.structs.replace(begun[job_id], fence=begun[job_id].fence + 1)
                    waiting.append(begun[job_id])
        return [self.outcomes[job_id] for job_id in begun]

    async def wait_free(self) -> None:
        """Until the runner says that a worker has room."""
        with trio.fail_after(WAIT_S):
            await self.runner.wait_free()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of this process break at once."""
    monkeypatch.setattr(crash_isolation, "SETTLE_S", 0.005)


OpenHouse = Callable[..., Any]


@asynccontextmanager
async def _open_house(*, clock: Clock | None = None, **config: Any) -> AsyncIterator[House]:
    settings = {
        "timeout_margin_s": 0.05,
        "tick_s": 0.01,
        "connect_timeout_s": 2.0,
        "linger_s": 0.1,
        "backoff_first_s": 0.05,
        "backoff_cap_s": 0.2,
    }
    clock = clock or SystemClock()
    workers = WorkerRegistry(None, clock=clock)
    house: House
    limits = RunnerConfig(**{**settings, **config})
    source = random.Random(1)
    capacity = Capacity(limits, workers, source, clock)
    pool = make_pool(limits, capacity.connections.most)
    runner = Runner(
        limits,
        workers=workers,
        clock=clock,
        source=source,
        trusts=lambda: house.trusted,
        backoff=Backoff(first_s=1.0, jitter=0.0),
        daemon="DAEMON",
        pool=pool,
        capacity=capacity,
        wrong=partial(wrong, ServiceConfig(), workers.why_no_callback),
    )
    house = House(runner, workers)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(runner.run)
            yield house
            house.take()
            nursery.cancel_scope.cancel()
    finally:
        pool.close()


@pytest.fixture(name="open_house")
def _fixture() -> OpenHouse:
    return _open_house


Eventually = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture(name="eventually")
def _eventually() -> Eventually:
    async def wait(condition: Callable[[], bool]) -> None:
        """For state that is reached by itself and rings no bell; bounded."""
        with trio.fail_after(WAIT_S):
            while not condition():
                await trio.sleep(0.005)

    return wait
