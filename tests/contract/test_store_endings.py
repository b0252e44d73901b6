"""Endings of several contents of one job, told again to an emptied store: the last one holds, its result with it."""

import itertools
from typing import Any

import pytest

from jqd.domain.job import ChangeKind, Fate, Job, State, lease_claim
from jqd.domain.record import Lane
from jqd.store import JobView
from tests.contract.bench import JOURNAL, StoreBench, changed, orders, outcome

ENDS = [Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD]


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    """A store that nobody ever used has nothing to be told: it gives names at once."""
    await store_bench.store.look(fresh=True)
    return store_bench


def told(view: JobView) -> tuple[object, ...]:
    """What a pusher sees of the ending."""
    return view.state, view.result, view.outcome and view.outcome.message


async def live(bench: StoreBench, fates: tuple[Fate, ...], kept: bool, named: bool = False) -> list[tuple[str, Any]]:
    """Each content of one job ran and ended so; returns what was journaled, contents and endings in turn."""
    owner = await bench.join()
    job = await bench.push(keep_result=kept, name="mine" if named else "")
    if named:
        job = changed(job, await bench.store.reserve_change("any"), ChangeKind.NEW)
        await bench.add(job)
    records: list[tuple[str, Any]] = [("add", job)]
    for number, fate in enumerate(fates, 1):
        if number > 1:
            kind = ChangeKind.REPLACE if named else ChangeKind.RETRY
            records.append(("add", changed(job, await bench.store.reserve_change(job.id), kind)))
            await bench.add(records[-1][1])
        bench.clock.advance(1)
        result = {"result": b"\xa1" + str(number).encode()} if fate is Fate.SUCCEEDED and kept else {}
        held = await bench.claim_one(owner)
        records.append(("settle", outcome(held, fate, message=f"of {number}", **result)))
        await bench.settle(records[-1][1])
    return records


async def forget(bench: StoreBench) -> None:
    """The store is emptied, and knows that all earlier claims were before that."""
    bench.wipe()
    bench.clock.advance(0.001)
    bench.at = dict.fromkeys(bench.at, 0)
    await bench.store.look(fresh=False)


@pytest.mark.parametrize("named", [True, False], ids=["replaced", "retried"])
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not_kept"])
@pytest.mark.parametrize("fates", [*itertools.product(ENDS, ENDS)], ids=str)
async def test_all_of_the_last_ending_holds_in_any_order(
    store_bench: StoreBench, fates: tuple[Fate, ...], kept: bool, named: bool
) -> None:
    records = await live(store_bench, fates, kept, named)
    job: Job = records[0][1]
    before = await store_bench.view(job)
    assert (before.result is not None) == (kept and fates[-1] is Fate.SUCCEEDED)
    for order in orders(store_bench, records):
        await forget(store_bench)
        for method, record in order:
            await getattr(store_bench, method)(record)
        view = await store_bench.view(job)
        assert told(view) == told(before), order
        if [method for method, _ in order[:2]] == ["settle", "settle"] and order[0] is records[1]:
            assert [one.message for one in view.history] == [one.message for one in before.history]
        counts = await store_bench.store.stats()
        assert counts.dead == (fates[-1] is not Fate.SUCCEEDED), order


async def test_of_three_endings_the_last_comes_with_its_result(store_bench: StoreBench) -> None:
    records = await live(store_bench, (Fate.SUCCEEDED,) * 3, kept=True)
    before = told(await store_bench.view(records[0][1]))
    for order in itertools.permutations(records[1::2]):
        await forget(store_bench)
        await store_bench.settle(*(record for _, record in order))
        for _, content in records[0::2]:
            await store_bench.add(content)
        assert told(await store_bench.view(records[0][1])) == before, order


async def test_a_last_ending_without_a_result_leaves_none_of_those_before(store_bench: StoreBench) -> None:
    records = await live(store_bench, (Fate.SUCCEEDED, Fate.SUCCEEDED, Fate.FAILED), kept=True)
    await forget(store_bench)
    for method in ("settle", "add"):
        for _, record in [one for one in records if one[0] == method]:
            await getattr(store_bench, method)(record)
    assert told(await store_bench.view(records[0][1])) == (State.FAILED, None, "of 3")


async def test_an_ending_whose_content_does_not_come_leaves_the_one_before_as_it_is(store_bench: StoreBench) -> None:
    records = await live(store_bench, (Fate.SUCCEEDED, Fate.SUCCEEDED), kept=True)
    job, first, second, last = (record for _, record in records)
    await forget(store_bench)
    await store_bench.settle(first, last)
    await store_bench.add(job)
    assert told(await store_bench.view(job)) == (State.SUCCEEDED, b"\xa11", "of 1")
    store_bench.clock.advance(3601)
    await store_bench.store.purge(100)
    await store_bench.add(second)
    assert told(await store_bench.view(job)) == (State.SUCCEEDED, None, "of 2"), "its result was kept for its time"


async def test_endings_of_a_job_that_does_not_come_are_given_up_with_their_results(store_bench: StoreBench) -> None:
    records = await live(store_bench, (Fate.SUCCEEDED, Fate.SUCCEEDED), kept=True)
    job, first, second, last = (record for _, record in records)
    await forget(store_bench)
    await store_bench.settle(first, last)
    owner = await store_bench.join()
    assert (await store_bench.store.renew_sysid(owner, through=True, settle=True)).settled, "nobody tells more of it"
    store_bench.clock.advance(3 * 86_400)
    await store_bench.store.purge(100)
    await store_bench.add(job, second)
    assert told(await store_bench.view(job)) == (State.WAITING, None, None)


async def test_a_success_of_a_later_content_beats_its_failure_in_whatever_order_all_come(
    store_bench: StoreBench,
) -> None:
    """The job failed, was tried again, and of that both are told; no success of the first content is in it."""
    job = await store_bench.push(keep_result=True)
    owner = await store_bench.join()
    first = outcome(await store_bench.claim_one(owner), Fate.FAILED)
    await store_bench.settle(first)
    store_bench.clock.advance(1)
    again = changed(job, await store_bench.store.reserve_change(job.id), ChangeKind.RETRY)
    await store_bench.add(again)
    held = await store_bench.claim_one(owner)
    dead, won = outcome(held, Fate.DEAD), outcome(held, Fate.SUCCEEDED, result=b"\x05")
    records = [("add", job), ("add", again), ("settle", first), ("settle", dead), ("settle", won)]
    store_bench.clock.advance(1)
    for order in orders(store_bench, records):
        store_bench.wipe()
        store_bench.at = dict.fromkeys(store_bench.at, 0)
        await store_bench.store.look(fresh=False)
        for lane, record in order:
            await getattr(store_bench, lane)(record)
        view = await store_bench.view(job)
        assert (view.state, view.result) == (State.SUCCEEDED, b"\x05"), order
        assert (await store_bench.store.stats())[:5] == (0, 0, 0, 1, 0), order


@pytest.mark.parametrize(
    "meanwhile", ["it is dead", "it is cancelled", "another failed", "it crashed", "it is retried"]
)
async def test_a_success_that_waited_in_its_journal_while_the_lease_was_found_silent(
    store_bench: StoreBench, meanwhile: str
) -> None:
    """Its daemon said 200 and went away. What is tried again by hand runs again, as a new content."""
    owner = await store_bench.join()
    job = await store_bench.push(keep_result=True)
    held = await store_bench.claim_one(owner)
    await store_bench.settle(lease_claim(held, worker="w", silence_s=10, started_at_ms=1))
    told = outcome(held, Fate.SUCCEEDED, result=b"\x05")
    if meanwhile in ("another failed", "it crashed"):
        await store_bench.settle(outcome(held, Fate.RETRY, reason="timeout"))
    else:
        await store_bench.settle(outcome(held, Fate.DEAD, reason="timeout"))
    match meanwhile:
        case "it is cancelled":
            await store_bench.cancel(job.id)
        case "another failed":
            await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.DEAD))
        case "it crashed":
            for _ in range(3):
                await store_bench.claim_one(owner)
                owner = await store_bench.join()
        case "it is retried":
            store_bench.clock.advance(1)
            number = await store_bench.store.reserve_change(job.id)
            await store_bench.add(changed(job, number, ChangeKind.RETRY))
            assert await store_bench.settle(told) == [job.id]
            assert await store_bench.state(job) is State.WAITING
            return
    ended = State.CANCELLED if meanwhile == "it is cancelled" else State.FAILED
    assert await store_bench.state(job) is ended
    assert await store_bench.settle(told) == []
    view = await store_bench.view(job)
    assert (view.state, view.result) == (State.SUCCEEDED, b"\x05")
    assert (await store_bench.store.stats())[:5] == (0, 0, 0, 1, 0)


async def test_of_two_outcomes_of_one_job_it_is_said_which_came_too_late(store_bench: StoreBench) -> None:
    """Both were journaled while the store was away: the job log says of each whether it counted."""
    owner = await store_bench.join()
    await store_bench.push()
    first = await store_bench.claim_one(owner)
    await store_bench.store.release_jobs(owner, {first.job.id: first.fence})
    last = await store_bench.claim_one(owner)
    at = store_bench.at[Lane.OUTCOMES]
    told = [outcome(first, Fate.RETRY, delay_ms=500), outcome(last, Fate.SUCCEEDED)]
    assert await store_bench.store.apply_outcomes(JOURNAL, at, at + 100, told) == [0]
