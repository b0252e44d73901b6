"""One address that asks for very much leaves the others their turns, and nobody is forgotten in line."""

from collections import Counter
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from jqd.http.fairness import ALONE, EACH, EACH_IF_SEVERAL, OTHERS_S, PAUSE_S, WEIGHT_BYTES, FairQueue
from jqd.http.request import SOME_BYTES, Request, Response
from tests.http.peers import FLOOD, Peer

pytestmark = pytest.mark.usefixtures("unstalled")


class Hall:
    """An application behind turns, and who it was asked by, in order."""

    def __init__(self) -> None:
        self.turns = FairQueue()
        self.begun: list[str] = []
        self.held = trio.Event()
        self.held.set()
        self.app: Any = self.turns.share(self.work)

    async def work(self, asked: Request) -> Response:
        assert asked.peer is not None
        self.begun.append(asked.peer)
        await trio.lowlevel.checkpoint()
        await self.held.wait()
        return Response(200)

    def empty(self) -> bool:
        return not (self.turns._under_way or self.turns._lines or self.turns._led)


async def test_who_asks_little_is_not_behind_who_asks_much() -> None:
    hall = Hall()
    async with trio.open_nursery() as nursery:
        for _ in range(FLOOD):
            nursery.start_soon(hall.app, Peer("192.0.2.1"))
        await trio.lowlevel.checkpoint()
        begun = len(hall.begun)
        assert begun <= ALONE
        for _ in range(3):
            await hall.app(Peer("192.0.2.2"))
        # Each of these took a few turns; in each of them as many of the flood were begun.
        assert hall.begun.count("192.0.2.2") == 3
        assert len(hall.begun) < begun + 12 * EACH < FLOOD
    assert hall.begun.count("192.0.2.1") == FLOOD
    assert hall.empty()


@pytest.mark.parametrize(("size", "at_once"), [(SOME_BYTES, ALONE), (SOME_BYTES + 1, EACH)], ids=["small", "larger"])
async def test_of_one_that_is_alone_more_small_requests_begin_in_a_turn(size: int, at_once: int) -> None:
    hall = Hall()
    hall.held = trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(FLOOD):
            nursery.start_soon(hall.app, Peer("192.0.2.1", size))
        grew, before = list[int](), 0
        while before < FLOOD:
            await trio.lowlevel.checkpoint()
            grew.append(len(hall.begun) - before)
            before = len(hall.begun)
        assert at_once / 2 <= max(grew) <= 2 * at_once, "a look may fall into the midst of a turn"
        hall.held.set()
    assert hall.empty()


async def test_who_leaves_is_taken_out_of_the_line() -> None:
    hall, last = Hall(), Peer("192.0.2.1")
    hall.held = trio.Event()
    async with trio.open_nursery() as nursery:
        for _ in range(ALONE):
            nursery.start_soon(hall.app, Peer("192.0.2.1"))
        await wait_all_tasks_blocked()
        last.left = True
        assert await hall.app(last) is None
        assert len(hall.begun) == ALONE
        hall.held.set()
    assert hall.empty()


@pytest.mark.parametrize("size", [0, EACH * WEIGHT_BYTES], ids=["small", "large"])
async def test_while_others_ask_the_loop_is_theirs_for_most_of_the_time(size: int, autojump_clock: MockClock) -> None:
    """Each request is worked at in five turns, as a push is: with 40 turns' worth of them at once the loop would be
    full of one that floods. What it does until another one's answer is counted: of large ones one is begun in a turn.
    """
    hall, steps, begun, each = Hall(), [0], Counter[float](), 1 if size else EACH_IF_SEVERAL

    async def five_turns(asked: Request) -> Response:
        begun[trio.current_time()] += asked.peer == "192.0.2.1"
        for _ in range(5):
            steps[0] += asked.peer == "192.0.2.1"
            await trio.lowlevel.checkpoint()
        return Response(200)

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
    assert trio.current_time() >= FLOOD / EACH_IF_SEVERAL * PAUSE_S / 2
    assert hall.empty()


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
        assert len(hall.begun) <= ALONE
        await app(Peer("198.51.100.1"))
        assert len(hall.begun) < ALONE + 5 * EACH < FLOOD
    assert hall.empty()


async def test_two_that_ask_much_share_alike() -> None:
    hall = Hall()
    async with trio.open_nursery() as nursery:
        for address in ("192.0.2.1", "2001:db8::1"):
            for _ in range(FLOOD):
                nursery.start_soon(hall.app, Peer(address))
            await trio.lowlevel.checkpoint()
        first = hall.begun[ALONE : ALONE + FLOOD]  # behind those of the first, which was alone
        assert abs(first.count("192.0.2.1") - first.count("2001:db8::1")) <= 4 * EACH
    assert len(hall.begun) == 2 * FLOOD
    assert hall.empty()


async def test_one_that_waits_and_is_given_up_leaves_the_line_to_the_others() -> None:
    hall = Hall()
    hall.held = trio.Event()
    scopes = [trio.CancelScope() for _ in range(4 * ALONE)]
    ended: list[int] = []

    async def ask(number: int) -> None:
        with scopes[number]:
            await hall.app(Peer("192.0.2.1"))
            ended.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(len(scopes)):
            nursery.start_soon(ask, number)
            await trio.lowlevel.checkpoint()  # so the first beyond ALONE counts the turns
        for number in (ALONE, ALONE + 1, 3 * ALONE):
            scopes[number].cancel()
        hall.held.set()
    assert len(ended) >= len(scopes) - 3
    assert hall.empty()


async def test_whoever_leads_may_be_given_up_in_the_same_turn_as_who_would_follow() -> None:
    turns = FairQueue(each=1)
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
