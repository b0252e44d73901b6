"""Whatever is lost and repeated between two daemons, a child goes on once, after all its parents."""

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from jqd.chaining.flows import REST_S, Flows
from jqd.domain.errors import StoreAway
from jqd.domain.job import Fate
from jqd.store.links import NEW, ParentNote, WatchPair
from jqd.testing.store import FakeStore
from tests.chaining.flow_room import Faulty, Room, one_round, room
from tests.contract.bench import outcome
from tests.simulation.mistake import in_scripts

__all__ = ["room"]

WALKS = 60
STEPS = 16
PARENTS = 3
CALLS = 5  # of one partition in one round, about
LOOPS = 4


async def _walk(room: Room, source: random.Random) -> None:
    """Two daemons look at both partitions. At any call of one its answer is lost, or a parent ends and others work. In
    every other walk the first parent fails, and is tried anew before the last of the others ends."""
    ways: list[list[Faulty]] = [[] for _ in range(LOOPS)]

    def way_of(number: int) -> Callable[[FakeStore], Faulty]:
        def way(store: FakeStore) -> Faulty:
            ways[number].append(Faulty(store))
            return ways[number][-1]

        return way

    loops = [room.loop(number % 2, way_of(number)) for number in range(LOOPS)]
    parents = [await room.parent() for _ in range(PARENTS)]
    child = await room.child(*parents)
    left: list[Callable[[], Awaitable[None]]] = [room.end] * PARENTS
    if source.random() < 0.5:
        left.insert(0, partial(room.end, Fate.FAILED))
        left.insert(source.randint(1, PARENTS - 1), partial(room.retry, parents[0]))
    room.failed.clear()

    async def end() -> None:
        if left:
            await left.pop(0)()

    async def others_work() -> None:
        await end()
        for other in loops:
            await one_round(other)

    async def lose() -> None:
        await trio.lowlevel.checkpoint()
        raise StoreAway("lost")

    for _ in range(STEPS):
        what = source.choice((end, None, None, lose, lose, others_work, others_work))
        number = source.randrange(LOOPS)
        if what is end:
            await end()
        elif source.random() < 0.2:
            await trio.sleep(REST_S)
        for each in ways[number] if what in (lose, others_work) else ():
            each.at, each.is_before = source.randint(1, CALLS), source.random() < 0.5
            each.happens = what or trio.lowlevel.checkpoint
        with suppress(StoreAway):
            await one_round(loops[number])
        for each in ways[number]:
            each.at = 0
        assert not left or child.id not in room.released, "it went on before all had ended"
    while left:
        await end()
    for loop in (*loops, *loops):
        await trio.sleep(REST_S)
        while await one_round(loop) == 0.0:
            pass
    assert room.released.count(child.id) == 1
    assert room.failed == [""], "all of them succeeded in the end"
    bench = room.benches[0]
    held = await bench.claim_one(await bench.join(), "sum")
    assert held.job.id == child.id
    await bench.settle(outcome(held, Fate.SUCCEEDED))


async def test_whatever_is_lost_and_repeated_a_child_is_released_once_after_all(
    autojump_clock: None, room: Room
) -> None:
    await _walk_all(room)


async def _walk_all(room: Room) -> None:
    for seed in range(WALKS):
        try:
            await _walk(room, random.Random(seed))
        except AssertionError as error:
            raise AssertionError(f"walk {seed}: {error}") from error


def _reset_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was noted of parents is made void when they are asked already."""
    real = Flows._watch

    async def watch(self: Flows, pairs: Sequence[WatchPair]) -> Any:
        found = await real(self, pairs)
        await self._store.note_parents([ParentNote(child, size=NEW) for child in {pair.child for pair in pairs}])
        return found

    monkeypatch.setattr(Flows, "_watch", watch)


def _count_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end that is noted twice counts as two."""
    for piece, wrong in (
        ("tonumber(known_stage) >= stage or", ""),
        ("if how ~= '' and (known or '') == '' then", "if how ~= '' then"),
    ):
        monkeypatch.setattr(*_part(piece, wrong))


def _part(piece: str, wrong: str) -> tuple[Any, str, Any]:
    owner, name, plant = in_scripts(piece, wrong)
    return owner, name, plant(getattr(owner, name))


def _keep_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent's first end stays."""
    monkeypatch.setattr(*_part("tonumber(known_stage) >= stage or", "known ~= '' or"))


def _take_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told last of a parent counts, however old it is."""
    monkeypatch.setattr(*_part("tonumber(known_stage) >= stage or", ""))


@pytest.mark.parametrize("plant", [_reset_late, _count_twice, _keep_first, _take_last])
async def test_the_walks_find_a_mistake(
    autojump_clock: None, room: Room, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"^walk \d+: "):
        await _walk_all(room)
