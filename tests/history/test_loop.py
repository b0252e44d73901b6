"""What is counted reaches the store each minute, once, whatever happens to it meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from jqd.domain.errors import StoreRefused
from jqd.domain.tally import Row, Tally
from jqd.history.counts import decode
from jqd.history.loop import AWAY_MAX, MINUTE_MS, HistoryLoop
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = FakeStore(self.clock)
        self.tally = Tally()
        self.loop = HistoryLoop(store=self.store, daemon="d1", tally=self.tally, now_ms=self.clock.wall_ms)

    async def rows(self, minutes: int = 1) -> list[Row]:
        return [row for _, data in (await self.store.get_history(minutes, 0)).rows if (row := decode(data)) is not None]

    async def pass_minutes(self, count: int = 1, pushed: int = 1) -> None:
        """The loop sleeps by trio's clock, and looks at ours."""
        for _ in range(count):
            self.tally.pushed["", "mail"] = pushed
            self.clock.advance(60)
            await trio.sleep(61)
            await wait_all_tasks_blocked()


@asynccontextmanager
async def running() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.store.look(fresh=True)
    bench.clock.advance(-(bench.clock.wall_ms() % (10 * MINUTE_MS)) / 1000 + 600)  # ten minutes begin
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.loop.run)
        yield bench
        nursery.cancel_scope.cancel()


async def test_each_minute_is_a_row_and_ten_of_them_are_one(autojump_clock: MockClock) -> None:
    async with running() as bench:
        await bench.pass_minutes(12, pushed=3)
        assert [row["mail"].pushed for row in await bench.rows()] == [3] * 12
        assert [row["mail"].pushed for row in await bench.rows(10)] == [30, 6]
        bench.clock.advance(60)
        await trio.sleep(61)
        assert len(await bench.rows()) == 12, "where nothing happens there is no row"


async def test_what_the_store_was_away_for_comes_later_and_the_end_tells_the_rest(autojump_clock: MockClock) -> None:
    async with running() as bench:
        bench.store.away = "cable pulled"
        await bench.pass_minutes(5)
        bench.store.away = None
        await bench.pass_minutes()
        assert [row["mail"].pushed for row in await bench.rows()] == [1] * 6
        assert [row["mail"].pushed for row in await bench.rows(10)] == [6]
        bench.tally.pushed["", "last"] = 1
    assert [*await bench.rows()][-1].keys() == {"last"}
    assert [row["mail"].pushed for row in await bench.rows(10)] == [6]


async def test_a_long_absence_costs_the_oldest_minutes_and_they_are_counted(autojump_clock: MockClock) -> None:
    async with running() as bench:
        bench.store.away = "cable pulled"
        await bench.pass_minutes(AWAY_MAX + 5)
        assert bench.loop.lost > 5
        assert bench.loop.complaint is None
        bench.store.away = None
        await bench.pass_minutes()
        assert len(await bench.rows()) == AWAY_MAX + 6 - bench.loop.lost
        assert 53 <= AWAY_MAX + 5 - bench.loop.lost <= 54, "as said of AWAY_MAX"


async def test_a_wiped_store_has_what_comes_after_it_was_looked_at(autojump_clock: MockClock) -> None:
    async with running() as bench:
        await bench.pass_minutes(3)
        bench.store.wipe()
        await bench.pass_minutes()
        await bench.store.look(fresh=False)
        await bench.pass_minutes()
        assert [row["mail"].pushed for row in await bench.rows()] == [1, 1]
        assert [row["mail"].pushed for row in await bench.rows(10)] == [5], "the ten minutes under way are told whole"


async def test_what_an_operator_must_look_at_is_told(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as bench:

        async def refused(*_: object) -> int:
            raise StoreRefused("a key of another type")

        with monkeypatch.context() as patch:
            patch.setattr(bench.store, "put_history", refused)
            await bench.pass_minutes()
        assert "a key of another type" in (bench.loop.complaint or "")
        await bench.pass_minutes()
        assert bench.loop.complaint is None
        assert len(await bench.rows()) == 2


async def test_who_reads_metrics_meanwhile_takes_nothing_away(autojump_clock: MockClock) -> None:
    async with running() as bench:
        bench.tally.pushed["acme", "mail"] = 2
        bench.tally.settle()
        bench.tally.pushed["acme", "mail"] = 3
        bench.tally.settle()
        await bench.pass_minutes()
        assert [row["acme\x1fmail"].pushed for row in await bench.rows()] == [5]


async def test_a_clock_that_is_set_back_replaces_no_row(autojump_clock: MockClock) -> None:
    async with running() as bench:
        await bench.pass_minutes(2)
        bench.clock.set_wall_ms(bench.clock.wall_ms() - 300_000)
        await bench.pass_minutes(4)
        bench.tally.settle()
        left = bench.loop._counted
        assert sum(row["mail"].pushed for row in [*await bench.rows(), *([left] if left else [])]) == 6
