"""What is excused of words on a job is excused by its cause, and no further."""

import pytest
import trio
from trio.testing import MockClock

from jqd.testing.sim.causes import Attempt, Away, Loss
from jqd.testing.sim.matter import EDIT, PUSH, Matter, Order
from jqd.testing.sim.notes import Notes
from jqd.testing.sim.plan import make_plan
from jqd.testing.sim.word import Tale
from jqd.words.job import Fate, State


@pytest.mark.parametrize(("away", "ran", "wrong"), [(True, 10, 0), (True, 11, 0), (False, 10, 1)])
async def test_an_edit_that_comes_back_behind_the_end_is_excused_by_the_daemon_that_was_away_with_it(
    autojump_clock: MockClock, away: bool, ran: int, wrong: int
) -> None:
    """The store lost data while d1 was away, so others ran what there was before the edit that d1 took."""
    history = Notes(make_plan(1))
    orders = (Order(PUSH, 0, 0.0, False, 10), Order(EDIT, 1, 0.0, True, 11))
    tale = Tale(history, Matter(10, "", "a", 0.0, orders))
    for order, node, status in zip(orders, ("d0", "d1"), (201, 200), strict=True):
        tale.answered(tale.asked(order, node), status)
        tale.applied(order.content)
    await trio.sleep_until(1.5)
    history.losses.append(Loss(1.5, 0, 0))
    if away:
        history.aways.append(Away("d1", "killed", 1.4, 9.0, 0))
    await trio.sleep_until(1.6)
    for node in ("d0", "d1"):
        history.renewed(node, 0)
    await trio.sleep_until(5.0)
    tale.started("d0.1", 1, "id", ran, ran)
    tale.ended("d0.1", "id", 1, Fate.SUCCEEDED)
    tale.check_end(State.SUCCEEDED, 11, crashed=False)
    assert sum("unrun:" in each for each in history.violations) == wrong


def test_a_claim_whose_answer_was_lost_counts_as_an_attempt_that_died() -> None:
    history = Notes(make_plan(1))
    history.claims_given |= {("a", 1), ("a", 2), ("a", 3), ("b", 4)}
    history.claims_untried.add(("a", 2))
    told = history.unheard_of("a", [Attempt("d0.1", "d0", 3, 0.0)])
    assert [(attempt.fence, attempt.fate) for attempt in told] == [(1, Fate.RETRY)]
