"""What follows a job and needs no push: it comes with the outcome that counts, with no other, and once."""

import pytest

from jqd.domain.carried import carry
from jqd.domain.followers import follower_id
from jqd.domain.job import NIL, ChangeKind, Fate, Held, Job, Outcome, State
from jqd.domain.jobid import made_id
from jqd.domain.outcome_followers import encode_as_jobs, followers_in
from jqd.domain.record import Lane, decode_outcomes, encode_outcomes
from jqd.store import JobView
from tests.contract.bench import JOURNAL, OTHER_JOURNAL, StoreBench, changed, orders, outcome
from tests.contract.lent import handed
from tests.contract.test_store_endings import forget


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    return store_bench


def won(held: Held, *names: str, **fields: object) -> Outcome:
    """A success that brings jobs of these types."""
    items = [{"name": name, "argument": None} for name in names or ("next",)]
    follows = encode_as_jobs(items, held.job.id, held.job.jobtype, held.generation, 5, options=[])
    return outcome(held, Fate.SUCCEEDED, follows=follows, **fields)


def child(job: Job, generation: int = 0, place: int = 0) -> str:
    return made_id(follower_id(job.id, generation, place))


async def begun(bench: StoreBench) -> tuple[Job, Held]:
    job = await bench.push()
    return job, await bench.claim_one(await bench.join())


async def there(bench: StoreBench, job_id: str) -> bool:
    return isinstance(await bench.store.get_job(job_id), JobView)


async def test_they_wait_once_their_parent_has_ended_and_are_found_by_name_and_parent(store_bench: StoreBench) -> None:
    job, held = await begun(store_bench)
    at = store_bench.at[Lane.OUTCOMES]
    assert await store_bench.settle(won(held, "next", "other", "next")) == []
    again = await store_bench.store.apply_outcomes(JOURNAL, at, store_bench.at[Lane.OUTCOMES], [won(held, "next")])
    assert again is None, "its answer was lost"
    its = [child(job, 0, place) for place in range(3)]
    assert its == sorted(its)
    assert [(await store_bench.view(one)).state for one in its] == [State.WAITING] * 3
    assert await store_bench.store.resolve(f"{job.id}.1") == its[1]
    view = await store_bench.view(its[1])
    assert (view.jobtype, view.name, view.created_at_ms, view.flow and view.flow.parent) == (
        "other",
        f"{job.id}.1",
        5,
        job.id,
    )
    (row,) = await store_bench.store.list_links([job.id], 9)
    assert row is not None
    assert row.children == 3
    assert (await store_bench.store.get_outbox(9, 9)).entries == []
    owner = await store_bench.join("two")
    assert [one.job.id for one in await store_bench.claim(owner, "next")] == [its[0], its[2]], "in their order"


@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.DEAD, Fate.RETRY])
async def test_a_failure_brings_none(store_bench: StoreBench, fate: Fate) -> None:
    job, held = await begun(store_bench)
    await store_bench.settle(outcome(held, fate, follows=won(held).follows))
    assert not await there(store_bench, child(job))


async def test_a_content_that_was_replaced_while_it_ran_brings_none(store_bench: StoreBench) -> None:
    job, held = await begun(store_bench)
    revision = await store_bench.store.reserve_change(job.id)
    await store_bench.add(changed(job, revision, ChangeKind.REPLACE))
    assert await store_bench.settle(won(held)) == [job.id]
    assert not await there(store_bench, child(job))


async def test_of_two_attempts_that_succeed_the_first_told_brings_them(store_bench: StoreBench) -> None:
    job, first = await begun(store_bench)
    await store_bench.settle(outcome(first, Fate.RETRY))
    second = await store_bench.claim_one(await store_bench.join("two"))
    assert await store_bench.settle(won(first, "a"), won(second, "b", "c")) == [job.id]
    assert (await store_bench.view(child(job))).jobtype == "a"
    assert not await there(store_bench, child(job, 0, 1))


async def test_an_emptied_store_gets_them_once_in_any_order_of_two_successes_and_their_own_end(
    store_bench: StoreBench,
) -> None:
    """Of the successes either may count first; what ended does not begin again, as its id is the same in both."""
    job, first = await begun(store_bench)
    await store_bench.settle(outcome(first, Fate.RETRY))
    second = await store_bench.claim_one(await store_bench.join("two"))
    await store_bench.settle(won(first))
    end = outcome(await store_bench.claim_one(await store_bench.join(), "next"), Fate.SUCCEEDED)
    for order in orders(store_bench, [("add", job), ("settle", won(first)), ("settle", won(second)), ("settle", end)]):
        await forget(store_bench)
        for method, record in order:
            await getattr(store_bench, method)(record)
        assert (await store_bench.view(child(job))).state is State.SUCCEEDED, order


async def test_an_emptied_store_may_get_their_end_in_the_same_call(store_bench: StoreBench) -> None:
    _, held = await begun(store_bench)
    await store_bench.settle(won(held))
    end = outcome(await store_bench.claim_one(await store_bench.join(), "next"), Fate.SUCCEEDED)
    await forget(store_bench)
    assert await store_bench.settle(won(held), end) == []
    assert (await store_bench.view(end.job_id)).state is State.SUCCEEDED


async def test_one_that_was_pushed_for_another_success_is_that_job(store_bench: StoreBench) -> None:
    job, held = await begun(store_bench)
    name = follower_id(job.id, 0, 0)
    pushed = store_bench.make("next", name=name)
    revision = await store_bench.store.reserve_change(pushed.id)
    await store_bench.add(changed(pushed, revision, ChangeKind.NEW, digest="made"))
    assert await store_bench.settle(won(held)) == []
    assert (await store_bench.store.resolve(name), await there(store_bench, child(job))) == (pushed.id, False)


def copied(bench: StoreBench, ended: Outcome, keep: str) -> Outcome:
    """What retention writes of it."""
    frames = carry(Lane.OUTCOMES, encode_outcomes([ended]), {keep}, bench.at[Lane.OUTCOMES] - 100)
    ((lane, records, body),) = frames
    assert (lane, records) == (Lane.OUTCOMES, 1)
    (copy,) = decode_outcomes(body)
    assert (copy.result, copy.job_id) == (NIL, ended.job_id)
    return copy


async def test_a_copy_begins_none_anew_that_was_here_and_is_deleted(store_bench: StoreBench) -> None:
    """Also where its parent is deleted, and nothing says any more that it ever was."""
    job, held = await begun(store_bench)
    ended = won(held, "next", "other", keep_result=True, result=b"\x01")
    await store_bench.settle(ended)
    copy = copied(store_bench, ended, child(job))
    assert [one.name for one in followers_in([copy])[0]] == [f"{job.id}.0"], "the other one is not kept"
    next_end = outcome(await store_bench.claim_one(await store_bench.join(), "next"), Fate.SUCCEEDED)
    await store_bench.settle(next_end)
    store_bench.clock.advance(10_000_000)
    await store_bench.store.purge(100)
    assert not await there(store_bench, job.id)
    assert not await there(store_bench, child(job))
    await store_bench.settle(copy)
    assert not await there(store_bench, child(job))


@pytest.mark.parametrize("how", ["skip", "left out"])
async def test_a_copy_brings_those_that_were_gone_before_the_store_came_to_them(
    store_bench: StoreBench, how: str
) -> None:
    job, held = await begun(store_bench)
    ended = won(held)
    await store_bench.settle(ended)
    copy, end = copied(store_bench, ended, child(job)), store_bench.at[Lane.OUTCOMES]
    await forget(store_bench)
    if how == "skip":
        await store_bench.store.skip(JOURNAL, Lane.OUTCOMES, 0, end, gone=True)
    else:
        await store_bench.store.apply_outcomes(JOURNAL, 0, end, [outcome(held, Fate.SUCCEEDED)], left_out=True)
    store_bench.at[Lane.OUTCOMES] = end
    assert not await there(store_bench, child(job))
    await store_bench.settle(copy)
    assert (await store_bench.view(child(job))).state is State.WAITING


@pytest.mark.parametrize("by", ["outcome", "outbox"])
@pytest.mark.parametrize("same", [True, False], ids=["same claim", "earlier claim"])
async def test_they_come_behind_an_end_that_another_journal_wrote_without_them(
    store_bench: StoreBench, by: str, same: bool
) -> None:
    """Retention wrote the end again; then the store went back to when the parent was in a hand, whose claim it knows.
    Of another claim that it knows nothing follows, as ever."""
    job, held = await begun(store_bench)
    store_bench.clock.advance(0.001)
    await store_bench.store.new_life(store_bench.store.identity)
    await store_bench.store.look(fresh=False)
    again = outcome(held, Fate.SUCCEEDED)
    assert await store_bench.store.apply_outcomes(OTHER_JOURNAL, 0, 1, [again]) == []
    follows = won(held).follows if by == "outcome" else b"\x92\xa0\x90"
    fence = held.fence if same else held.fence - 1
    assert await store_bench.settle(outcome(held, Fate.SUCCEEDED, fence=fence, follows=follows)) == [job.id]
    waits = (await store_bench.store.get_outbox(9, 999)).entries
    assert (await there(store_bench, child(job)) or bool(waits)) == same


@pytest.mark.parametrize("by", ["outcome", "outbox"])
@pytest.mark.parametrize("is_held", [True, False], ids=["in a hand", "given back"])
@pytest.mark.parametrize("first", ["change", "outcome"])
async def test_they_come_of_a_content_that_was_replaced_since_in_whatever_order_a_store_that_went_back_is_told(
    store_bench: StoreBench, by: str, is_held: bool, first: str
) -> None:
    """The store went back to when the parent was in a hand: it had ended, and was begun anew after that."""
    job, held = await begun(store_bench)
    store_bench.clock.advance(0.001)
    again = changed(job, await store_bench.store.reserve_change(job.id), ChangeKind.RETRY)
    await store_bench.store.new_life(store_bench.store.identity)
    await store_bench.store.look(fresh=False)
    if not is_held:
        await store_bench.join()
    follows = won(held).follows if by == "outcome" else b"\x92\xa0\x90"
    for what in (first, *{"change", "outcome"} - {first}):
        if what == "change":
            await store_bench.add(again)
        else:
            await store_bench.settle(outcome(held, Fate.SUCCEEDED, follows=follows))
    assert (await store_bench.view(job)).state is State.WAITING
    waits = (await store_bench.store.get_outbox(9, 999)).entries
    assert await there(store_bench, child(job)) or waits


@pytest.mark.parametrize("ends", [False, True], ids=["it runs", "it ended"])
async def test_one_that_was_handed_over_in_the_call_that_brings_it_is_in_that_hand_alone(
    store_bench: StoreBench, ends: bool
) -> None:
    job, held = await begun(store_bench)
    await forget(store_bench)
    follower = Held(Job(child(job), "next"), held.fence + 1, 1)
    its_end = [outcome(follower, Fate.SUCCEEDED)] * ends
    await store_bench.settle(won(held), handed(follower), *its_end)
    assert (await store_bench.view(child(job))).state is (State.SUCCEEDED if ends else State.RUNNING)
    assert (await store_bench.store.stats()).waiting == 0
    assert await store_bench.claim(await store_bench.join(), "next") == []


async def test_nothing_of_a_deleted_one_stays(store_bench: StoreBench) -> None:
    job, held = await begun(store_bench)
    await store_bench.settle(won(held))
    await store_bench.settle(outcome(await store_bench.claim_one(await store_bench.join(), "next"), Fate.SUCCEEDED))
    store_bench.clock.advance(10_000_000)
    await store_bench.store.purge(100)
    assert await store_bench.store.resolve(follower_id(job.id, 0, 0)) is None
