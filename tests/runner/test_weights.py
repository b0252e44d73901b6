"""Two versions of a handler: the newer takes its `weight` of a hundred requests, whoever is busy, and nobody counts."""

import random
from collections import Counter

import msgspec
import pytest

from jqd.domain.backoff import Backoff
from jqd.domain.job import Held
from jqd.runner import Capacity, Report, Runner, RunnerConfig, WorkerRegistry, make_pool
from jqd.runner.circuit_breaker import CircuitBreaker
from jqd.runner.handler import Handler, StoredOptions, Version
from jqd.runner.registry import HANDLER
from jqd.testing.clock import ManualClock
from tests.runner.conftest import claims, hold

OLD, NEW = "mail@1", "mail@2"
JOBS = 2_000
OFF_MAX = 70  # five standard deviations of 10 percent of these jobs


class Desk:
    """A runner that posts nothing: how it ends is said by the test."""

    def __init__(self, *options: StoredOptions) -> None:
        clock, source, config = ManualClock(wall_ms=1_000_000), random.Random(1), RunnerConfig()
        self.clock = clock
        self.workers = WorkerRegistry(None, clock=clock)
        self.capacity = Capacity(config, self.workers, source, clock)
        self.runner = Runner(
            config,
            workers=self.workers,
            clock=clock,
            source=source,
            trusts=lambda: True,
            backoff=Backoff(first_s=1.0, cap_s=60.0),
            daemon="d",
            pool=make_pool(config, connections_max=4),
            capacity=self.capacity,
        )
        self.given: Counter[str] = Counter()
        self.at_work: dict[str, list[Held]] = {}
        versions = tuple(
            Version(lang="http", body=f"http://127.0.0.1:80{n}/hook", number=n, set_at_ms=n, options=said)
            for n, said in enumerate(options or (StoredOptions(), StoredOptions(weight=10)), 1)
        )
        body = msgspec.msgpack.encode(Handler(len(versions), versions))
        settings = self.workers.settings
        settings.take(settings.make({(HANDLER, "mail"): body}, now_ms=1, origin=0))

    def push(self, count: int, *, priority: int = 0) -> int:
        """Give out so many, as far as somebody takes them. Returns how many wait on."""
        while count and (offer := self.runner.offer("mail", priority)) is not None:
            held = hold(min(count, offer.jobs_max), priority=priority)
            for worker_id, part in self.runner.divide(offer, "mail", held).items():
                self.runner.run_jobs(worker_id, "mail", part)
                self.given[worker_id] += len(part)
                self.at_work.setdefault(worker_id, []).extend(part)
            count -= len(held)
        return count

    def end(self, worker_id: str) -> None:
        """All its jobs succeed."""
        held = self.at_work.pop(worker_id, [])
        for each in held:
            self.runner._shared.deliveries[each.job.id].report(each.job.id, Report())
        self.runner.get_stopped_jobs(len(held))
        self.runner.forget(claims(held))

    def breaker(self, worker_id: str) -> CircuitBreaker:
        worker = self.workers.get(worker_id)
        assert worker is not None
        return self.capacity.breaker(worker)


@pytest.mark.parametrize("at_once", [1, 7, 200, JOBS])
async def test_a_newer_version_gets_its_weight_however_many_jobs_come_at_once(at_once: int) -> None:
    desk = Desk()
    for _ in range(JOBS // at_once):
        waiting = desk.push(at_once)
        while waiting or desk.at_work:
            desk.end(NEW)  # it is the quicker one
            desk.end(OLD)
            waiting = desk.push(waiting)
    assert abs(desk.given[NEW] - JOBS // at_once * at_once // 10) <= OFF_MAX, desk.given


@pytest.mark.parametrize("weight", [10, 40, 90])
@pytest.mark.parametrize("at_once", [20, 200, 20_000])
async def test_a_weight_holds_for_versions_that_take_large_batches(at_once: int, weight: int) -> None:
    """One that had no room for a whole request got none; so its speed was never known, nor its window ever wider."""
    options = StoredOptions(style="native", batch=500)
    desk = Desk(options, msgspec.structs.replace(options, weight=weight))
    for _ in range(20_000 // at_once):
        waiting = desk.push(at_once)
        while waiting or desk.at_work:
            desk.clock.advance(0.02)
            desk.end(NEW)
            desk.end(OLD)
            waiting = desk.push(waiting)
    assert abs(desk.given[NEW] / 20_000 - weight / 100) < 0.05, desk.given


async def test_all_or_nothing_where_the_weight_says_so() -> None:
    for weight, taker in ((100, NEW), (0, OLD)):
        desk = Desk(StoredOptions(weight=1), StoredOptions(weight=weight))
        while desk.push(1) == 0:
            pass
        assert set(desk.given) == {taker}


async def test_only_the_version_before_takes_what_the_newest_leaves() -> None:
    desk = Desk(StoredOptions(), StoredOptions(weight=1), StoredOptions(weight=50))
    for _ in range(JOBS):
        desk.push(1)
        for worker_id in [*desk.at_work]:
            desk.end(worker_id)
    assert desk.given.keys() == {"mail@2", "mail@3"}


async def test_a_newer_version_takes_no_more_while_the_older_is_full_and_the_older_what_it_has_no_room_for() -> None:
    desk = Desk()
    for _ in range(40):
        desk.push(1)
    assert desk.given[OLD] == 16
    assert desk.given[NEW] <= 10
    desk.end(OLD)
    desk.end(NEW)
    desk = Desk()
    for _ in range(JOBS):
        desk.push(1)
        desk.end(OLD)
    assert desk.given[NEW] == 16
    assert desk.given[OLD] >= JOBS - 16 - OFF_MAX


@pytest.mark.parametrize(("gone", "left"), [(OLD, NEW), (NEW, OLD)])
async def test_neither_waits_for_one_that_is_backed_off_or_has_left(gone: str, left: str) -> None:
    desk = Desk()
    now_s = desk.clock.mono_s()
    desk.breaker(gone).back_off(now_s, now_s)
    assert (desk.push(16), desk.given) == (0, {left: 16})
    desk.end(left)
    assert desk.workers.unregister(gone, "it answered 410")
    said = desk.workers.farewells()
    desk.workers.settings.take(desk.workers.settings.make(said, now_ms=2, origin=0))
    assert (desk.push(16), desk.given) == (0, {left: 32})


async def test_who_alone_takes_jobs_of_a_priority_takes_them_all() -> None:
    desk = Desk(StoredOptions(priority_max=5), StoredOptions(weight=10))
    assert (desk.push(16, priority=9), desk.given) == (0, {NEW: 16})


# ------------------------------------------------ one of them is not well

AFTER_S = 60.0  # longer than any pause


def back_off(desk: Desk, worker_id: str, *, hung: bool = False, elsewhere: bool = False) -> None:
    """Its pause is over: from now on it is probed."""
    now_s, breaker = desk.clock.mono_s(), desk.breaker(worker_id)
    if elsewhere:
        breaker.pause(now_s + AFTER_S / 2)
    else:
        breaker.back_off(now_s, now_s, hung=hung)
    desk.clock.advance(AFTER_S)


def wants(desk: Desk) -> bool:
    return "mail" in {each.jobtype for each in desk.runner.wanted()}


async def probe(desk: Desk, worker_id: str) -> None:
    """Until it has its probe; the other one takes what comes in between."""
    for _ in range(1_000):
        if worker_id in desk.at_work:
            break
        assert desk.push(1) == 0
        for other in desk.at_work.keys() - {worker_id}:
            desk.end(other)
    assert len(desk.at_work[worker_id]) == 1


@pytest.mark.parametrize(("weight", "ill", "well"), [(90, NEW, OLD), (10, OLD, NEW), (90, OLD, NEW), (10, NEW, OLD)])
@pytest.mark.parametrize("how", [{"hung": True}, {}, {"elsewhere": True}], ids=["hung", "backed off", "elsewhere"])
async def test_while_one_is_probed_the_other_takes_all(weight: int, ill: str, well: str, how: dict[str, bool]) -> None:
    """The one with the larger share kept all jobs waiting until its probe ended, be it for an hour."""
    desk = Desk(StoredOptions(), StoredOptions(weight=weight))
    back_off(desk, ill, **how)
    await probe(desk, ill)
    for _ in range(3):
        assert wants(desk)
        assert desk.push(16) == 0
        assert (len(desk.at_work[well]), len(desk.at_work[ill])) == (16, 1)
        desk.end(well)
    sent_at_s = desk.clock.mono_s()
    desk.end(ill)
    desk.breaker(ill).answered(sent_at_s)
    desk.given.clear()
    for _ in range(200):
        desk.push(1)
        desk.end(OLD)
        desk.end(NEW)
    assert abs(desk.given[NEW] / 200 - weight / 100) < 0.1, "it is well"


async def test_of_two_that_are_not_well_each_is_probed() -> None:
    desk = Desk(StoredOptions(), StoredOptions(weight=90))
    back_off(desk, OLD, hung=True)
    back_off(desk, NEW, hung=True)
    assert wants(desk)
    assert (desk.push(3), desk.given) == (1, {OLD: 1, NEW: 1})
    assert not wants(desk)


async def test_who_is_full_with_long_jobs_does_not_put_off_the_others_probe() -> None:
    desk = Desk(StoredOptions(), StoredOptions(weight=90))
    now_s = desk.clock.mono_s()
    desk.breaker(NEW).back_off(now_s, now_s)
    assert desk.push(20) == 4
    assert not wants(desk)
    desk.clock.advance(AFTER_S)
    assert wants(desk)
    assert (desk.push(4), desk.given) == (3, {OLD: 16, NEW: 1})


@pytest.mark.parametrize("kept", [OLD, NEW])
async def test_while_a_suspect_has_one_to_itself_the_other_takes_all(
    kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it takes, be it an hour."""
    desk = Desk(StoredOptions(), StoredOptions(weight=50))
    breaker = desk.breaker(kept)
    breaker.site = desk.capacity.isolate(breaker.place)
    monkeypatch.setattr(breaker.site, "is_kept", lambda url, now_s: True)
    assert not breaker.has_room(desk.clock.mono_s())
    assert wants(desk)
    assert desk.push(16) == 0
    assert kept not in desk.given


async def test_nothing_is_asked_for_that_waits_for_the_other_version() -> None:
    """Each daemon looked at the store twenty times a second for jobs that it gave to nobody."""
    desk = Desk()
    assert wants(desk)
    while desk.push(1) == 0:
        pass
    assert desk.breaker(NEW).has_room(desk.clock.mono_s())
    assert not wants(desk)
    desk.end(NEW)
    assert not wants(desk)
    desk.end(OLD)
    assert wants(desk)


async def test_what_only_one_version_takes_is_asked_for_although_the_other_is_full() -> None:
    desk = Desk(StoredOptions(priority_max=5), StoredOptions(weight=10))
    while desk.push(1) == 0:
        pass
    assert wants(desk)
    assert desk.push(1, priority=9) == 0
