"""When pushes are refused because too much waits already, and when they are taken again."""

import random
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing

from jqd.control import Control
from jqd.domain.errors import StoreAway
from jqd.domain.process import ALONE
from jqd.domain.record import Lane
from jqd.domain.settings import SettingTable
from jqd.domain.tally import Tally
from jqd.loops.backpressure import LAGS, LOOK_S, RETRY_S, STEP_S, Backpressure, BackpressureConfig, Watermark
from jqd.notify.config import NotifyConfig
from jqd.store import Store
from jqd.store.types import StoreStats
from jqd.testing.clock import ManualClock

CONFIG = BackpressureConfig(waiting_jobs_max=100, journal_bytes_max=1_000, lag_s_max=2.0, release=0.5)


class Counting:
    """A store that says how many jobs wait."""

    def __init__(self) -> None:
        self.waiting = 0
        self.away = False

    async def stats(self) -> StoreStats:
        await trio.lowlevel.checkpoint()
        if self.away:
            raise StoreAway("away")
        return StoreStats(self.waiting, 0, 0, 0, 0, 0, 0)


class House:
    def __init__(self, stores: int = 1) -> None:
        self.stores = [Counting() for _ in range(stores)]
        self.behind = 0
        shown: list[Any] = [*self.stores]
        made: list[Store] = shown
        self.pressure = Backpressure(CONFIG, made, lambda: self.behind, random.Random(1))


def test_it_begins_at_the_limit_and_ends_below_a_share_of_it() -> None:
    mark = Watermark("x")
    reached = []
    for value in (99, 100, 99, 51, 50, 49, 99, 100):
        mark.note(value, 100, 0.5)
        reached.append(mark.reached)
    assert reached == [False, True, True, True, True, False, False, True]


def test_the_journal_is_looked_at_and_the_answer_says_when_to_come_again() -> None:
    house = House()
    house.behind = 999
    house.pressure.update(0.0)
    assert house.pressure.refusal() is None
    house.behind = 1_000
    house.pressure.update(0.0)
    told = [house.pressure.refusal() for _ in range(50)]
    after = {one.retry_after_s for one in told if one}
    assert after == set(range(RETRY_S["journal_bytes"], 2 * RETRY_S["journal_bytes"] + 1)), "spread"
    assert "1000 bytes of the journal are not in the store yet (pressure.journal_bytes_max = 1000)" in str(told[0])
    house.behind = 499
    house.pressure.update(0.0)
    assert (house.pressure.reason, house.pressure.refusal()) == (None, None)
    assert house.pressure.stats()["refused"] == 50


def test_one_late_turn_is_no_pressure_and_several_are() -> None:
    house = House()
    for _ in range(LAGS - 1):
        house.pressure.update(9.0)
    house.pressure.update(0.0)
    assert not house.pressure.reason
    for _ in range(LAGS):
        house.pressure.update(3.0)
    assert "3.0 s behind" in str(house.pressure.reason)
    house.pressure.update(0.9)
    assert house.pressure.reason is None


async def test_the_store_is_asked_and_a_part_that_is_away_counts_as_it_was(autojump_clock: None) -> None:
    house = House(stores=2)
    house.stores[0].waiting, house.stores[1].waiting = 60, 40
    async with trio.open_nursery() as nursery:
        await nursery.start(house.pressure.run)
        await trio.sleep(LOOK_S + 2 * STEP_S)
        assert "100 jobs wait (pressure.waiting_jobs_max = 100)" in str(house.pressure.reason)
        house.stores[0].waiting, house.stores[1].away = 15, True
        await trio.sleep(2 * LOOK_S)
        assert "55 jobs wait" in str(house.pressure.reason), "15 and the 40 that were there"
        house.stores[1].away, house.stores[1].waiting = False, 5
        await trio.sleep(2 * LOOK_S)
        assert house.pressure.reason is None
        nursery.cancel_scope.cancel()


async def test_a_loop_that_turns_late_is_noticed(mock_clock: trio.testing.MockClock) -> None:
    house = House()
    async with trio.open_nursery() as nursery:
        await nursery.start(house.pressure.run)
        for _ in range(LAGS):
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(STEP_S + 2.5)  # all this time something else had the loop
        await trio.testing.wait_all_tasks_blocked()
        assert "2.5 s behind" in str(house.pressure.reason)
        nursery.cancel_scope.cancel()


def test_limits_can_be_changed_while_it_runs() -> None:
    house = House()
    house.behind = 1_000
    house.pressure.update(0.0)
    house.pressure.config = BackpressureConfig(journal_bytes_max=4_000)
    house.pressure.update(0.0)
    assert house.pressure.reason is None


def test_what_a_store_that_was_emptied_is_told_once_more_does_not_count() -> None:
    journal: Any = SimpleNamespace(opened_at=100, end=1_000, reached=lambda lane, position: position)
    first: Any = {lane: SimpleNamespace(done=None) for lane in Lane}
    second: Any = {lane: SimpleNamespace(done=900) for lane in Lane}
    seat = SimpleNamespace(sysid="d")
    parts: Any = [SimpleNamespace(store=None, lanes=lanes, membership=seat) for lanes in (first, second)]
    shared: Any = SimpleNamespace(
        journal=journal,
        clock=ManualClock(),
        config=SimpleNamespace(pressure=CONFIG, notify=NotifyConfig(), process=ALONE),
        source=random.Random(1),
        meter=SimpleNamespace(),
        workers=SimpleNamespace(settings=SettingTable()),
        joblog=SimpleNamespace(tally=Tally()),
    )
    nobody: Any = None
    pressure = Control(shared, parts, nobody, nobody).pressure

    def behind() -> object:
        pressure.update(0.0)
        figures: Any = pressure.stats()["journal_bytes"]
        return figures["value"]

    assert behind() == 900, "away from the start on: all of this life"
    for number, lane in enumerate(first.values()):
        lane.done = 950 - number
    assert behind() == 100, "the lane that is behind the others counts, of the partition that is"
    for lane in (*first.values(), *second.values()):
        lane.done = 0
    assert behind() == 100
    journal.end = 1_200
    assert behind() == 300
