"""One address that asks for very much leaves the others their turns, and nobody is forgotten in line."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from jqd.doors.asked import Answer, Asked, Heading
from jqd.doors.config import DoorConfig
from jqd.doors.connection import Connection, House
from jqd.doors.pipe import Turn
from jqd.doors.turns import (
    EACH,
    EACH_BESIDE,
    OTHERS_S,
    PAUSE_S,
    WEIGHT_BYTES,
    Lines,
    Turns,
    Urgency,
    Urgent,
    not_urgent,
    weight_of,
)
from tests.doors.pipes import SERVER, Log, MemoryPipe

FLOOD = 40 * EACH


class Peer:
    """A request, as far as it matters here."""

    patient = False

    def __init__(self, address: str, size: int = 0) -> None:
        self.peer = address
        self.heading = Heading("POST", "/", "/", b"", {"content-length": str(size)})


class Hall:
    """An application behind turns, and who it was asked by, in order."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.begun: list[str] = []
        self.held = trio.Event()
        self.held.set()
        self.app: Any = self.turns.share(self.work)

    async def work(self, asked: Asked) -> Answer:
        assert asked.peer is not None
        self.begun.append(asked.peer)
        await trio.lowlevel.checkpoint()
        await self.held.wait()
        return Answer(200)

    def empty(self) -> bool:
        return not (self.turns._under_way or self.turns._lines or self.turns._led)


async def test_who_asks_little_is_not_behind_who_asks_much() -> None:
    hall = Hall()
    async with trio.open_nursery() as nursery:
        for _ in range(FLOOD):
            nursery.start_soon(hall.app, Peer("192.0.2.1"))
        await trio.lowlevel.checkpoint()
        begun = len(hall.begun)
        assert begun <= EACH
        for _ in range(3):
            await hall.app(Peer("192.0.2.2"))
        # Each of these took a few turns; in each of them as many of the flood were begun.
        assert hall.begun.count("192.0.2.2") == 3
        assert len(hall.begun) < begun + 12 * EACH < FLOOD
    assert hall.begun.count("192.0.2.1") == FLOOD
    assert hall.empty()


@pytest.mark.parametrize("size", [0, EACH * WEIGHT_BYTES], ids=["small", "large"])
async def test_while_others_ask_the_loop_is_theirs_for_most_of_the_time(size: int, autojump_clock: MockClock) -> None:
    """Each request is worked at in five turns, as a push is: with 40 turns' worth of them at once the loop would be
    full of one that floods. What it does until another one's answer is counted: of large ones one is begun in a turn.
    """
    hall, steps, begun, each = Hall(), [0], Counter[float](), 1 if size else EACH_BESIDE

    async def five_turns(asked: Asked) -> Answer:
        begun[trio.current_time()] += asked.peer == "192.0.2.1"
        for _ in range(5):
            steps[0] += asked.peer == "192.0.2.1"
            await trio.lowlevel.checkpoint()
        return Answer(200)

    app: Any = hall.turns.share(five_turns)
    async with trio.open_nursery() as nursery:
        await app(Peer("192.0.2.2"))  # it is known that there are others
        for _ in range(FLOOD):
            nursery.start_soon(app, Peer("192.0.2.1", size))
        await trio.lowlevel.checkpoint()
        met = []
        for _ in range(10):
            before = steps[0]
            await app(Peer("192.0.2.2"))
            met.append(steps[0] - before)
            await trio.sleep(PAUSE_S)
        assert max(met[1:]) <= 5 * each, met
    assert sorted(begun.values())[:-1][-1] == each, "but for those that came first: nobody else was in line"
    assert steps[0] == 5 * FLOOD
    assert trio.current_time() >= FLOOD / EACH_BESIDE * PAUSE_S / 2
    assert hall.empty()


async def test_who_floods_with_connections_has_turns_for_handshakes(autojump_clock: MockClock) -> None:
    """200 at once would be 100 ms of the loop in one turn. Who has said nothing yet takes no turn."""
    begun: list[tuple[float, str]] = []

    class Shaking(MemoryPipe):
        async def begin(self, turn: Turn) -> str:
            await self.receive_some(1)
            await turn()
            begun.append((trio.current_time(), self.whose))
            await trio.sleep(0.01)  # the way there and back
            return ""

        whose = ""

    async def none(_: Asked) -> None:
        raise AssertionError("nobody asks for anything")

    house, pipes = House(none, DoorConfig(), Log(), SERVER), list[MemoryPipe]()

    async def come(address: str, *, says: bool = True) -> None:
        pipe = Shaking()
        pipe.whose = address
        pipes.append(pipe)
        if says:
            pipe.feed(b"x")
        nursery.start_soon(Connection(house, pipe, (address, 1)).run)

    async with trio.open_nursery() as nursery:
        for _ in range(FLOOD):
            await come("192.0.2.3", says=False)
        await come("192.0.2.2")
        await trio.sleep(0.1)
        for _ in range(FLOOD):
            await come("192.0.2.1")
        await trio.sleep(PAUSE_S)
        came_s = trio.current_time()
        await come("192.0.2.2")
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert (came_s, "192.0.2.2") in begun, "it waits for none of them"
    at = Counter(when for when, whose in begun if whose == "192.0.2.1")
    assert sorted(at.values())[-2:] == [1, EACH]
    assert len(begun) == FLOOD + 2


async def test_who_waited_in_line_while_others_ask_is_patient_behind_the_door_too(autojump_clock: MockClock) -> None:
    hall = Hall()

    async def flood() -> int:
        peers = [Peer("192.0.2.1") for _ in range(FLOOD)]
        async with trio.open_nursery() as nursery:
            for peer in peers:
                nursery.start_soon(hall.app, peer)
        return sum(peer.patient for peer in peers)

    assert await flood() == 0, "nobody else asks"
    await hall.app(other := Peer("192.0.2.2"))
    assert await flood() == FLOOD - EACH
    assert not other.patient


async def test_who_is_alone_waits_for_no_clock(mock_clock: MockClock) -> None:
    """It stands still here: whoever waited for it would wait for ever."""
    hall = Hall()
    for long_ago in (False, True):
        if long_ago:
            await hall.app(Peer("192.0.2.2"))
            await hall.app(Peer("192.0.2.1"))
            mock_clock.jump(OTHERS_S)
        async with trio.open_nursery() as nursery:
            for _ in range(FLOOD):
                nursery.start_soon(hall.app, Peer("192.0.2.1"))
    assert hall.begun.count("192.0.2.1") == 2 * FLOOD + 1
    assert hall.empty()


async def test_lines_are_of_whom_is_said() -> None:
    """As many addresses as there may be of one tenant have the turns of one."""
    hall = Hall()
    app: Any = hall.turns.share(hall.work, lambda asked: "tenant" if str(asked.peer).startswith("192") else "else")
    async with trio.open_nursery() as nursery:
        for number in range(FLOOD):
            nursery.start_soon(app, Peer(f"192.0.2.{number}"))
        await trio.lowlevel.checkpoint()
        assert len(hall.begun) <= EACH
        await app(Peer("198.51.100.1"))
        assert len(hall.begun) < 6 * EACH < FLOOD
    assert hall.empty()


async def test_two_that_ask_much_share_alike() -> None:
    hall = Hall()
    async with trio.open_nursery() as nursery:
        for address in ("192.0.2.1", "2001:db8::1"):
            for _ in range(FLOOD):
                nursery.start_soon(hall.app, Peer(address))
            await trio.lowlevel.checkpoint()
        first = hall.begun[:FLOOD]
        assert abs(first.count("192.0.2.1") - first.count("2001:db8::1")) <= 4 * EACH
    assert len(hall.begun) == 2 * FLOOD
    assert hall.empty()


async def test_one_that_waits_and_is_given_up_leaves_the_line_to_the_others() -> None:
    hall = Hall()
    hall.held = trio.Event()
    scopes = [trio.CancelScope() for _ in range(4 * EACH)]
    ended: list[int] = []

    async def ask(number: int) -> None:
        with scopes[number]:
            await hall.app(Peer("192.0.2.1"))
            ended.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(len(scopes)):
            nursery.start_soon(ask, number)
            await trio.lowlevel.checkpoint()  # so the first beyond EACH counts the turns
        for number in (EACH, EACH + 1, 3 * EACH):
            scopes[number].cancel()
        hall.held.set()
    assert len(ended) >= len(scopes) - 3
    assert hall.empty()


async def test_whoever_leads_may_be_given_up_in_the_same_turn_as_who_would_follow() -> None:
    turns = Turns(each=1)
    went: list[str] = []

    async def wait(name: str, scope: trio.CancelScope) -> None:
        with scope:
            assert name == "first" or not turns.enter("a")
            if name == "first":
                assert turns.enter("a")
                return
            try:
                await turns.wait("a")
                went.append(name)
            finally:
                turns.leave("a")

    scopes = {name: trio.CancelScope() for name in ("first", "leads", "follows", "last")}
    async with trio.open_nursery() as nursery:
        await wait("first", scopes["first"])
        for name in ("leads", "follows", "last"):
            nursery.start_soon(wait, name, scopes[name])
        scopes["leads"].cancel()
        scopes["follows"].cancel()
    assert "last" in went
    turns.leave("a")
    assert (turns._under_way, turns._lines, turns._led) == ({}, {}, False)


async def test_one_that_waits_for_long_is_in_nobodys_way() -> None:
    """Long polls count among those under way: what comes then waits one turn, and no more."""
    hall = Hall()
    hall.held = trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(FLOOD):
            nursery.start_soon(hall.app, Peer("192.0.2.1"))
        await wait_all_tasks_blocked()
        assert len(hall.begun) == FLOOD
        nursery.start_soon(hall.app, Peer("192.0.2.1"))
        await wait_all_tasks_blocked()
        assert len(hall.begun) == FLOOD + 1
        hall.held.set()
    assert hall.empty()


FLOODS = 200
TOOK_S = 0.02  # of the loop by a handshake, on a slow machine
LARGE, LONG_S = 16 << 20, 0.05  # an array, and how long the loop has with it
FLOODED = "192.0.2.1"


@asynccontextmanager
async def flooded(clock: MockClock, urgent: Urgent = not_urgent) -> AsyncIterator[House]:
    """An address pushes as large arrays as may be, another one asks each second; the first line is long."""

    async def work(asked: Asked) -> Answer:
        if weight_of(asked) > 1:
            clock.jump(LONG_S)
        await trio.lowlevel.checkpoint()
        return Answer(200)

    house = House(work, DoorConfig(), Log(), SERVER, urgent=urgent)

    async def push() -> None:
        while True:
            await house.app(cast("Any", Peer(FLOODED, LARGE)))

    async def others() -> None:
        while True:
            await house.app(cast("Any", Peer("192.0.2.2")))
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        for _ in range(FLOODS):
            nursery.start_soon(push)
        await trio.sleep(1)
        yield house
        nursery.cancel_scope.cancel()


async def test_what_is_urgent_does_not_wait_behind_pushes_of_the_same_one(autojump_clock: MockClock) -> None:
    """Behind them a heartbeat took 40 s, and what its worker had was given to others."""
    async with flooded(autojump_clock, lambda asked: Urgency(weight_of(asked) == 1)) as house:
        for _ in range(3 * EACH):
            began_s = trio.current_time()
            await house.app(cast("Any", Peer(FLOODED)))
            assert trio.current_time() - began_s < 1


async def test_what_is_urgent_and_large_leaves_the_loop_to_others(autojump_clock: MockClock) -> None:
    """Outcomes by the ten thousand held up everybody's pushes for seconds, and a daemon lost its lease."""
    said = Counter[str]()

    def urgent(asked: Asked) -> Urgency:
        said[str(asked.peer)] += 1
        return Urgency.ANY_SIZE

    async with flooded(autojump_clock, urgent):
        said.clear()
        await trio.sleep(4)
    assert 10 <= said[FLOODED] <= 4 / LONG_S / 3, "of them one has three times as long behind it as it took"


async def test_nor_do_handshakes_and_none_is_too_slow_for_having_waited(autojump_clock: MockClock) -> None:
    begun: list[float] = []

    class Shaking(MemoryPipe):
        async def begin(self, turn: Turn) -> str:
            await self.receive_some(1)
            await turn()
            begun.append(trio.current_time())
            autojump_clock.jump(TOOK_S)
            await trio.sleep(0.01)  # the way there and back
            return ""

    async with flooded(autojump_clock) as house, trio.open_nursery() as nursery:
        config, came_s = house.config, trio.current_time()
        connections = [Connection(house, Shaking(), (FLOODED, 1)) for _ in range(FLOODS)]
        for connection in connections:
            nursery.start_soon(connection.run)
            cast("MemoryPipe", connection._wire.pipe).feed(b"x")
        while len(begun) < FLOODS:
            await trio.sleep(0.5)
            for connection in connections:
                connection.look(trio.current_time())
            assert trio.current_time() - came_s < FLOODS
        assert begun[0] - came_s < 1
        assert begun[-1] - came_s > config.handshake_s, "so some waited longer than a handshake may take"
        nursery.cancel_scope.cancel()


async def test_a_new_connection_for_each_request_is_nobody_else(mock_clock: MockClock) -> None:
    """A handshake is its address', the request behind it a tenant's."""
    lines = Lines()
    for _ in range(3):
        lines.handshakes.enter("192.0.2.1")
        lines.handshakes.leave("192.0.2.1")
        lines.requests.enter("tenant acme")
        lines.requests.leave("tenant acme")
    assert not any(line.others.ask(trio.current_time()) for line in (lines.handshakes, lines.requests))


async def test_a_pause_is_as_long_as_what_was_begun_may_have_taken(autojump_clock: MockClock) -> None:
    """Four of another address that push large arrays, and are never in line, would slow whoever is in one."""
    turns = Turns()

    async def work(asked: Asked) -> Answer:
        if weight_of(asked) > 1:
            autojump_clock.jump(LONG_S)
        await trio.sleep(0.002)
        return Answer(200)

    app: Any = turns.share(work)
    small, until_s = Counter[str](), 10.0 + trio.current_time()

    async def ask(peer: Peer) -> None:
        while trio.current_time() < until_s:
            await app(peer)
            small[peer.peer] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(EACH):
            nursery.start_soon(ask, Peer("192.0.2.2", LARGE))
        for _ in range(5 * EACH):
            nursery.start_soon(ask, Peer(FLOODED))
    assert small[FLOODED] > 0.28 * small["192.0.2.2"], "0.32 now, 0.24 where all that a turn took is counted"
