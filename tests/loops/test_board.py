"""What dispatchers of several partitions tell each other: better priorities, and suspects that run alone."""

import pytest
import trio

from jqd.loops.alone import EMPTYING_S, Alone
from jqd.loops.board import MOMENT_S, RECENT_S, TROUBLE_S, Board
from jqd.store import Suspects, WaitingType
from jqd.words.clock import ManualClock
from jqd.words.job import PRIORITY_MAX
from tests.loops.house import TrioClock

ALONE_S = 60.0


def row(priority: int, jobtype: str = "a", waiting: int = 1) -> WaitingType:
    return WaitingType(jobtype, priority, "1", waiting)


class Told:
    """Three partitions' dispatchers, as the board knows them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.board = Board(self.clock)
        self.woken: list[int] = []
        for number in range(3):
            self.board.join(number, lambda number=number: self.woken.append(number))  # type: ignore[misc]
            self.board.begin(number)
            self.board.rest(number)

    def bound(self, partition: int, *cannot: str) -> int:
        return self.board.bound(partition, lambda row: row.jobtype not in cannot)


def test_the_best_job_of_another_partition_that_may_run_is_the_bound() -> None:
    told = Told()
    told.board.put(0, [row(5)])
    told.board.put(1, [row(4, "b"), row(3, "c"), row(1, "d", waiting=0)])
    assert told.bound(0) == 3
    assert told.bound(0, "c") == 4
    assert told.bound(0, "b", "c") == PRIORITY_MAX
    assert told.bound(1) == 5, "its own do not count"
    assert told.bound(2) == 3


def test_a_dispatcher_that_hangs_or_may_not_claim_holds_up_nobody() -> None:
    told = Told()
    told.board.begin(1)
    told.board.put(1, [row(1)])
    told.clock.advance(TROUBLE_S)
    assert told.bound(0) == 1
    told.clock.advance(0.01)
    assert told.bound(0) == PRIORITY_MAX, "its call hangs"
    told.board.rest(1)
    told.clock.advance(3_600)
    assert told.bound(0) == 1, "it had no reason to look since: the workers were busy"
    told.board.leave(1)
    assert told.bound(0) == PRIORITY_MAX
    assert told.woken == [0, 2]


def test_others_are_woken_when_nothing_as_good_is_left() -> None:
    told = Told()
    told.board.put(1, [row(2)])
    told.board.put(1, [row(2), row(3)])
    told.board.put(1, [row(1)])
    assert told.woken == []
    told.board.put(1, [row(2)])
    assert told.woken == [0, 2]
    told.board.put(1, [])
    assert told.woken == [0, 2, 0, 2]


async def test_a_claim_waits_a_moment_for_those_that_have_not_looked_for_long(autojump_clock: None) -> None:
    clock = TrioClock()
    board = Board(clock)
    for number in range(3):
        board.join(number, lambda: None)
    await trio.sleep(1)
    board.begin(1)
    began_s = trio.current_time()
    await board.wait_recent(0)
    assert trio.current_time() - began_s == pytest.approx(MOMENT_S), "it has not looked yet"
    board.put(1, [])
    began_s = trio.current_time()
    await board.wait_recent(0)
    assert trio.current_time() == began_s, "it has just looked, and the third one may not claim"
    await trio.sleep(2 * RECENT_S)
    began_s = trio.current_time()
    await board.wait_recent(0)
    assert trio.current_time() - began_s == pytest.approx(MOMENT_S)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(board.wait_recent, 0)
        await trio.sleep(MOMENT_S / 2)
        began_s = trio.current_time()
        board.put(1, [row(1)])
    assert trio.current_time() == began_s
    assert board.bound(0, lambda row: True) == 1


async def test_where_there_is_one_partition_nothing_is_waited_for() -> None:
    board = Board(ManualClock())
    board.join(0, lambda: pytest.fail("it has nobody to wake"))
    board.begin(0)
    board.put(0, [row(1)])
    board.put(0, [])
    board.leave(0)
    await board.wait_recent(0)
    assert board.bound(0, lambda row: True) == PRIORITY_MAX


SUSPECT, OTHER = WaitingType("a", 0, "1", 9, suspect=True), WaitingType("b", 0, "2", 9)


def test_nothing_of_other_partitions_is_taken_beside_a_suspect() -> None:
    clock = ManualClock()
    clock.advance(1)
    alone = Alone(clock, ALONE_S)
    assert alone.judge(SUSPECT, empty=True, partition=1) is Suspects.ALONE
    assert alone.judge(OTHER, empty=False, partition=0) is None
    assert alone.judge(SUSPECT, empty=False, partition=0) is None
    assert alone.judge(OTHER, empty=False, partition=1) is Suspects.NONE, "its own store gives nothing beside it"
    clock.advance(ALONE_S)
    assert alone.judge(OTHER, empty=False, partition=0) is Suspects.NONE, "whatever kills does it soon"
    assert alone.judge(OTHER, empty=True, partition=0) is Suspects.NONE


def test_when_the_suspect_is_over_others_go_on() -> None:
    clock = ManualClock()
    clock.advance(1)
    alone = Alone(clock, ALONE_S)
    assert alone.judge(SUSPECT, empty=True, partition=1) is Suspects.ALONE
    clock.advance(2)
    assert alone.judge(OTHER, empty=True, partition=0) is Suspects.NONE
    assert alone.judge(SUSPECT, empty=True, partition=0) is Suspects.NONE, "others have their turn first"


def test_a_suspect_that_is_over_holds_up_nobody_although_its_partition_has_nothing_more() -> None:
    clock = ManualClock()
    clock.advance(1)
    alone = Alone(clock, ALONE_S)
    assert alone.judge(SUSPECT, empty=True, partition=1) is Suspects.ALONE
    clock.advance(2)
    assert alone.judge(OTHER, empty=True, partition=0) is Suspects.NONE
    assert alone.judge(OTHER, empty=False, partition=0) is Suspects.NONE, "beside what was taken just now"
    assert alone.judge(OTHER, empty=False, partition=2) is Suspects.NONE


def test_better_jobs_do_not_wait_for_a_suspect() -> None:
    clock = ManualClock()
    clock.advance(1)
    alone = Alone(clock, ALONE_S)
    better = OTHER._replace(priority=-1)
    assert alone.judge(SUSPECT, empty=False, partition=1) is None
    assert alone.judge(better, empty=False, partition=0) is Suspects.NONE
    clock.advance(EMPTYING_S - 1)
    assert alone.judge(SUSPECT, empty=False, partition=1) is None, "the waiting began anew"
    clock.advance(2)
    assert alone.judge(OTHER, empty=False, partition=0) is None


def test_nothing_is_taken_anywhere_while_a_hand_is_to_become_empty() -> None:
    clock = ManualClock()
    clock.advance(1)
    alone = Alone(clock, ALONE_S)
    assert alone.judge(SUSPECT, empty=False, partition=1) is None
    assert alone.judge(OTHER, empty=False, partition=0) is None
    clock.advance(EMPTYING_S / 2)
    assert alone.judge(OTHER, empty=False, partition=0) is None
    assert alone.judge(OTHER, empty=False, partition=1) is Suspects.NONE, "its own suspect is gone"
    assert alone.judge(OTHER, empty=False, partition=0) is Suspects.NONE
    assert alone.judge(SUSPECT, empty=False, partition=1) is None
    clock.advance(EMPTYING_S)
    assert alone.judge(OTHER, empty=False, partition=0) is Suspects.NONE, "it waited long enough"
    assert alone.judge(SUSPECT, empty=False, partition=1) is Suspects.COMPANY
