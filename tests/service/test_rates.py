"""Rates of the last minute, from totals that were read now and then."""

import random
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from jqd.service import Services
from jqd.service.rates import SAMPLE_S, WINDOW_S, PerMinute, Rates, sample, shown
from jqd.store import Store, StoreStats, Totals, TypeView
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench

NOBODY: Any = None


def stats(totals: Totals, unreachable: tuple[int, ...] = ()) -> StoreStats:
    return StoreStats(0, 0, 0, 0, 0, 0, 0, unreachable, totals=totals)


class Watched:
    """A jobtype of which so much has happened."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.rates = Rates(NOBODY, self.clock)
        self.happened: list[float] = []

    @property
    def view(self) -> TypeView:
        return TypeView("mail", totals=Totals(pushed=len(self.happened)))

    def note(self) -> None:
        self.rates.note(stats(self.view.totals), [self.view])

    def since(self, at_s: float) -> int:
        return sum(each > at_s for each in self.happened)


@pytest.mark.parametrize("seed", range(50))
def test_a_rate_lies_between_what_happened_since_the_samples_around_a_minute_ago(seed: int) -> None:
    source, of = random.Random(seed), Watched()
    of.happened = [of.clock.mono_s()] * source.choice((0, 1000))
    sampled: list[float] = []
    gap_s = source.choice((SAMPLE_S, 7.0, 90.0))
    for step in range(400):
        if step % round(gap_s) == 0:
            of.note()
            sampled.append(of.clock.mono_s())
        of.happened += [of.clock.mono_s() + 0.5] * source.choice((0, 0, 0, 1, 30))
        of.clock.advance(1.0)
        now_s = of.clock.mono_s()
        rate = of.rates.of(of.view).pushed
        before = [at_s for at_s in sampled if at_s <= now_s - WINDOW_S]
        after = [at_s for at_s in sampled if at_s > now_s - WINDOW_S]
        most = of.since(before[-1] if before else sampled[0])
        least = of.since(after[0]) if after else 0
        assert least <= rate <= most
        assert rate == of.rates.of_all(stats(of.view.totals)).pushed
        if not before:
            assert rate == most, "as far back as there are samples"


def test_what_happens_evenly_is_told_exactly() -> None:
    of = Watched()
    for _ in range(300):
        of.happened += [0.0] * 2
        if len(of.happened) % 40 == 0:
            of.note()
        of.clock.advance(1.0)
    assert of.rates.of(of.view).pushed == 118.0, "of the last second nothing has happened yet"


def test_nothing_is_said_before_the_first_sample_nor_of_what_went_back() -> None:
    of = Watched()
    of.happened = [0.0] * 5
    assert of.rates.of(of.view) == PerMinute()
    of.note()
    of.clock.advance(10)
    of.happened = [0.0] * 2
    assert of.rates.of(of.view) == PerMinute(), "an older store came back, or the jobtype was empty meanwhile"
    assert of.rates.of(TypeView("new", totals=Totals(3, 2, 1, 0))) == PerMinute(3, 2, 1, 0)


def test_where_a_partition_does_not_answer_no_rate_of_all_is_said() -> None:
    of = Watched()
    of.note()
    assert of.rates.of_all(stats(Totals(7))) == PerMinute(7)
    assert of.rates.of_all(stats(Totals(7), unreachable=(1,))) == PerMinute()


class _Services:
    """As much of them as samples are taken of."""

    def __init__(self, store: Store, rates: Rates) -> None:
        self.store, self._rates = store, rates

    def feature(self, kind: object) -> Rates:
        assert kind is Rates
        return self._rates


async def test_samples_are_taken_while_the_store_is_there(autojump_clock: MockClock) -> None:
    clock = ManualClock()
    store = FakeStore(clock)
    await store.look(fresh=True)
    bench = StoreBench(store, clock)
    services = cast("Services", _Services(store, Rates(NOBODY, clock)))
    async with trio.open_nursery() as nursery:
        await nursery.start(sample, services)
        await trio.sleep(SAMPLE_S / 2)
        await bench.add(*(bench.make() for _ in range(6)))
        told = shown(services, await store.stats())
        assert (told["counts"]["waiting"], told["counts"]["pushed_a_minute"], told["totals"]["pushed"]) == (6, 6, 6)
        store.away = "cable pulled"
        clock.advance(SAMPLE_S)
        await trio.sleep(SAMPLE_S)
        store.away = None
        clock.advance(WINDOW_S)
        await trio.sleep(WINDOW_S)
        assert shown(services, await store.stats())["counts"]["pushed_a_minute"] < 6
        nursery.cancel_scope.cancel()
