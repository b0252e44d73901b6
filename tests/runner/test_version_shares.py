"""Versions of a handler get their shares of the jobs, however many wait and whoever is busy."""

import random
from collections import Counter

import msgspec
import pytest

from jqd.domain.backoff import Backoff
from jqd.domain.job import Held
from jqd.runner import Capacity, Report, Runner, RunnerConfig, WorkerRegistry, make_pool
from jqd.runner.circuit_breaker import CircuitBreaker
from jqd.runner.handler import Handler, HandlerOptions, Version
from jqd.runner.registry import HANDLER
from jqd.testing.clock import ManualClock
from tests.runner.conftest import claims, hold

OLD, CANARY = "mail@1", "mail@2"


class Desk:
    """A runner that posts nothing: how it ends is said by the test."""

    def __init__(self, *options: HandlerOptions) -> None:
        clock, source, config = ManualClock(wall_ms=1_000_000), random.Random(1), RunnerConfig()
        self.clock = clock
        self.workers = WorkerRegistry(None, clock=clock)
        self.gates = Capacity(config, self.workers, source, clock)
        self.runner = Runner(
            config,
            workers=self.workers,
            clock=clock,
            source=source,
            trusts=lambda: True,
            backoff=Backoff(first_s=1.0, cap_s=60.0),
            daemon="d",
            pool=make_pool(config, connections_max=4),
            gates=self.gates,
        )
        self.given: Counter[str] = Counter()
        self.at_work: dict[str, list[Held]] = {OLD: [], CANARY: []}
        self.put(*(options or (HandlerOptions(), HandlerOptions(weight=10))))

    def put(self, *options: HandlerOptions) -> None:
        versions = tuple(
            Version(lang="http", body=f"http://127.0.0.1:80{n}/hook", number=n, set_at_ms=n, options=said)
            for n, said in enumerate(options, 1)
        )
        body = msgspec.msgpack.encode(Handler(len(versions), versions))
        settings = self.workers.settings
        settings.take(settings.make({(HANDLER, "mail"): body}, now_ms=1, origin=0))

    def push(self, count: int, *, priority: int = 0) -> int:
        """Give out so many, as far as somebody takes them. Returns how many wait on."""
        while count and (offer := self.runner.offer("mail", priority)) is not None:
            held = hold(min(count, offer.jobs_max), priority=priority)
            self.runner.run_jobs(offer.worker.id, "mail", held)
            self.given[offer.worker.id] += len(held)
            self.at_work[offer.worker.id] += held
            count -= len(held)
        return count

    def end(self, worker_id: str) -> None:
        """All its jobs succeed."""
        held, self.at_work[worker_id] = self.at_work[worker_id], []
        for each in held:
            delivery = self.runner._shared.deliveries[each.job.id]
            delivery.report(each.job.id, Report())
        self.runner.get_stopped_jobs(len(held))
        self.runner.forget(claims(held))

    def gate(self, worker_id: str) -> CircuitBreaker:
        worker = self.workers.get(worker_id)
        assert worker is not None
        return self.gates.gate(worker)


@pytest.mark.parametrize("at_once", [1, 7, 200, 1000])
async def test_a_canary_gets_its_share_however_many_jobs_come_at_once(at_once: int) -> None:
    services = Desk()
    for _ in range(1000 // at_once):
        waiting = services.push(at_once)
        while waiting or any(services.at_work.values()):
            services.end(CANARY)  # it is the quicker one
            waiting = services.push(waiting)
            services.end(OLD)
            waiting = services.push(waiting)
    assert abs(services.given[CANARY] - 100) <= 16, f"{services.given}: a batch more or less"


async def test_while_the_old_one_is_full_or_backed_off_the_canary_waits() -> None:
    services = Desk()
    waiting = services.push(200)
    assert services.given == {OLD: 16, CANARY: 16}
    services.end(CANARY)
    assert services.push(waiting) == waiting
    services.end(OLD)
    now_s = services.clock.mono_s()
    services.gate(OLD).unreachable(now_s, now_s)
    assert services.push(waiting) == waiting
    services.clock.advance(60)
    assert services.push(1) == 0
    assert services.given[OLD] == 17


async def test_a_canary_that_is_slow_or_backed_off_stops_nobody_and_is_owed_little() -> None:
    services = Desk()
    for _ in range(100):
        assert services.push(16) == 0
        services.end(OLD)
    assert services.given[CANARY] == 16, "all its slots are taken"
    services.end(CANARY)
    now_s = services.clock.mono_s()
    services.gate(CANARY).back_off(now_s, now_s)
    services.given.clear()
    for _ in range(100):
        assert services.push(16) == 0
        services.end(OLD)
    assert services.given == {OLD: 1600}
    services.clock.advance(60)
    services.gate(CANARY).answered(services.clock.mono_s())
    for _ in range(10):
        services.push(16)
        services.end(OLD)
        services.end(CANARY)
    assert services.given[CANARY] <= 2 * 16 + 1, "what it missed is not made up for"


async def test_who_alone_takes_jobs_of_a_priority_or_is_alone_need_not_wait() -> None:
    services = Desk(HandlerOptions(priority_max=5), HandlerOptions(weight=10))
    assert services.push(40) == 8
    services.end(CANARY)
    assert (services.push(10, priority=9), services.given[CANARY]) == (0, 26)
    services.end(CANARY)
    assert services.workers.unregister(OLD, "it answered 410")
    assert (services.push(16), services.given[CANARY]) == (0, 42)


async def test_of_three_versions_each_gets_its_share() -> None:
    services = Desk(HandlerOptions(), HandlerOptions(weight=40), HandlerOptions(weight=10))
    services.at_work["mail@3"] = []
    waiting = 1000
    while waiting:
        waiting = services.push(waiting)
        for worker_id in services.at_work:
            services.end(worker_id)
    for worker_id, jobs in ((OLD, 540), (CANARY, 360), ("mail@3", 100)):
        assert abs(services.given[worker_id] - jobs) <= 12, services.given


async def test_versions_that_leave_in_one_moment_are_all_taken_out_for_good() -> None:
    services = Desk(HandlerOptions(), HandlerOptions(weight=40), HandlerOptions(weight=10))
    for worker_id in (OLD, CANARY):
        assert services.workers.unregister(worker_id, "it answered 410")
    settings = services.workers.settings
    settings.take(settings.make(services.workers.farewells(), now_ms=2, origin=0))
    assert [worker.id for worker in services.workers.list()] == ["mail@3"]
    handler = services.workers.handler("mail")
    assert handler is not None
    assert [version.out for version in handler.versions] == ["it answered 410", "it answered 410", ""]
    assert services.workers.farewells() == {}
