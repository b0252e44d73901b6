"""What one daemon was told by a worker holds at the others: two daemons that hear each other's views."""

import random

import pytest

from jqd.domain.settings import SettingTable
from jqd.domain.tenant import annotate
from jqd.runner import Capacity, RunnerConfig, WorkerRegistry, WorkerSpec, WorkerViews
from jqd.runner.circuit_breaker import CircuitBreaker
from jqd.runner.registry import body_of
from jqd.runner.worker_health import ROWS_MAX
from jqd.testing.clock import ManualClock

MAX_S = 3_600.0


class Side:
    """One daemon: its gates and its view."""

    def __init__(self, name: str, clock: ManualClock) -> None:
        self.clock = clock
        self.settings = SettingTable()
        self.workers = WorkerRegistry(self.settings, clock=clock)
        self.capacity = Capacity(RunnerConfig(), self.workers, random.Random(1), clock)
        self.views = WorkerViews(name, self.workers, self.capacity, clock, MAX_S)
        self.settings.ahead_ms[self] = 5_000_000

    @property
    def breaker(self) -> CircuitBreaker:
        (one,) = (breaker for worker, breaker in self.capacity.posting() if worker.id == "w")
        return one

    def free(self) -> int:
        return self.breaker.free("mail", self.clock.mono_s())

    def back_off(self, for_s: float | None = 30.0, why: str = "") -> None:
        self.breaker.back_off(self.clock.mono_s(), self.clock.mono_s(), for_s, why=why)


class Pair:
    """Two, and the store between them."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall_ms=1_000_000)
        self.one, self.two = Side("d1", self.clock), Side("d2", self.clock)
        self.register()

    def register(self, url: str = "http://here:80/") -> None:
        self.one.workers.register(WorkerSpec(name="w", id="w", url=url, max_jobs=4))
        self.two.settings.take([setting for setting in self.one.settings.every() if setting.kind == "worker"])

    def tell(self) -> None:
        """What each sees comes to the other."""
        views = [side.views.look() for side in (self.one, self.two)]
        for side in (self.one, self.two):
            side.settings.take(views)

    def free(self) -> tuple[int, int]:
        return self.one.free(), self.two.free()


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_pause_holds_at_both_and_then_each_tries_the_worker_with_one_job(pair: Pair) -> None:
    assert pair.free() == (4, 4)
    pair.one.back_off(30.0)
    pair.tell()
    assert pair.two.breaker.is_open(pair.clock.mono_s()), "nor goes out what was handed over already"
    pair.clock.advance(29.9)
    assert pair.free() == (0, 0)
    pair.clock.advance(0.2)
    assert pair.free() == (1, 1)
    pair.tell()
    assert pair.free() == (1, 1), "one may have nothing to try it with, or be gone"
    pair.two.breaker.take("mail", ["a"], pair.clock.mono_s())
    assert pair.free() == (1, 0), "one job of each at most"
    pair.two.breaker.give("mail", ["a"], pair.clock.mono_s(), ended=True)
    pair.two.breaker.answered(pair.clock.mono_s())
    assert pair.free() == (1, 4)
    pair.one.breaker.complain("answers 405", pair.clock.mono_s())
    pair.tell()
    assert pair.free() == (1, 4), "what was disproved does not come again with what else is said"
    pair.one.back_off(30.0)
    pair.tell()
    assert pair.free() == (0, 0)


def test_when_it_is_well_at_one_it_is_at_all(pair: Pair) -> None:
    pair.one.back_off(30.0)
    pair.tell()
    pair.clock.advance(30.1)
    pair.one.breaker.answered(pair.clock.mono_s())
    pair.tell()
    assert pair.two.free() == 4


def test_an_answer_to_what_was_sent_before_the_pause_does_not_end_it(pair: Pair) -> None:
    sent_at_s = pair.clock.mono_s()
    pair.clock.advance(1)
    pair.one.back_off(30.0)
    pair.tell()
    pair.two.breaker.answered(sent_at_s)
    assert pair.two.free() == 0


def test_who_cannot_be_reached_from_one_place_is_tried_from_another(pair: Pair) -> None:
    pair.one.breaker.unreachable(pair.clock.mono_s(), pair.clock.mono_s())
    pair.tell()
    assert pair.free() == (0, 4)


@pytest.mark.parametrize("others_are", ["away", "busy"])
def test_however_many_workers_of_one_are_ill_pauses_of_others_come_to_all(pair: Pair, others_are: str) -> None:
    now_s = pair.clock.mono_s()
    names = [*(("acme", f"a{number:03}") for number in range(2 * ROWS_MAX)), ("zeta", "z")]
    for tenant, name in names:
        card = WorkerSpec(name=name, id=name, url=f"http://{name}:80/", max_jobs=4)
        worker = pair.one.workers.check(card, tenant=tenant)
        pair.one.settings.take(pair.one.settings.make({("worker", worker.id): body_of(worker)}, now_ms=0, origin=0))
        breaker = pair.one.capacity.breaker(worker)
        if tenant == "acme" and others_are == "away":
            breaker.unreachable(now_s, now_s)
        else:
            breaker.back_off(now_s, now_s, 30.0)
    pair.one.back_off(30.0)
    pair.two.settings.take([setting for setting in pair.one.settings.every() if setting.kind == "worker"])
    pair.tell()
    shut = {worker.id for worker, breaker in pair.two.capacity.posting() if breaker.is_open(now_s)}
    assert {"w", annotate("zeta", "z")} <= shut
    assert len(shut) == (2 if others_are == "away" else ROWS_MAX)


def test_a_pause_belongs_to_a_registration(pair: Pair) -> None:
    pair.one.back_off(30.0)
    pair.tell()
    pair.one.workers.unregister("w")
    pair.two.workers.unregister("w")
    pair.clock.advance(1)
    pair.register()
    assert pair.free() == (4, 4), "before the other has heard that it is there again"
    pair.one.back_off(30.0)
    pair.tell()
    assert pair.free() == (0, 0)
    pair.register("http://there:80/")
    assert pair.free() == (4, 4), "it moved"


def test_a_worker_that_is_gone_gets_nothing_before_all_have_heard_that_it_is(pair: Pair) -> None:
    pair.one.back_off(5.0, "410")
    pair.one.workers.unregister("w")
    pair.tell()
    assert pair.two.free() == 0


def test_a_pause_outlasts_a_restart_of_the_daemon_that_was_told(pair: Pair) -> None:
    pair.one.back_off(30.0, "429")
    pair.tell()
    again = Side("d1", pair.clock)
    again.settings.take([setting for setting in pair.two.settings.every() if setting.kind == "worker"])
    again.settings.take([setting for setting in pair.two.settings.every() if setting.kind == "view"])
    pair.one = again
    assert pair.free() == (0, 0)
    pair.tell()
    assert pair.free() == (0, 0), "nor does it say that the worker is well"
    pair.clock.advance(30.1)
    assert pair.free() == (1, 1)


@pytest.mark.parametrize("set_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_moves_no_pause(pair: Pair, set_ms: int) -> None:
    pair.one.back_off(30.0)
    pair.tell()
    for side in (pair.one, pair.two):
        side.settings.ahead_ms[side] += set_ms
    pair.tell()
    assert pair.free() == (0, 0)
    (seen,) = pair.two.views.of("w", ["d1"]).values()
    assert seen.until_ms == pair.two.settings.now_ms(pair.clock) + 30_000, "it is shown by the clock that there is now"
    pair.clock.advance(30.1)
    assert pair.free() == (1, 1)


def test_a_date_far_away_keeps_nobody_from_a_worker_for_longer_than_it_may_ask_for(pair: Pair) -> None:
    pair.two.settings.ahead_ms[pair.two] -= 86_400_000
    pair.one.back_off(30.0)
    pair.tell()
    assert pair.two.free() == 0
    pair.clock.advance(MAX_S + 0.1)
    assert pair.two.free() == 1
