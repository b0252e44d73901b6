"""Large bodies of one owner leave the loop and the disk to the others, and nobody waits alone."""

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from jqd.http.fairness import OTHERS_S, PAUSES, SMALL, WEIGHT_BYTES, WEIGHT_UNSAID, RecentOwners, weight_of
from jqd.http.large_bodies import COSTLY_S, LARGE_BYTES, LARGE_S_MAX, LargeBodyQueue
from jqd.http.request import SOME_BYTES, RequestHead

LONG_S = 0.05  # that the loop has with one


class Bodies:
    """Large bodies of two owners that are worked at, each for LONG_S of the processor."""

    def __init__(self) -> None:
        self.large = LargeBodyQueue(lambda: self.cpu_s)
        self.cpu_s = 0.0
        self.begun: list[tuple[float, str]] = []
        self.under_way = Counter[str]()
        self.most = Counter[str]()

    async def work(self, owner: str, waits_s: float = LONG_S, scope: trio.CancelScope | None = None) -> None:
        self.large.owners.note(owner)
        with scope or trio.CancelScope():
            async with self.large.turn(owner, 0):
                self.begun.append((trio.current_time(), owner))
                self.under_way[owner] += 1
                self.most[owner] = max(self.most[owner], self.under_way[owner])
                self.cpu_s += LONG_S
                await trio.sleep(waits_s)
                self.under_way[owner] -= 1

    def gaps_s(self, owner: str) -> list[float]:
        at = [when for when, whose in self.begun if whose == owner]
        return [round(later - earlier, 6) for earlier, later in pairwise(at)]


async def test_large_bodies_of_one_go_one_after_the_other_while_others_ask(autojump_clock: MockClock) -> None:
    """Six connections with 16 MB in four jobs each made the pushes of all others take 1.5 s."""
    bodies = Bodies()
    bodies.large.owners.note("b")
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(bodies.work, "a")
        nursery.start_soon(bodies.work, "b")
    assert bodies.most["a"] == 1
    # While b works, too, the processor's time is no more than what passed.
    assert bodies.gaps_s("a") == [round((1 + PAUSES) * LONG_S, 6)] * 5
    assert (bodies.begun[0][0], "b") in bodies.begun, "it waits for none of them"


async def test_a_large_one_that_waits_for_the_store_holds_up_the_next_no_longer_than_a_second(
    autojump_clock: MockClock,
) -> None:
    bodies = Bodies()
    bodies.large.owners.note("b")
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(bodies.work, "a", 60.0)
    assert bodies.gaps_s("a") == [LARGE_S_MAX]


async def test_who_sends_large_ones_alone_waits_for_nothing(mock_clock: MockClock) -> None:
    bodies = Bodies()
    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(bodies.work, "a")
        await wait_all_tasks_blocked()
        assert bodies.most["a"] == 6
        mock_clock.jump(LONG_S)


async def test_smaller_ones_count_as_large_for_a_while_of_whom_one_held_the_loop(autojump_clock: MockClock) -> None:
    """Four connections with arrays of wrong jobs, each just below what is large, made others' pushes take 1.2 s."""
    large = LargeBodyQueue()
    assert large.counts("a", LARGE_BYTES + 1)
    assert not large.counts("a", LARGE_BYTES)
    large.note("a", COSTLY_S)
    assert not large.counts("a", LARGE_BYTES)
    large.note("a", 2 * COSTLY_S)
    assert large.counts("a", SOME_BYTES + 1)
    assert not large.counts("a", SOME_BYTES)
    assert not large.counts("b", LARGE_BYTES)
    await trio.sleep(OTHERS_S)
    assert not large.counts("a", LARGE_BYTES)


async def test_large_ones_that_are_given_up_in_line_leave_it_and_no_owner_is_kept(autojump_clock: MockClock) -> None:
    bodies, scopes = Bodies(), [trio.CancelScope() for _ in range(4)]
    bodies.large.owners.note("b")
    async with trio.open_nursery() as nursery:
        for scope in scopes:
            nursery.start_soon(bodies.work, "a", LONG_S, scope)
            await trio.lowlevel.checkpoint()
        for scope in scopes[1:3]:
            scope.cancel()
    assert bodies.gaps_s("a") == [round((1 + PAUSES) * LONG_S, 6)]
    await trio.sleep(PAUSES)
    await bodies.work("b")
    assert [*bodies.large._owners] == ["b"]


@pytest.mark.parametrize(
    ("method", "headers", "weight"),
    [
        ("POST", {"content-length": str(WEIGHT_BYTES)}, 2),
        ("POST", {"transfer-encoding": "chunked"}, WEIGHT_UNSAID),
        ("POST", {}, WEIGHT_UNSAID),  # in chunks
        ("POST", {"content-length": "0"}, SMALL),
        ("GET", {}, SMALL),
    ],
)
def test_a_body_of_unsaid_length_counts_as_one_that_is_as_long_as_may_be(
    method: str, headers: dict[str, str], weight: float
) -> None:
    asked: Any = SimpleNamespace(heading=RequestHead(method, "/", "/", b"", headers))
    assert weight_of(asked) == weight


async def test_who_is_in_line_sleeps_and_pauses_while_one_before_the_latest_waits_for_the_store(
    autojump_clock: MockClock,
) -> None:
    """The line turned without a pause, tens of thousands of times a second; and each began a second after the other."""
    bodies, long_s = Bodies(), 30 * LARGE_S_MAX
    asked = 0

    class Always(RecentOwners):
        def are_several(self, now_s: float | None = None) -> bool:
            nonlocal asked
            asked += 1
            return True

    bodies.large.owners = Always()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bodies.work, "a", long_s)
        await wait_all_tasks_blocked()
        for _ in range(4):
            nursery.start_soon(bodies.work, "a")
        with trio.CancelScope(shield=True):
            await trio.sleep(4 * LARGE_S_MAX)
        assert len(bodies.begun) == 5
        assert min(bodies.gaps_s("a")[1:]) >= round(PAUSES * LONG_S, 6)
        assert asked < 20
        nursery.cancel_scope.cancel()
