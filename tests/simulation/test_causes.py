"""What the checker excuses is excused by its cause, and no further."""

import pytest
import trio
from trio.testing import MockClock

from jqd.domain.job import Fate, Outcome, State
from tests.simulation import make_plan
from tests.simulation.awaiting import TELL_S
from tests.simulation.causes import Attempt, Causes, Loss
from tests.simulation.check import History
from tests.simulation.loop import EPOCH_MS
from tests.simulation.plan import LEASE, OLD_S


async def _seen(causes: Causes, *, back_s: float | None, until_s: float) -> tuple[bool, bool]:
    """d0 renews at 1 s, and `back_s` after the store forgot all at 2 s. What is excused: forgotten, unheard."""
    await trio.sleep_until(1.0)
    causes.renewed("d0", 0)
    await trio.sleep_until(2.0)
    causes.losses.append(Loss(2.0, 0))
    if back_s is not None:
        await trio.sleep(back_s)
        causes.renewed("d0", 0)
    await trio.sleep_until(until_s)
    return causes.forgotten(0, 1.5, "d0", trio.current_time()), causes.unheard(0, "d0")


async def test_who_notices_a_loss_within_the_lease_that_others_wait_excuses_nothing(autojump_clock: MockClock) -> None:
    assert await _seen(Causes(1), back_s=LEASE.lease_s * 0.9, until_s=60.0) == (False, False)


async def test_who_notices_a_loss_later_excuses_what_was_forgotten(autojump_clock: MockClock) -> None:
    causes = Causes(2)
    assert await _seen(causes, back_s=LEASE.lease_s * 1.1, until_s=60.0) == (True, False)
    assert not causes.forgotten(0, 2.5, "d0", 60.0), "it was told after the loss"
    assert not causes.forgotten(1, 1.5, "d0", 60.0), "another partition lost it"


async def test_of_who_has_not_noticed_yet_the_store_may_not_have_heard(autojump_clock: MockClock) -> None:
    causes = Causes(1)
    assert await _seen(causes, back_s=None, until_s=2.0 + LEASE.lease_s * 0.9) == (False, False)
    await trio.sleep(LEASE.lease_s * 0.2)
    assert causes.forgotten(0, 1.5, "d0", trio.current_time())
    assert causes.unheard(0, "d0")
    causes.renewed("d0", 0)
    assert not causes.unheard(0, "d0")


async def test_who_never_came_to_a_partition_is_waited_for_as_long_as_a_new_store_is_asked(
    autojump_clock: MockClock,
) -> None:
    """Seed 920056 over two partitions, with flows: one was there for the first time while a daemon stood still."""
    causes = Causes(2)
    causes.renewed("d0", 0)
    await trio.sleep(5.0)
    causes.renewed("d1", 1)
    assert not causes.came_late(1, 1.0, "d0", 4.0 + OLD_S)
    assert causes.came_late(1, 1.0, "d0", 5.0 + OLD_S)
    assert not causes.came_late(0, 1.0, "d0", 5.0 + OLD_S), "it came to the other"
    await trio.sleep(OLD_S + 1.0)
    causes.renewed("d0", 1)
    assert causes.came_late(1, 1.0, "d0", 90.0)
    assert not causes.came_late(1, trio.current_time(), "d0", 90.0), "it took that after it had come"


@pytest.mark.parametrize("away_s", [None, LEASE.lease_s * 0.9, LEASE.lease_s * 1.1])
async def test_a_child_may_fail_for_a_result_that_the_store_forgot_while_its_daemon_was_away(
    autojump_clock: MockClock, away_s: float | None
) -> None:
    """Seed 39990: nobody else knew the parent, whose daemon stood still, so there was none to take a result of."""
    plan = make_plan(39990, frozenset({"wipe", "pause"}), flows=True)
    history = History(plan)
    child = next(number for number, work in enumerate(plan.works) if work.takes and work.on_parent_failure == "cancel")
    parents = list(plan.works[child].after)
    for number in (child, *parents):
        history.acked(number, f"id-{number}", "d0")
    history.awaiting.pushed(child, parents)
    history.stories[child].results_gone = True
    history.renewed("d0", 0)
    await trio.sleep(1.0)
    if away_s is not None:
        history.losses.append(Loss(1.0, 0))
        await trio.sleep(away_s)
    history.renewed("d0", 0)
    await trio.sleep(60.0)
    assert history.awaiting.excuses(child, State.FAILED) == (away_s is not None and away_s > LEASE.lease_s)
    history.stories[child].results_gone = False
    assert not history.awaiting.excuses(child, State.FAILED)


@pytest.mark.parametrize("after_s", [TELL_S / 2, TELL_S * 2])
async def test_a_child_may_begin_whose_other_parent_ends_as_one_is_tried_anew(
    autojump_clock: MockClock, after_s: float
) -> None:
    """Seed 41040, with limits: the parents lie in two partitions, and the end was told 3 ms after the retry."""
    plan = make_plan(41040, frozenset(), flows=True, limits=True)
    history = History(plan)
    child = next(number for number, work in enumerate(plan.works) if len(work.after) == 2)
    anew, other = plan.works[child].after
    for number in (child, anew, other):
        history.acked(number, f"id-{number}", "d0")
    history.awaiting.pushed(child, [anew, other])
    stories = history.stories

    def end(number: int, fence: int, fate: Fate) -> None:
        stories[number].attempts.append(Attempt("d0.1", "d0", fence, 0.0, fate, trio.current_time()))
        history.awaiting.settled([Outcome(f"id-{number}", fence, fate, "a", 0, 1)])

    end(anew, 1, Fate.FAILED)
    history.awaiting.retried(stories[anew], "d0", 1)
    await trio.sleep(after_s)
    end(other, 2, Fate.SUCCEEDED)
    history.awaiting.started(stories[child], "d0.1")
    assert bool(history.violations) == (after_s > TELL_S)


@pytest.mark.parametrize("is_counted", [True, False])
async def test_an_attempt_that_its_daemon_interrupted_as_it_ended_has_its_number_again(
    autojump_clock: MockClock, is_counted: bool
) -> None:
    """Seed 42132: the worker was silent while its daemon drained, and another began the job at once."""
    history = History(make_plan(1, frozenset()))
    story = history.stories[0]
    for fence, node in ((1, "d0"), (2, "d1")):
        story.attempts.append(Attempt(f"{node}.1", node, fence, 0.0))
        history.numbered(0, fence, 1)
        history.ended(f"{node}.1", 0, fence, Fate.RETRY, is_counted=is_counted)
    assert bool(history.violations) == is_counted


async def test_a_child_may_be_cancelled_for_a_failure_that_the_store_forgot(autojump_clock: MockClock) -> None:
    """Seed 40212: the parent succeeded elsewhere, while the daemon stood still that had written both."""
    plan = make_plan(40212, frozenset(), flows=True)
    history = History(plan)
    child = next(number for number, work in enumerate(plan.works) if work.on_parent_failure == "cancel" and work.after)
    history.awaiting.pushed(child, list(plan.works[child].after))
    parents = [history.stories[number] for number in plan.works[child].after]
    for fence, parent in enumerate(parents):
        parent.state = State.SUCCEEDED
        parent.attempts.append(Attempt("d1.1", "d1", fence, 0.0, Fate.SUCCEEDED))
    assert not history.awaiting.excuses(child, State.CANCELLED)
    parents[0].attempts.append(Attempt("d0.1", "d0", len(parents), 0.0, Fate.DEAD))
    assert history.awaiting.excuses(child, State.CANCELLED)
    assert not history.awaiting.excuses(child, State.FAILED)


@pytest.mark.parametrize("revisions", [(0, 1, 2), (0, 2, 1), (0, 2, 0)])
async def test_what_failed_for_a_parent_may_begin_if_a_later_release_says_so(
    autojump_clock: MockClock, revisions: tuple[int, ...]
) -> None:
    """Seed 40114: the parent was tried anew while the failure was on its way, and both releases came together."""
    history = History(make_plan(1, frozenset()))
    history.acked(0, "id-0", "d0")
    for expires_at_ms, revision in zip((0, EPOCH_MS, 0), revisions, strict=True):
        history.applied(0, expires_at_ms, revision)
    await trio.sleep(60.0)
    history.in_flight(["id-0"])
    history._check_start(history.stories[0], "d0.1", 1, trio.current_time())
    assert any("no good since" in what for what in history.violations) == (revisions[-1] < 2)


@pytest.mark.parametrize("is_away", [True, False])
async def test_a_push_behind_a_parent_may_be_refused_whose_journal_the_store_forgot(
    autojump_clock: MockClock, is_away: bool
) -> None:
    """Seed 42381: its daemon was cut off before the loss, took it behind that, and nobody else knew it."""
    plan = make_plan(42381, frozenset(), flows=True, awaits=True)
    history = History(plan)
    child = next(number for number, work in enumerate(plan.works) if work.after)
    history.renewed("d0", 0)
    history.losses.append(Loss(0.0, 0))
    if is_away:
        history.gone("d0", "cut off")
    await trio.sleep(1.0)
    for number in plan.works[child].after:
        history.acked(number, f"id-{number}", "d0")
    history.renewed("d0", 0)
    history.awaiting.pushed(child, list(plan.works[child].after))
    history.kin.refused(child, 422, "d1")
    assert bool(history.violations) != is_away


async def test_a_child_may_be_cancelled_for_a_parent_that_was_found_silent_before_its_success_was_told(
    autojump_clock: MockClock,
) -> None:
    """Seed 41776: the daemon that had taken the report could not read its journal, and another ended the attempt."""
    plan = make_plan(41776, frozenset(), flows=True, limits=True)
    history = History(plan)
    child = 31
    (parent,) = plan.works[child].after
    history.acked(parent, "id", "d0")
    history.awaiting.pushed(child, [parent])
    story = history.stories[parent]
    story.state = State.SUCCEEDED
    story.attempts.append(Attempt("p1.1", "d2", 1, 0.0, Fate.SUCCEEDED))
    assert not history.awaiting.excuses(child, State.CANCELLED)
    history.reported("id", 1, Fate.DEAD, "d1")
    assert history.awaiting.excuses(child, State.CANCELLED)


@pytest.mark.parametrize("seen", ["", "by a right clock", "stored", "by its own daemon"])
async def test_a_push_behind_a_parent_may_be_refused_whose_id_is_of_an_hour_to_come(
    autojump_clock: MockClock, seen: str
) -> None:
    """Seed 40750: the clock of its daemon was set forward, whose disk stood still before the store had the parent."""
    plan = make_plan(40750, frozenset(), flows=True)
    history = History(plan)
    child = next(number for number, work in enumerate(plan.works) if work.after)
    if seen != "by a right clock":
        history.jumps.append((0.0, 3600.0))
    for number in plan.works[child].after:
        history.acked(number, f"id-{number}", "d0")
        if seen == "stored":
            history.applied(number, 0)
    history.awaiting.pushed(child, list(plan.works[child].after))
    history.kin.refused(child, 422, "d0" if seen == "by its own daemon" else "d1")
    assert bool(history.violations) == bool(seen)


async def test_a_job_whose_success_is_told_again_ended_before_the_loss(autojump_clock: MockClock) -> None:
    """Seed 2015 over two partitions: the journals had given it up, and the store that forgot it was told of its end."""
    plan = make_plan(2015, frozenset({"rollback", "trim"}), follows=True)
    history = History(plan)
    number = plan.pushes[0].numbers[0]
    story = history.stories[number]
    history.acked(number, "id", "d0")
    story.attempts.append(Attempt("d0.1", "d0", 7, 0.0))
    await trio.sleep(1.0)
    history.reported("id", 7, Fate.RETRY, "d0")
    await trio.sleep(1.0)
    history.reported("id", 7, Fate.SUCCEEDED, "d0")
    history.losses.append(Loss(3.0, 0))
    await trio.sleep(2.0)
    history.reported("id", 7, Fate.SUCCEEDED, "d0")
    assert [each.fate_at_s for each in story.attempts] == [2.0]
    history.check_states({number: None})
    assert history.violations == []


async def test_a_job_that_was_cancelled_for_a_parent_ended_when_that_failed(autojump_clock: MockClock) -> None:
    """Seed 920090 over two partitions, with flows: the journals had given it up when the store forgot it."""
    plan = make_plan(39990, frozenset({"wipe", "trim"}), flows=True)
    history = History(plan)
    child = next(number for number, work in enumerate(plan.works) if work.on_parent_failure == "cancel" and work.after)
    parent, *_ = plan.works[child].after
    for number in (parent, child):
        history.acked(number, f"id-{number}", "d0")
    history.awaiting.pushed(child, [parent])
    history.stories[parent].attempts.append(Attempt("d0.1", "d0", 7, 1.0, Fate.FAILED, 2.0))
    history.losses.append(Loss(1.5, 0))
    history.check_states({child: None})
    assert len(history.violations) == 1
    history.losses.append(Loss(3.0, 0))
    history.check_states({child: None})
    assert len(history.violations) == 1
