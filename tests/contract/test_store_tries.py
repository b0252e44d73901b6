"""Failed attempts that an emptied store is told of again, in any order: each counts once, and for its own content."""

import itertools

import msgspec
import pytest

from jqd.domain.job import INTERRUPTED, SNOOZE, ChangeKind, Fate, Held, State
from jqd.store import Hold
from tests.contract.bench import StoreBench, changed, outcome
from tests.contract.change import ask, push_named
from tests.contract.lent import BEAT_S, forget, handed, lend, mark
from tests.contract.lent import store_bench as store_bench  # the fixture


@pytest.mark.parametrize("reason", ["other", SNOOZE, INTERRUPTED])
async def test_an_earlier_attempt_told_later_takes_nothing_from_a_later_one(
    store_bench: StoreBench, reason: str
) -> None:
    """An earlier snooze took the place of a later one, and a worker that had ended that attempt was given the job."""
    _, (held,) = await lend(store_bench)
    later = Held(held.job, held.fence + 1, 2 if reason == "other" else 1)
    ends = [
        outcome(one, Fate.RETRY, reason=reason, snoozes=at, interruptions=at, delay_ms=1000)
        for at, one in enumerate((held, later), 1)
    ]
    await forget(store_bench)
    await store_bench.add(held.job)
    await store_bench.settle(ends[1])
    await store_bench.settle(ends[0])
    assert await store_bench.settle(handed(later)) == [held.job.id]
    view = await store_bench.view(held.job)
    assert (view.worker, view.snoozes, view.interruptions) == ("", 2, 2)
    assert view.history == (ends if reason == "other" else ends[1:]), "in the order of the attempts"


@pytest.mark.parametrize("has_come", [True, False])
@pytest.mark.parametrize("by_worker", [True, False])
async def test_an_earlier_try_told_behind_a_later_claim_counts(
    store_bench: StoreBench, has_come: bool, by_worker: bool
) -> None:
    """Chaos found that the next attempt had its number once more, where a later claim was given back untried."""
    _, (held,) = await lend(store_bench)
    later = Held(held.job, held.fence + 1, 2)
    owner = await forget(store_bench)
    if has_come:
        await store_bench.add(held.job)
    if by_worker:
        await store_bench.settle(handed(later))
    else:
        assert await store_bench.store.reassert(owner, {held.job.id: later.fence}) == []
    for _ in range(2):
        assert await store_bench.settle(outcome(held, Fate.RETRY)) == []
    if not has_come:
        await store_bench.add(held.job)
    view = await store_bench.view(held.job)
    assert (view.state, view.attempts, view.history) == (State.RUNNING, 2, [outcome(held, Fate.RETRY)])
    if by_worker:
        assert (await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)).given_back == 1
    else:
        await store_bench.store.release_jobs(owner, {held.job.id: later.fence})
    assert (await store_bench.claim_one(await store_bench.join())).attempt == 2


@pytest.mark.parametrize("order", [*itertools.permutations((1, 2, 3)), (1, 1, 2, 3), (3, 2, 1, 2), (2, 2, 3, 2)])
@pytest.mark.parametrize("has_come", [True, False])
@pytest.mark.parametrize("step", [1, -1])
async def test_failed_attempts_count_once_in_whatever_order_they_are_told(
    store_bench: StoreBench, order: tuple[int, ...], has_come: bool, step: int
) -> None:
    """`step` -1: the store had lost all, and its clock was set back, so later claims have lower numbers."""
    _, (held,) = await lend(store_bench)
    await forget(store_bench)
    if has_come:
        await store_bench.add(held.job)
    for attempt in order:
        await store_bench.settle(outcome(Held(held.job, held.fence + 9 + step * attempt, attempt), Fate.RETRY))
    if not has_come:
        await store_bench.add(held.job)
    view = await store_bench.view(held.job)
    assert (view.attempts, [one.attempt for one in view.history]) == (3, sorted(set(order), reverse=step < 0))


@pytest.mark.parametrize("fate", [Fate.RETRY, Fate.FAILED, Fate.DEAD, Fate.SUCCEEDED])
@pytest.mark.parametrize("has_come", [True, False])
async def test_a_later_end_told_behind_the_hand_of_an_earlier_claim_counts(
    store_bench: StoreBench, has_come: bool, fate: Fate
) -> None:
    """A daemon that was away had the job as it was long ago; the one that went on is dead."""
    _, (held,) = await lend(store_bench)
    owner = await forget(store_bench)
    if has_come:
        await store_bench.add(held.job)
    assert await store_bench.store.reassert(owner, {held.job.id: held.fence}) == []
    assert await store_bench.settle(outcome(Held(held.job, held.fence + 1, 2), fate)) == []
    if not has_come:
        await store_bench.add(held.job)
    await store_bench.store.release_jobs(owner, {held.job.id: held.fence})
    if fate is Fate.RETRY:
        assert (await store_bench.claim_one(await store_bench.join())).attempt == 3
    else:
        assert (await store_bench.state(held.job)).is_final


@pytest.mark.parametrize("fate", [Fate.RETRY, Fate.SUCCEEDED])
@pytest.mark.parametrize("has_come", [True, False])
async def test_what_an_earlier_content_did_is_nothing_to_a_later_one_that_a_worker_has(
    store_bench: StoreBench, has_come: bool, fate: Fate
) -> None:
    """Its change comes last. A failure was counted against it; a success took it from its worker."""
    job, owner = await push_named(store_bench), await store_bench.join()
    end = outcome(await store_bench.claim_one(owner), fate)
    await store_bench.settle(end)
    change = changed(job, (await ask(store_bench, "X", "d2", replace=True)).revision, ChangeKind.REPLACE, digest="d2")
    await store_bench.add(change)
    second = await store_bench.claim_one(owner)
    assert second.attempt == 1
    await store_bench.settle(handed(second))
    owner = await forget(store_bench)
    if has_come:
        await store_bench.add(job)
    await store_bench.settle(handed(second))
    assert await store_bench.settle(end) == [job.id]
    if not has_come:
        await store_bench.add(job)
    for _ in range(2):
        (found,) = await store_bench.store.touch([(job.id, second.fence)])
        assert (found.hold, found.held and found.held.attempt) == (Hold.STANDS, 1)
        await store_bench.add(change)
    assert await store_bench.claim(owner) == []


@pytest.mark.parametrize("reason", ["other", SNOOZE])
async def test_a_job_that_comes_waits_for_the_date_of_its_latest_attempt(store_bench: StoreBench, reason: str) -> None:
    _, (held,) = await lend(store_bench)
    await forget(store_bench)
    ends = [
        outcome(Held(held.job, held.fence + at, at), Fate.RETRY, reason=reason, snoozes=at, delay_ms=delay_ms)
        for at, delay_ms in ((1, 3_600_000), (2, 1000))
    ]
    for end in (ends[1], ends[0], ends[1], ends[0]):
        assert await store_bench.settle(end) == []
    await store_bench.add(held.job)
    assert (await store_bench.view(held.job)).eligible_at_ms == store_bench.clock.wall_ms() + 1000


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("has_come", [True, False])
async def test_two_failures_of_one_number_are_two_for_whatever_comes_behind_them(
    store_bench: StoreBench, named: bool, has_come: bool
) -> None:
    """The journal of the first was away when the store had been emptied, so the next one had its number."""
    job = await (push_named(store_bench) if named else store_bench.push())
    held = await store_bench.claim_one(await store_bench.join())
    await forget(store_bench)
    if has_come:
        await store_bench.add(job)
    for at in (0, 1):
        await store_bench.settle(outcome(Held(job, held.fence + at, 1, held.generation), Fate.RETRY))
    if not has_come:
        await store_bench.add(job)
    expires_at_ms = store_bench.clock.wall_ms() + 9_000
    for _ in range(3):
        assert (await store_bench.view(job)).attempts == 2
        revision = await store_bench.store.reserve_change(job.id)
        edit = changed(job, revision, ChangeKind.EDIT, held.generation, expires_at_ms=expires_at_ms)
        await store_bench.add(edit)


@pytest.mark.parametrize("named", [True, False])
async def test_a_job_that_comes_behind_its_failure_waits_as_long_as_that_says(
    store_bench: StoreBench, named: bool
) -> None:
    job = await (push_named(store_bench) if named else store_bench.push())
    held = await store_bench.claim_one(await store_bench.join())
    await forget(store_bench)
    await store_bench.settle(outcome(held, Fate.RETRY, delay_ms=9_000))
    await store_bench.add(job)
    view = await store_bench.view(job)
    assert (view.state, view.eligible_at_ms) == (State.RETRYING, store_bench.clock.wall_ms() + 9_000)


async def test_a_failure_that_is_told_twice_says_nothing_of_the_hand_over_behind_it(store_bench: StoreBench) -> None:
    """What comes too late is told by id: the poll that waits for the hand-over took that for its own."""
    _, (held,) = await lend(store_bench)
    await forget(store_bench)
    await store_bench.add(held.job)
    await store_bench.settle(outcome(held, Fate.RETRY))
    assert await store_bench.settle(outcome(held, Fate.RETRY), handed(Held(held.job, held.fence + 1, 2))) == []


@pytest.mark.parametrize("later_first", [True, False])
async def test_of_attempts_that_printed_the_latest_is_shown_and_goes_with_the_note(
    store_bench: StoreBench, later_first: bool
) -> None:
    _, (held, never) = await lend(store_bench, 2)
    await forget(store_bench)
    ends = [outcome(Held(held.job, held.fence + at, at), Fate.RETRY, log=f"attempt {at}") for at in (1, 2)]
    await store_bench.settle(*(ends[::-1] if later_first else ends), outcome(never, Fate.RETRY, log="never came"))
    await store_bench.add(held.job)
    assert (await store_bench.view(held.job)).log == "attempt 2"
    store_bench.clock.advance(1_000_000)
    await store_bench.store.purge(100)
    await store_bench.add(never.job)
    view = await store_bench.view(never.job)
    assert (view.attempts, view.log) == (0, "")


@pytest.mark.parametrize("text", ["", "x" * 30, "x" * 200, "x" * 300, "x" * 66_000], ids=len)
@pytest.mark.parametrize("retry_first", [True, False])
async def test_a_failure_of_a_content_that_was_claimed_after_its_replacement_is_that_contents(
    store_bench: StoreBench, retry_first: bool, text: str
) -> None:
    """Nothing was lost: the change has its number, and waits in a journal."""
    job = await push_named(store_bench)
    given = await ask(store_bench, "X", "d2", replace=True)
    change = changed(job, given.revision, ChangeKind.REPLACE, digest="d2")
    store_bench.clock.advance(1)
    held = await store_bench.claim_one(await store_bench.join())
    assert held.fence > given.revision > held.generation > 0
    error = msgspec.msgpack.encode(text.encode())
    for step in (0, 1) if retry_first else (1, 0):
        if step:
            await store_bench.add(change)
        else:
            await store_bench.settle(outcome(held, Fate.RETRY, message=text, error=error))
    store_bench.clock.advance(1)
    assert (await store_bench.claim_one(await store_bench.join("two"))).attempt == 1


async def test_a_job_that_was_told_to_run_now_does_not_wait_for_the_failure_before(store_bench: StoreBench) -> None:
    job = await push_named(store_bench)
    held = await store_bench.claim_one(await store_bench.join())
    retry = outcome(held, Fate.RETRY, delay_ms=3_600_000)
    await store_bench.settle(retry)
    store_bench.clock.advance(1)
    now = changed(job, await store_bench.store.reserve_change(job.id), ChangeKind.EDIT, held.generation)
    await store_bench.add(now)
    owner = await forget(store_bench)
    await store_bench.settle(retry)
    await store_bench.add(now)
    assert (await store_bench.claim_one(owner)).attempt == 2


@pytest.mark.parametrize("order", [*itertools.permutations(range(3)), (2, 0, 0, 1, 2), (1, 1, 2, 0)])
@pytest.mark.parametrize("has_come", [True, False])
async def test_interruptions_are_counted_alike_in_whatever_order_they_are_told_again(
    store_bench: StoreBench, order: tuple[int, ...], has_come: bool
) -> None:
    job = await store_bench.push(max_retry=0)
    owner, ends = await store_bench.join(), []
    for number in range(3):
        held = await store_bench.claim_one(owner)
        assert (held.attempt, held.interruptions) == (1, number)
        ends.append(outcome(held, Fate.RETRY, reason=INTERRUPTED, interruptions=number + 1))
        await store_bench.settle(ends[-1])
    before = await store_bench.view(job)
    assert (before.state, before.attempts, before.interruptions, before.history) == (State.WAITING, 0, 3, ends[2:])
    owner = await forget(store_bench)
    if has_come:
        await store_bench.add(job)
    for place in order:
        await store_bench.settle(ends[place])
    if not has_come:
        await store_bench.add(job)
    assert await store_bench.view(job) == before
    held = await store_bench.claim_one(owner)
    assert (held.attempt, held.interruptions) == (1, 3)
    dead = outcome(held, Fate.DEAD, reason=INTERRUPTED, interruptions=4)
    await store_bench.settle(dead)
    view = await store_bench.view(job)
    assert (view.state, view.interruptions, view.history) == (State.FAILED, 4, [*ends[2:], dead])
    revision = await store_bench.store.reserve_change(job.id)
    await store_bench.add(changed(job, revision, ChangeKind.RETRY))
    held = await store_bench.claim_one(owner)
    assert (held.attempt, held.interruptions) == (1, 0), "who tries it anew gives it as many again"
