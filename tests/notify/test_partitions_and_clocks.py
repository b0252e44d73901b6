"""Nothing that failed is lost or told twice where a partition is away, a clock is set back, or a store is emptied."""

import pytest
import trio

from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench
from tests.loops.conftest import threads_in_place
from tests.loops.house import TrioClock
from tests.notify.site import STORE, Site, hang

__all__ = ["threads_in_place"]


async def test_a_partition_that_is_away_holds_up_no_other(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery, partitions=2)
    await site.look()
    daemon = await site.daemon(resolved_s=600)
    await site.fail("here")
    await site.fail("there", partition=1)
    daemon.stores[1].away = "cable pulled"
    await trio.sleep(3_000)
    assert site.told.new == [{"here": 1}], "and nothing is over: it may go on there"
    daemon.stores[1].away = None
    await trio.sleep(100)
    assert site.told.new[1:] == [{"here": 0, "there": 1}]


async def test_a_clock_that_is_set_back_loses_nothing(autojump_clock: None, nursery: trio.Nursery) -> None:
    for back_s in (1, 4, 9, 60, 3_600, 86_400):
        site = Site(nursery)
        await site.look()
        await site.daemon()
        await site.fail("old")
        await trio.sleep(100)
        site.clock.set_wall_ms(site.clock.wall_ms() - round(trio.current_time() * 1000) - back_s * 1000)
        await site.fail("new")
        await trio.sleep(100)
        assert site.told.new == [{"old": 1}, {"new": 1}], f"{back_s} s"


async def test_a_clock_that_is_set_back_while_a_notice_is_sent(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    await site.daemon()
    site.told.within_s = 25
    await site.fail("old")
    await trio.sleep(36)
    assert site.told.new == [{"old": 1}]
    site.clock.set_wall_ms(site.clock.wall_ms() - round(trio.current_time() * 1000) - 20_000)
    await site.fail("new")
    await trio.sleep(100)
    assert site.told.new == [{"old": 1}, {"new": 1}]


async def test_a_clock_that_was_set_back_while_nobody_looked(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    one = await site.daemon()
    await site.fail("old")
    await trio.sleep(100)
    one.scope.cancel()
    site.clock.set_wall_ms(site.clock.wall_ms() - round(trio.current_time() * 1000) - 3_600_000)
    await site.fail("new")
    await trio.sleep(100)
    await site.daemon()
    await trio.sleep(100)
    assert site.told.new == [{"old": 1}, {"new": 1}]


async def test_an_emptied_store_is_told_anew(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    daemon = await site.daemon()
    await site.fail("no")
    await trio.sleep(100)
    site.stores[0].wipe()
    await site.stores[0].look(fresh=True)
    for store in daemon.stores:
        await store.look(fresh=False)
    site.benches[0] = StoreBench(site.stores[0], site.clock)
    await site.fail("new")
    await trio.sleep(100)
    assert site.told.new == [{"no": 1}, {"new": 1}]


async def test_a_store_that_is_emptied_while_a_notice_is_out(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    daemon = await site.daemon()
    site.told.within_s = 20
    await site.fail("no")
    await trio.sleep(40)
    site.stores[0].wipe()
    for store in (site.stores[0], *daemon.stores):
        await store.look(fresh=True)
    site.benches[0] = StoreBench(site.stores[0], site.clock)
    await site.fail("new")
    await trio.sleep(100)
    assert site.told.new == [{"no": 1}, {"new": 1}], "it goes on to count"


@pytest.mark.parametrize("ahead_s", [-900, -30, 30, 900])
async def test_partitions_whose_clocks_differ(autojump_clock: None, nursery: trio.Nursery, ahead_s: int) -> None:
    site = Site(nursery, partitions=2)
    other = TrioClock(wall_ms=1_800_000_000_000 + ahead_s * 1000 - round(trio.current_time() * 1000))
    site.stores[1] = FakeStore(other, STORE)
    site.benches[1] = StoreBench(site.stores[1], other)
    await site.look()
    await site.daemon(resolved_s=600)
    await site.fail("no", partition=1)
    await trio.sleep(60)
    await site.fail("no", partition=1)
    await trio.sleep(2_000)
    assert site.told.new == [{"no": 1}, {"no": 1}]
    assert site.told.notices[-1].rows[0].is_over


async def test_a_partition_that_hangs_keeps_no_notice_from_being_noted(
    autojump_clock: None, nursery: trio.Nursery
) -> None:
    site = Site(nursery, partitions=2)
    await site.look()
    site.told.within_s = 29
    one = await site.daemon("one")
    await trio.sleep(1)
    await site.daemon("two")
    hang(one)
    await site.fail("no")
    await trio.sleep(600)
    assert site.told.new == [{"no": 1}]
