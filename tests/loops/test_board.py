"""What dispatchers of several partitions tell each other: better priorities, and suspects that run alone."""

import pytest

from jqd.clock import ManualClock
from jqd.job import PRIORITY_MAX
from jqd.loops.alone import EMPTYING_S, Alone
from jqd.loops.board import FRESH_S, Board
from jqd.store import Suspects, WaitingType

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


def test_a_partition_that_is_looked_at_no_more_holds_up_nobody() -> None:
    told = Told()
    told.board.put(1, [row(1)])
    told.clock.advance(FRESH_S)
    assert told.bound(0) == 1
    told.clock.advance(0.01)
    assert told.bound(0) == PRIORITY_MAX


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


def test_where_there_is_one_partition_nothing_is_noted() -> None:
    board = Board(ManualClock())
    board.join(0, lambda: pytest.fail("it has nobody to wake"))
    board.put(0, [row(1)])
    board.put(0, [])
    assert board.bound(0, lambda row: True) == PRIORITY_MAX


SUSPECT, OTHER = WaitingType("a", 0, "1", 9, alone=True), WaitingType("b", 0, "2", 9)


def test_nothing_of_other_partitions_is_taken_beside_a_suspect() -> None:
    clock = ManualClock()
    clock.advance(1)
    alone = Alone(clock, ALONE_S)
    assert alone.judge(SUSPECT, empty=True, partition=1) is Suspects.ALONE
    assert alone.judge(OTHER, empty=False, partition=0) is None
    assert alone.judge(SUSPECT, empty=False, partition=0) is None
    assert alone.judge(OTHER, empty=False, partition=1) is Suspects.ALONE, "its own store gives nothing beside it"
    clock.advance(ALONE_S)
    assert alone.judge(OTHER, empty=False, partition=0) is Suspects.ALONE, "whatever kills does it soon"
    assert alone.judge(OTHER, empty=True, partition=0) is Suspects.ALONE


def test_when_the_suspect_is_over_others_go_on() -> None:
    clock = ManualClock()
    clock.advance(1)
    alone = Alone(clock, ALONE_S)
    assert alone.judge(SUSPECT, empty=True, partition=1) is Suspects.ALONE
    clock.advance(2)
    assert alone.judge(OTHER, empty=True, partition=0) is Suspects.ALONE
    assert alone.judge(SUSPECT, empty=True, partition=0) is Suspects.NONE, "others have their turn first"


def test_nothing_is_taken_anywhere_while_a_hand_is_to_become_empty() -> None:
    clock = ManualClock()
    clock.advance(1)
    alone = Alone(clock, ALONE_S)
    assert alone.judge(SUSPECT, empty=False, partition=1) is None
    assert alone.judge(OTHER, empty=False, partition=0) is None
    clock.advance(EMPTYING_S / 2)
    assert alone.judge(OTHER, empty=False, partition=0) is None
    assert alone.judge(OTHER, empty=False, partition=1) is Suspects.ALONE, "its own suspect is gone"
    assert alone.judge(OTHER, empty=False, partition=0) is Suspects.ALONE
    assert alone.judge(SUSPECT, empty=False, partition=1) is None
    clock.advance(EMPTYING_S)
    assert alone.judge(OTHER, empty=False, partition=0) is Suspects.ALONE, "it waited long enough"
    assert alone.judge(SUSPECT, empty=False, partition=1) is Suspects.COMPANY
