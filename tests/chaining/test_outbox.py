"""The loop that empties an outbox: at once, in spite of what has to wait, and also of what another daemon left."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from jqd.chaining.outbox import (
    COMPLAIN_S,
    ENTRIES,
    LEFT_S,
    LOOK_S,
    REST_S,
    SHELF_LOOK_S,
    SHELF_S,
    SHELVES_HOLD_S,
    Outbox,
    OutboxResult,
    OverQuota,
)
from jqd.domain.errors import JournalRefused
from jqd.domain.job import Fate, Held
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench, outcome
from tests.loops.house import TrioClock


class Pushes:
    """Takes all but what has to wait, and of acme no more entries than there is room for."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.calls: list[list[bytes]] = []
        self.waits: set[bytes] = set()
        self.refuses: Exception | None = None
        self.room = 10_000
        self.takes_s = 0.0
        self.outbox: Outbox | None = None
        """Whose shelves are looked at, too: what is new goes behind what lies there."""

    async def __call__(self, entries: Sequence[bytes], *, from_shelf: bool = False) -> OutboxResult:
        its = [entry.partition(b" ")[2] for entry in entries]
        self.calls.append(its)
        await trio.sleep(self.takes_s)
        if self.refuses is not None:
            raise self.refuses
        done, left = [], OutboxResult({}, {})
        for entry, it in zip(entries, its, strict=True):
            if not from_shelf and self.outbox and it.startswith(b"acme") and self.outbox.waits_for_quota("acme"):
                left.over.setdefault("acme", OverQuota("others wait", [])).entries.append(entry)
            elif it in self.waits:
                left.waits[entry] = "its partition is away"
            elif it.startswith(b"acme") and not self.room:
                left.over.setdefault("acme", OverQuota("it is spent", [])).entries.append(entry)
            else:
                self.room -= it.startswith(b"acme")
                done.append(it)
        self.taken += done
        return left


class Room:
    def __init__(self) -> None:
        clock = TrioClock()
        self.store, self.pushes = FakeStore(clock), Pushes()
        self.bench = StoreBench(self.store, clock)
        self.outbox = Outbox(store=self.store, push=self.pushes, clock=clock, source=random.Random(1))

    async def put(self, *follows: bytes) -> None:
        for one in follows:
            await self.bench.settle(outcome(Held(self.bench.make(), 5, 1), Fate.SUCCEEDED, follows=one))

    def complaint(self) -> str | None:
        return self.outbox.complaint

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
    room.outbox.wake()
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
    room.outbox.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert room.pushes.taken == [b"z"]
    calls = len(room.pushes.calls)
    room.outbox.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert len(room.pushes.calls) == calls, "it is not asked for again and again"
    room.pushes.waits = {stuck[0]}
    await trio.sleep(REST_S + LOOK_S)
    assert await room.left() == stuck[:1]
    await trio.sleep(COMPLAIN_S)
    assert room.complaint() is not None
    room.pushes.waits = set()
    await trio.sleep(REST_S + LOOK_S)
    assert await room.left() == []
    assert room.complaint() is None, "nobody is told of what is done"


async def test_what_another_daemon_pushed_is_complained_of_no_more(autojump_clock: None, room: Room) -> None:
    room.pushes.waits = {b"stuck"}
    await room.put(b"stuck")
    await trio.sleep(COMPLAIN_S / 2)
    await room.store.drop_outbox((await room.store.get_outbox(1, 1 << 20)).entries)
    await trio.sleep(3 * LOOK_S)
    for _ in range(int(COMPLAIN_S)):
        assert room.complaint() is None, "it was pushed long ago"
        await trio.sleep(1)


async def test_much_that_has_to_wait_is_in_nobodys_way(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch, room: Room
) -> None:
    """Of a partition that is away for an hour: what is new is met without it, and it by some at a time, all in turn."""
    monkeypatch.setattr("jqd.chaining.outbox.WALK", 2 * ENTRIES)
    stuck = [b"stuck %04d" % number for number in range(10 * ENTRIES)]
    room.pushes.waits = set(stuck)
    await room.put(*stuck)
    for _ in range(2):  # the first time all of it is new
        room.outbox.wake()
        await trio.sleep(4 * LOOK_S)
    given, get_outbox = [0], room.store.get_outbox

    async def count(*args: Any, **of: Any) -> Any:
        told = await get_outbox(*args, **of)
        given[-1] += len(told.entries)
        return told

    monkeypatch.setattr(room.store, "get_outbox", count)
    for number in range(8):  # a daemon that is busy looks for what was left all the same
        await room.put(b"%d" % number)
        room.outbox.wake()
        await trio.testing.wait_all_tasks_blocked()
        assert room.pushes.taken[-1] == b"%d" % number
        given.append(0)
        await trio.sleep(LOOK_S / 4)
    assert sorted(given)[-3] <= 2, "a ring asks for what is new"
    assert 2 * ENTRIES <= max(given) <= 3 * ENTRIES
    await room.put(b"left")
    await trio.sleep(6 * LOOK_S)
    assert room.pushes.taken[-1] == b"left", "behind them, by whoever left it"
    assert (room.complaint() or "").startswith("jobs") == (trio.current_time() > COMPLAIN_S)
    await trio.sleep(COMPLAIN_S)
    assert f"and {len(stuck) - 1} others wait" in (room.complaint() or "")
    room.pushes.waits = set()
    await trio.sleep(REST_S + LOOK_S)
    assert await room.left() == [], "what does not wait any more goes in one look"
    assert room.complaint() is None


@pytest.mark.parametrize("takes_s", [0.03, LEFT_S + 0.5])
async def test_a_flow_that_never_ends_keeps_neither_shelves_nor_older_entries_waiting(
    autojump_clock: None, room: Room, nursery: trio.Nursery, takes_s: float
) -> None:
    """Each push takes so long that new entries lie there when it ends, or such as are old by then."""
    room.pushes.room, room.pushes.waits = 0, {b"stuck"}
    await room.put(b"stuck", b"acme")
    room.outbox.wake()
    await trio.testing.wait_all_tasks_blocked()
    room.pushes.room, room.pushes.waits, room.pushes.takes_s = 1, set(), takes_s

    async def flow() -> None:
        while True:
            await room.put(b"new")
            room.outbox.wake()
            await trio.sleep(0.01)

    nursery.start_soon(flow)
    with trio.fail_after(10.0):
        while not {b"stuck", b"acme"}.issubset(room.pushes.taken):
            await trio.sleep(0.1)


async def test_what_a_dead_daemon_left_is_pushed_without_rests_between(
    autojump_clock: None, room: Room, nursery: trio.Nursery
) -> None:
    """After each half second of it the loop slept for two."""
    room.pushes.takes_s = 0.02
    for number in range(100 * ENTRIES):
        await room.put(b"left %d" % number)
    await trio.sleep(LEFT_S + 0.1)
    began_s = trio.current_time()
    while len(room.pushes.taken) < 100 * ENTRIES:
        await trio.sleep(0.1)
    assert trio.current_time() - began_s < LOOK_S + 100 * 0.02 + 1.0


async def test_a_disk_that_is_full_and_a_store_that_is_away_are_weather(autojump_clock: None, room: Room) -> None:
    room.pushes.refuses = JournalRefused("the disk is full", full=True)
    await room.put(b"a")
    room.outbox.wake()
    await trio.sleep(1)
    assert room.outbox.backoff.reason is not None
    room.pushes.refuses, room.store.away = None, "cable pulled"
    await trio.sleep(10)
    room.store.away = None
    await trio.sleep(4)
    assert (room.pushes.taken, await room.left()) == ([b"a"], [])


async def test_what_a_quota_has_no_room_for_is_in_nobodys_way_and_goes_as_there_is_room(
    autojump_clock: None, room: Room
) -> None:
    acme = [b"acme %03d" % number for number in range(2 * ENTRIES)]
    room.pushes.room = 5
    await room.put(*acme, b"a")
    room.outbox.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert (room.pushes.taken, await room.left()) == ([*acme[:5], b"a"], [])
    assert {tenant: shelf.entries for tenant, shelf in room.outbox.shelves.items()} == {"acme": len(acme) - 5}
    room.pushes.calls.clear()
    await trio.sleep(SHELF_S + 2 * SHELF_LOOK_S)
    assert {len(call) for call in room.pushes.calls} == {1}, "one of them is asked for, whatever waits"
    await room.put(b"b")
    room.outbox.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert room.pushes.calls[-1] == [b"b"], "and none of them before what others are to do"
    room.pushes.taken.clear()
    room.pushes.room, room.pushes.waits = 20, {acme[6]}
    await trio.sleep(SHELF_S + SHELF_LOOK_S)
    assert room.pushes.taken == [acme[5], *acme[7:26]], "what waits for something else holds up none of them"
    room.pushes.room, room.pushes.waits = 1_000, set()
    await trio.sleep(REST_S + SHELF_S + SHELF_LOOK_S)
    assert (sorted(room.pushes.taken[20:]), room.outbox.shelves) == ([acme[6], *acme[26:]], {})


@pytest.mark.parametrize("at_once", [10, 1_000])
async def test_what_waits_for_something_else_keeps_no_shelf(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch, room: Room, nursery: trio.Nursery, at_once: int
) -> None:
    """Its tenant can push nothing as long as there is one, and it may wait for ever; however many a look passes."""
    monkeypatch.setattr("jqd.chaining.outbox.ENTRIES", 5)
    monkeypatch.setattr("jqd.chaining.outbox.FROM_SHELF_AT_ONCE", at_once)
    acme = [b"acme %02d" % number for number in range(30)]
    others = Pushes()
    other = Outbox(store=room.store, push=others, clock=TrioClock(), source=random.Random(2))
    await nursery.start(other.run)
    room.pushes.outbox, others.outbox = room.outbox, other
    room.pushes.room = others.room = 0
    room.pushes.waits = others.waits = set(acme[:25])
    await room.put(*acme)
    room.outbox.wake()
    await trio.testing.wait_all_tasks_blocked()
    assert (await room.left(), room.outbox.waits_for_quota("acme"), room.outbox.waits_for_quota("other")) == (
        acme[:25],
        True,
        False,
    )
    await room.store.put_off("acme", (await room.store.get_outbox(1000, 1 << 20)).entries, SHELF_S)
    await trio.sleep(5 * SHELF_S)
    assert await room.left() == [], "all lies behind what waits for the quota"
    room.pushes.room = others.room = 10
    await trio.sleep(10 * SHELF_S)
    assert (sorted(room.pushes.taken + others.taken), await room.left()) == (acme[25:], acme[:25])
    assert (room.outbox.shelves, other.shelves, room.outbox.waits_for_quota("acme")) == ({}, {}, False)
    for _ in range(100):
        await trio.sleep(SHELF_S / 4)
        assert await room.store.list_shelves(9) == {}, "neither lays them there again"
    room.pushes.waits = others.waits = set()
    await trio.sleep(REST_S + LOOK_S)
    assert await room.left() == acme[:0]


async def test_what_waits_for_something_else_is_passed_once_and_not_for_each_bit_of_a_quota(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch, room: Room
) -> None:
    """One entry went in each walk, and each walk took as many looks as there was in front of it."""
    monkeypatch.setattr("jqd.chaining.outbox.ENTRIES", 5)
    monkeypatch.setattr("jqd.chaining.outbox.FROM_SHELF_AT_ONCE", 10)
    acme = [b"acme %02d" % number for number in range(60)]
    room.pushes.room, room.pushes.waits = 0, set(acme[:50])
    await room.put(*acme)
    await room.store.put_off("acme", (await room.store.get_outbox(1000, 1 << 20)).entries, SHELF_S)
    await trio.sleep(20 * SHELF_S)
    for number in range(50, 55):
        room.pushes.room = 1
        await trio.sleep(SHELF_S + SHELF_LOOK_S)
        assert room.pushes.taken == acme[50 : number + 1]
    room.pushes.waits = set()
    await trio.sleep(REST_S)
    room.pushes.room = 1
    await trio.sleep(SHELF_S + SHELF_LOOK_S)
    assert room.pushes.taken[5:] == acme[:1], "what can go now is not behind all others"


async def test_a_store_that_is_away_keeps_nobody_waiting(autojump_clock: None, room: Room) -> None:
    room.pushes.room = 0
    await room.put(b"acme")
    room.outbox.wake()
    await trio.sleep(10)
    assert room.outbox.waits_for_quota("acme")
    room.store.away = "cable pulled"
    await trio.sleep(SHELVES_HOLD_S + SHELF_LOOK_S)
    assert (room.outbox.waits_for_quota("acme"), [*room.outbox.shelves]) == (False, ["acme"]), "it is told all the same"
    room.store.away = None
    await trio.sleep(60)
    assert room.outbox.waits_for_quota("acme")


async def test_a_shelf_whose_turn_has_not_come_costs_one_question(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch, room: Room
) -> None:
    asked = []
    get_shelf = room.store.get_shelf

    async def count(*args: Any, **of: Any) -> tuple[str, list[bytes]]:
        asked.append(of)
        return await get_shelf(*args, **of)

    monkeypatch.setattr(room.store, "get_shelf", count)
    room.pushes.room = 0
    await room.put(b"acme")
    room.outbox.wake()
    await trio.testing.wait_all_tasks_blocked()
    for number in range(50):
        await room.store.put_off(f"t{number}", (await room.store.get_outbox(1, 1)).entries, SHELF_S)
        await room.put(b"x%d" % number)
    asked.clear()
    await trio.sleep(SHELF_LOOK_S * 1.5)
    assert 0 < len(asked) <= 2


async def test_a_shelf_counts_as_long_as_it_is_worked_on(autojump_clock: None, room: Room) -> None:
    """Else pushes would take the room that its entries are on their way into."""
    acme = [b"acme %03d" % number for number in range(6 * ENTRIES)]
    room.pushes.room = 0
    await room.put(*acme)
    room.outbox.wake()
    await trio.testing.wait_all_tasks_blocked()
    room.pushes.room, room.pushes.takes_s = 10_000, SHELVES_HOLD_S / 2
    owed = set()
    while len(room.pushes.taken) < len(acme):
        await trio.sleep(0.1)
        owed.add(room.outbox.waits_for_quota("acme") or len(room.pushes.taken) == len(acme))
    assert owed == {True}
