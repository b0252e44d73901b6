"""When a suspect is claimed: the rule alone, on a clock that is moved by hand."""

from jqd.loops.alone import EMPTYING_S, OTHERS, Alone
from jqd.store import Suspects
from jqd.testing.clock import ManualClock

ALONE_S = 60.0


def test_when_the_suspect_is_over_others_have_their_turn_first() -> None:
    clock = ManualClock()
    alone = Alone(clock, ALONE_S)
    clock.advance(1)
    assert alone.judge(suspect=False, empty=False, working=True) is Suspects.NONE
    assert alone.judge(suspect=True, empty=True, working=False) is Suspects.ALONE
    alone.taken(1)
    assert alone.judge(suspect=True, empty=False, working=True) is None
    clock.advance(2)
    assert alone.judge(suspect=True, empty=True, working=False) is Suspects.NONE
    clock.advance(2 * OTHERS - 0.5)
    assert alone.judge(suspect=True, empty=True, working=False) is Suspects.NONE
    clock.advance(1)
    assert alone.judge(suspect=True, empty=True, working=False) is Suspects.ALONE
    clock.advance(ALONE_S)
    assert alone.judge(suspect=False, empty=False, working=True) is Suspects.NONE, "whatever kills does it soon"


def test_a_suspect_that_another_daemon_took_holds_up_nobody() -> None:
    clock = ManualClock()
    alone = Alone(clock, ALONE_S)
    assert alone.judge(suspect=True, empty=True, working=False) is Suspects.ALONE
    alone.taken(5)
    assert alone.judge(suspect=False, empty=False, working=True) is Suspects.NONE


def test_a_hand_that_never_empties_takes_the_suspect_in_company() -> None:
    clock = ManualClock()
    alone = Alone(clock, ALONE_S)
    clock.advance(1)
    assert alone.judge(suspect=True, empty=False, working=True) is None
    assert alone.judge(suspect=False, empty=False, working=True) is Suspects.NONE, (
        "what is better goes first; the waiting begins anew"
    )
    clock.advance(EMPTYING_S - 1)
    assert alone.judge(suspect=True, empty=False, working=True) is None
    clock.advance(EMPTYING_S)
    assert alone.judge(suspect=True, empty=False, working=True) is Suspects.COMPANY
    assert alone.judge(suspect=True, empty=False, working=True) is Suspects.COMPANY, (
        "it is not waited for again so soon"
    )
