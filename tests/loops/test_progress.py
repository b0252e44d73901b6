"""What was acknowledged and does not get on is told: planted mistakes that stop a lane, and a real daemon."""

import io
import json
from typing import Any

import pytest
import trio

from jqd.domain.errors import PositionMismatch
from jqd.domain.record import Lane
from jqd.journal import Journal
from jqd.loops.ingest import IDLE_TURNS
from jqd.loops.progress import LOOK_S, STALLED_S
from jqd.testing.store import FakeStore
from tests.loops.house import until
from tests.loops.pairs import HERE, THERE, Pair, pair

LONG_S = 2 * STALLED_S
TURNS_S = 2.0  # a second, on the average of a long time: what a loop that cannot go on may try


def events(logged: io.StringIO) -> list[str]:
    lines = map(json.loads, logged.getvalue().splitlines())
    return [line["event"] for line in lines if line["event"].startswith("ingest.") and line["event"] != "ingest.batch"]


async def came_in(here: Pair) -> int:
    return sum([(await store.stats()).waiting for store in here.stores])


@pytest.mark.parametrize("mistake", ["a read hangs", "nothing is reserved", "the store refuses"])
async def test_what_nobody_thought_of_is_told_all_the_same(
    autojump_clock: None, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    turns, over = 0, trio.Event()
    owner, name = {
        "a read hangs": (Journal, "read"),
        "nothing is reserved": (Journal, "read_reserve"),
        "the store refuses": (FakeStore, "apply_jobs"),
    }[mistake]
    real = getattr(owner, name)

    async def hang(*args: Any) -> Any:
        await over.wait()
        return await real(*args)

    def reserve(*args: Any, **named: Any) -> Any:
        nonlocal turns
        turns += 1
        return real(*args, **named) if over.is_set() else None

    async def refuse(*args: Any) -> Any:
        nonlocal turns
        turns += 1
        if not over.is_set():
            raise PositionMismatch("not there", stored=0)
        return await real(*args)

    planted = {"a read hangs": hang, "nothing is reserved": reserve, "the store refuses": refuse}[mistake]
    monkeypatch.setattr(owner, name, planted)
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        await here.push(HERE, THERE)
        began_s = trio.current_time()
        with trio.fail_after(STALLED_S + 2 * LOOK_S):
            await until(lambda: here.control.run_ready() is not None)
        assert trio.current_time() - began_s >= STALLED_S, "a moment of it is nothing to tell"
        assert "lane jobs stands still at position 0" in str(here.control.run_ready())
        await trio.sleep(LONG_S)
        elapsed_s = trio.current_time() - began_s
        assert turns <= 2 * (elapsed_s * TURNS_S + 2 * IDLE_TURNS), "of two partitions"
        over.set()
        await until(lambda: here.control.run_ready() is None)
        await until(lambda: all(partition.lanes[Lane.JOBS].position for partition in here.daemon.partitions))
        assert await came_in(here) == 2
        await trio.sleep(LOOK_S)
        assert events(logged) == ["ingest.stalled"] * 2 + ["ingest.goes_on"] * 2, "each partition tells once"
        nursery.cancel_scope.cancel()


async def test_a_lane_that_has_nothing_to_do_and_one_whose_store_is_away_are_not_told_of(
    autojump_clock: None, logged: io.StringIO
) -> None:
    async with pair() as here, trio.open_nursery() as nursery:
        await here.start(nursery)
        await trio.sleep(LONG_S)
        assert here.control.run_ready() is None
        for store in here.stores:
            store.away = "cable"
        await here.push(HERE)
        await trio.sleep(LONG_S)
        for store in here.stores:
            store.away = None
        await until(lambda: here.control.run_ready() is None)
        assert "ingest.stalled" not in events(logged)
        nursery.cancel_scope.cancel()
