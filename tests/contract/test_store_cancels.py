"""Cancels, successes and failures of one attempt that meet: what stands does not hang on the order they come in."""

from itertools import permutations
from typing import Any

import msgspec
import pytest

from jqd.domain.job import Fate, Outcome, State
from jqd.domain.record import cancel_of
from tests.contract.bench import StoreBench, holds, ids, outcome, outcome_of
from tests.contract.limited import KEYED


async def test_a_cancel_ends_what_nobody_holds(store_bench: StoreBench) -> None:
    ready = await store_bench.push()
    later = await store_bench.push(eligible_at_ms=store_bench.clock.wall_ms() + 9000)
    stays = await store_bench.push()
    await store_bench.cancel(ready.id, later.id, ready.id)
    assert await store_bench.state(ready) is State.CANCELLED
    assert await store_bench.state(later) is State.CANCELLED
    assert ids(await store_bench.claim(await store_bench.join())) == [stays.id]
    assert (await store_bench.store.stats())[:4] == (0, 0, 1, 2)


async def test_a_cancel_tells_the_jobtype_of_each(store_bench: StoreBench) -> None:
    """Wherever the job is; nobody else knows whose it was."""
    owner = await store_bench.join()
    held = await store_bench.push("acme\x1fmail")
    await store_bench.claim_one(owner, held.jobtype)
    ready = await store_bench.push("acme\x1fbill", queue=KEYED)
    later = await store_bench.push("bill", eligible_at_ms=store_bench.clock.wall_ms() + 9000)
    job_ids = [held.id, ready.id, later.id, ready.id, store_bench.make().id]
    told = ["acme\x1fmail", "acme\x1fbill", "bill", "acme\x1fbill", ""]
    assert await store_bench.cancel(*job_ids) == told


async def test_a_cancel_of_a_held_job_is_noted(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    jobs = [await store_bench.push() for _ in range(4)]
    retried, succeeded, given_back, reaped = await store_bench.claim(owner)
    await store_bench.cancel(*(job.id for job in jobs))
    view = await store_bench.view(jobs[0])
    assert view.state is State.RUNNING
    assert view.cancel_asked
    await store_bench.settle(outcome(retried, Fate.RETRY, message="x"), outcome(succeeded, Fate.SUCCEEDED))
    await store_bench.store.release_jobs(owner, holds([given_back]))
    await store_bench.store.release_sysid(owner)
    states = [await store_bench.state(job) for job in jobs]
    assert states == [State.CANCELLED, State.SUCCEEDED, State.CANCELLED, State.CANCELLED]
    assert not any([(await store_bench.view(job)).cancel_asked for job in jobs])
    view = await store_bench.view(jobs[0])
    assert view.outcome is not None
    assert view.outcome.message == "x"
    assert reaped.job.id == jobs[3].id


async def test_a_cancel_after_a_success_changes_nothing(store_bench: StoreBench) -> None:
    job = await store_bench.push()
    await store_bench.settle(outcome(await store_bench.claim_one(await store_bench.join()), Fate.SUCCEEDED))
    await store_bench.cancel(job.id)
    assert await store_bench.state(job) is State.SUCCEEDED
    assert not (await store_bench.view(job)).cancel_asked


@pytest.mark.parametrize("order", list(permutations(("job", "cancel", "success"))), ids="-".join)
@pytest.mark.parametrize("number", [0, 1 << 52])
async def test_a_success_beats_a_cancel_in_whatever_order_they_come(
    store_bench: StoreBench, order: tuple[str, ...], number: int
) -> None:
    """It did run. `number`: up to which change the cancel is meant, for a job that was on its way."""
    job = store_bench.make(keep_result=True)
    for what in order:
        match what:
            case "job":
                await store_bench.add(job)
            case "cancel":
                await store_bench.cancel(cancel_of(job.id, number))
            case _:
                assert await store_bench.settle(outcome_of(job, Fate.SUCCEEDED)) == []
    view = await store_bench.view(job)
    assert (view.state, view.result, view.cancel_asked) == (State.SUCCEEDED, b"\x05", False)
    assert (await store_bench.store.stats())[:5] == (0, 0, 0, 1, 0)
    assert await store_bench.settle(outcome_of(job, Fate.SUCCEEDED)) == [job.id], "once"


@pytest.mark.parametrize("order", list(permutations(("job", "failure", "success"))), ids="-".join)
@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.DEAD])
@pytest.mark.parametrize("apart", [True, False])
async def test_a_success_beats_a_failure_in_whatever_order_they_come(
    store_bench: StoreBench, order: tuple[str, ...], fate: Fate, apart: bool
) -> None:
    """A worker reports to one daemon, and another finds it silent. `apart`: in calls of their own."""
    job = store_bench.make(keep_result=True)
    waiting: list[Outcome] = []
    for what in order:
        if what == "job":
            await store_bench.settle(*waiting)
            waiting.clear()
            await store_bench.add(job)
            continue
        waiting.append(outcome_of(job, fate if what == "failure" else Fate.SUCCEEDED))
        if apart:
            await store_bench.settle(*waiting)
            waiting.clear()
    await store_bench.settle(*waiting)
    view = await store_bench.view(job)
    assert (view.state, view.result) == (State.SUCCEEDED, b"\x05")
    assert (await store_bench.store.stats())[:5] == (0, 0, 0, 1, 0)
    assert await store_bench.settle(outcome_of(job, Fate.SUCCEEDED)) == [job.id], "once"


async def test_a_success_beats_the_end_of_a_cancelled_attempt_in_the_same_call(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    jobs = [await store_bench.push(keep_result=True) for _ in range(2)]
    held = await store_bench.claim(owner)
    await store_bench.cancel(*(job.id for job in jobs))
    earlier = [msgspec.structs.replace(outcome_of(one.job, Fate.SUCCEEDED), fence=one.fence - 1) for one in held]
    told = [outcome(held[0], Fate.FAILED), earlier[0], outcome(held[1], Fate.RETRY), earlier[1]]
    assert await store_bench.settle(*told) == []
    for job in jobs:
        view = await store_bench.view(job)
        assert (view.state, view.result) == (State.SUCCEEDED, b"\x05")
    assert (await store_bench.store.stats())[:5] == (0, 0, 0, 2, 0)


async def test_a_failure_does_not_beat_a_cancel_that_ended_the_job(store_bench: StoreBench) -> None:
    job = await store_bench.push()
    await store_bench.cancel(job.id)
    for fate in (Fate.FAILED, Fate.DEAD, Fate.RETRY):
        assert await store_bench.settle(outcome_of(job, fate)) == [job.id]
    assert await store_bench.state(job) is State.CANCELLED


@pytest.mark.parametrize("order", list(permutations(("add", "cancel", "settle"))), ids="-".join)
@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.DEAD, Fate.RETRY])
@pytest.mark.parametrize("number", [0, 1 << 52])
async def test_a_cancel_beats_a_failure_in_whatever_order_they_come(
    store_bench: StoreBench, order: tuple[str, ...], fate: Fate, number: int
) -> None:
    """As they came live, and again after the store was emptied. `number`: up to which change the cancel is meant."""
    owner = await store_bench.join()
    job = await store_bench.push()
    held = await store_bench.claim_one(owner)
    records: dict[str, Any] = {"add": job, "cancel": cancel_of(job.id, number), "settle": outcome(held, fate)}
    await store_bench.cancel(records["cancel"])
    await store_bench.settle(records["settle"])
    assert await store_bench.state(job) is State.CANCELLED
    store_bench.wipe()
    store_bench.at = dict.fromkeys(store_bench.at, 0)
    await store_bench.store.look(fresh=False)
    for record in order:
        await getattr(store_bench, record)(records[record])
    view = await store_bench.view(job)
    assert (view.state, view.cancel_asked) == (State.CANCELLED, False)
    assert (await store_bench.store.stats())[:5] == (0, 0, 0, 1, 0)


async def test_a_late_failure_does_not_take_a_cancel_from_who_has_the_job(store_bench: StoreBench) -> None:
    owner, job = await store_bench.join(), await store_bench.push()
    before = await store_bench.claim_one(owner)
    await store_bench.store.release_jobs(owner, holds([before]))
    await store_bench.claim_one(owner)
    await store_bench.cancel(job.id)
    assert await store_bench.settle(outcome(before, Fate.RETRY)) == [job.id]
    assert (await store_bench.store.renew_sysid(owner, through=True)).cancels, "its worker is still to be stopped"
