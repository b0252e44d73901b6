"""The loop that empties an outbox: at once, in spite of what has to wait, and also of what another daemon left."""

import random
from collections.abc import Mapping, Sequence

import pytest
import trio
import trio.testing

from jqd.loops.outbox import ENTRIES, LEFT_S, LOOK_S, REST_S, Outbox
from jqd.testing.store import FakeStore
from jqd.words.errors import JournalRefused
from jqd.words.job import Fate, Held
from tests.contract.bench import StoreBench, outcome
from tests.loops.house import TrioClock


class Pushes:
    """Takes all but what has to wait."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.calls: list[list[bytes]] = []
        self.waits: set[bytes] = set()
        self.refuses: Exception | None = None

    async def __call__(self, entries: Sequence[bytes]) -> Mapping[bytes, str]:
        self.calls.append([entry.partition(b" ")[2] for entry in entries])
        await trio.lowlevel.checkpoint()
        if self.refuses is not None:
            raise self.refuses
        self.taken += [it for it in self.calls[-1] if it not in self.waits]
        return {entry: "its partition is away" for entry in entries if entry.partition(b" ")[2] in self.waits}


class Room:
    def __init__(self) -> None:
        clock = TrioClock()
        self.store, self.pushes = FakeStore(clock), Pushes()
        self.bench = StoreBench(self.store, clock)
        self.outbox = Outbox(store=self.store, push=self.pushes, clock=clock, source=random.Random(1))

    async def put(self, *follows: bytes) -> None:
        for one in follows:
            await self.bench.settle(outcome(Held(self.bench.make(), 5, 1), Fate.SUCCEEDED, follows=one))

    async def left(self) -> list[bytes]:
        return [entry.partition(b" ")[2] for entry in (await self.store.get_outbox(1000, 1 << 20)).entries]


@pytest.fixture
async def room(nursery: trio.Nursery) -> Room:
    room = Room()
    await room.store.look(fresh=True)
    await nursery.start(room.outbox.run)
    return room


async def test_what_our_own_outcome_left_goes_at_once(autojump_clock: None, room: Room) -> None:
    await room.put(b"a")
    room.outbox.ring()
    await trio.testing.wait_all_tasks_blocked()
    assert (room.pushes.taken, await room.left()) == ([b"a"], [])


async def test_what_another_left_is_found_when_that_had_its_time(autojump_clock: None, room: Room) -> None:
    await trio.sleep(LOOK_S - LEFT_S / 2)
    await room.put(b"a")
    await trio.sleep(LEFT_S)
    assert room.pushes.calls == [], "whoever applied it is at it"
    await trio.sleep(LOOK_S)
    assert (room.pushes.taken, await room.left()) == ([b"a"], [])


async def test_what_has_to_wait_holds_up_nothing_and_goes_later(autojump_clock: None, room: Room) -> None:
    stuck = [b"stuck %03d" % number for number in range(ENTRIES + 5)]
    room.pushes.waits = set(stuck)
    await room.put(*stuck, b"z")
    room.outbox.ring()
    await trio.testing.wait_all_tasks_blocked()
    assert room.pushes.taken == [b"z"]
    calls = len(room.pushes.calls)
    room.outbox.ring()
    await trio.testing.wait_all_tasks_blocked()
    assert len(room.pushes.calls) == calls, "it is not asked for again and again"
    room.pushes.waits = {stuck[0]}
    await trio.sleep(REST_S + LOOK_S)
    assert await room.left() == stuck[:1]


async def test_a_disk_that_is_full_and_a_store_that_is_away_are_weather(autojump_clock: None, room: Room) -> None:
    room.pushes.refuses = JournalRefused("the disk is full", full=True)
    await room.put(b"a")
    room.outbox.ring()
    await trio.sleep(1)
    assert room.outbox.pace.reason is not None
    room.pushes.refuses, room.store.away = None, "cable pulled"
    await trio.sleep(10)
    room.store.away = None
    await trio.sleep(4)
    assert (room.pushes.taken, await room.left()) == ([b"a"], [])
