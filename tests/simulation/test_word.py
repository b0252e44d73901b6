"""What is excused of words on a job, and of what may start when, is excused by its cause, and no further."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from jqd.domain.job import Fate, State
from tests.simulation.causes import Attempt, Away, Loss
from tests.simulation.limited import Limited
from tests.simulation.matter import EDIT, PUSH, Matter, Order
from tests.simulation.notes import Notes
from tests.simulation.plan import make_plan
from tests.simulation.said import Word as Said
from tests.simulation.say import PUT, Limit, Say
from tests.simulation.word import Tale


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
    history.losses.append(Loss(1.5, 0))
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


@pytest.mark.parametrize(("fate", "wrong"), [(Fate.SUCCEEDED, 0), (Fate.DEAD, 1)])
async def test_an_edit_of_what_had_run_already_is_excused_by_its_success_alone(
    autojump_clock: MockClock, fate: Fate, wrong: int
) -> None:
    """Its worker was found silent, so it waited and could be edited; the report came behind that."""
    history = Notes(make_plan(1))
    push, edit = Order(PUSH, 0, 0.0, False, 10), Order(EDIT, 1, 0.0, True, 11)
    tale = Tale(history, Matter(10, "", "a", 0.0, (push, edit)))
    tale.answered(tale.asked(push, "d0"), 201)
    tale.started("p1.1", 1, "id", 10, 10)
    await trio.sleep(2.0)
    tale.answered(tale.asked(edit, "d1"), 200)
    tale.ended("p1.1", "id", 1, fate)
    tale.check_end(State.SUCCEEDED if fate is Fate.SUCCEEDED else State.FAILED, 11, crashed=False)
    assert sum("unrun:" in each for each in history.violations) == wrong


@pytest.mark.parametrize(("away", "wrong"), [("", 1), ("d1", 1), ("d0 d1", 0)])
async def test_a_constraint_that_was_lost_with_all_who_had_heard_of_it_holds_nobody(
    autojump_clock: MockClock, away: str, wrong: int
) -> None:
    plan = replace(make_plan(1), nodes=2, faults=())
    history = Notes(plan)
    word = Said(Say(0.0, 1, PUT, "c1", 1, None, Limit(("b",), 1, 0.0)), "d1", 0.0, 0.1)
    limited = Limited(history, [word])
    history.runs = lambda job_id, life: iter(["p1.1"])
    history.renewed("d1", 0)
    await trio.sleep_until(5.0)
    history.losses.append(Loss(5.0, 0))
    history.aways += [Away(node, "killed", 4.0, 20.0) for node in away.split()]
    await trio.sleep_until(5.1)
    history.renewed("d1", 0)
    await trio.sleep_until(12.0)
    for fence, job_id in enumerate(("x", "y")):
        history.claimed_s[0, fence] = 12.0
        limited.started("p1.1", "b", job_id, fence)
    assert len(history.violations) == wrong


@pytest.mark.parametrize(("succeeded", "wrong"), [((), 1), (("x",), 0)])
async def test_what_runs_again_after_a_success_that_was_told_late_has_no_place_any_more(
    autojump_clock: MockClock, succeeded: tuple[str, ...], wrong: int
) -> None:
    """Seed 41550: the store forgot the success, and its daemon could not read its journal for six seconds."""
    history = Notes(replace(make_plan(1), nodes=2, faults=()))
    word = Said(Say(0.0, 1, PUT, "c1", 1, None, Limit(("b",), 1, 0.0)), "d1", 0.0, 0.1)
    limited = Limited(history, [word], succeeded.__contains__)
    history.runs = lambda job_id, life: iter(["d1.1"])
    await trio.sleep_until(12.0)
    for fence, job_id in enumerate(("x", "y")):
        history.claimed_s[0, fence] = 12.0
        limited.started("d1.1", "b", job_id, fence)
    assert len(history.violations) == wrong
