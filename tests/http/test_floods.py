"""Who floods with pushes or connections: what is urgent, and what others ask, does not wait behind that."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from jqd.http.config import ListenerConfig
from jqd.http.connection import Connection, ServerContext
from jqd.http.fairness import EACH, PAUSE_S, FairQueue, OwnerQueues, Urgency, Urgent, not_urgent, weight_of
from jqd.http.request import Request, Response
from jqd.http.transport import Turn
from tests.http.peers import FLOOD, Peer
from tests.http.transports import SERVER, Log, MemoryPipe

pytestmark = pytest.mark.usefixtures("unstalled")


async def test_who_floods_with_connections_has_turns_for_handshakes(autojump_clock: MockClock) -> None:
    """200 at once would be 100 ms of the loop in one turn. Who has said nothing yet takes no turn."""
    begun: list[tuple[float, str]] = []

    class Shaking(MemoryPipe):
        async def begin(self, turn: Turn) -> None:
            await self.receive_some(1)
            await turn()
            begun.append((trio.current_time(), self.whose))
            await trio.sleep(0.01)  # the way there and back

        whose = ""

    async def none(_: Request) -> None:
        raise AssertionError("nobody asks for anything")

    house, pipes = ServerContext(none, ListenerConfig(), Log(), SERVER), list[MemoryPipe]()

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


LARGE, LONG_S = 16 << 20, 0.05  # an array, and how long the loop has with it
FLOODS = 200


TOOK_S = 0.02  # of the loop by a handshake, on a slow machine


FLOODED = "192.0.2.1"


@asynccontextmanager
async def flooded(clock: MockClock, urgent: Urgent = not_urgent) -> AsyncIterator[ServerContext]:
    """An address pushes as large arrays as may be, another one asks each second; the first line is long."""

    async def work(asked: Request) -> Response:
        if weight_of(asked) > 1:
            clock.jump(LONG_S)
        await trio.lowlevel.checkpoint()
        return Response(200)

    house = ServerContext(work, ListenerConfig(), Log(), SERVER, urgent=urgent)

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
    async with flooded(autojump_clock, lambda asked: Urgency(weight_of(asked) <= 1)) as house:
        for _ in range(3 * EACH):
            began_s = trio.current_time()
            await house.app(cast("Any", Peer(FLOODED)))
            assert trio.current_time() - began_s < 1


async def test_what_is_urgent_and_large_leaves_the_loop_to_others(autojump_clock: MockClock) -> None:
    """Outcomes by the ten thousand held up everybody's pushes for seconds, and a daemon lost its lease."""
    said = Counter[str]()

    def urgent(asked: Request) -> Urgency:
        said[str(asked.peer)] += 1
        return Urgency.ANY_SIZE

    async with flooded(autojump_clock, urgent):
        said.clear()
        await trio.sleep(4)
    assert 10 <= said[FLOODED] <= 4 / LONG_S / 3, "of them one has three times as long behind it as it took"


async def test_nor_do_handshakes_and_none_is_too_slow_for_having_waited(autojump_clock: MockClock) -> None:
    begun: list[float] = []

    class Shaking(MemoryPipe):
        async def begin(self, turn: Turn) -> None:
            await self.receive_some(1)
            await turn()
            begun.append(trio.current_time())
            autojump_clock.jump(TOOK_S)
            await trio.sleep(0.01)  # the way there and back

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
    lines = OwnerQueues()
    for _ in range(3):
        lines.handshakes.enter("192.0.2.1")
        lines.handshakes.leave("192.0.2.1")
        lines.requests.enter("tenant acme")
        lines.requests.leave("tenant acme")
    assert not any(line.owners.are_several(trio.current_time()) for line in (lines.handshakes, lines.requests))


async def test_a_pause_is_as_long_as_what_was_begun_may_have_taken(autojump_clock: MockClock) -> None:
    """Four of another address that push large arrays, and are never in line, would slow whoever is in one."""
    turns = FairQueue()

    async def work(asked: Request) -> Response:
        if weight_of(asked) > 1:
            autojump_clock.jump(LONG_S)
        await trio.sleep(0.002)
        return Response(200)

    app: Any = turns.share(work)
    small, until_s = Counter[str](), 10.0 + trio.current_time()

    async def ask(peer: Peer) -> None:
        while trio.current_time() < until_s:
            await app(peer)
            small[str(peer.peer)] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(EACH):
            nursery.start_soon(ask, Peer("192.0.2.2", LARGE))
        for _ in range(5 * EACH):
            nursery.start_soon(ask, Peer(FLOODED))
    assert small[FLOODED] > 0.28 * small["192.0.2.2"], "0.32 now, 0.24 where all that a turn took is counted"
