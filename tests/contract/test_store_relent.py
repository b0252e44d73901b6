"""Leases that a store is told of again, or late: of two words on one job that of the later claim counts."""

import pytest

from jqd.domain.errors import StoreChanged
from jqd.domain.job import Fate, Held, State
from jqd.store import Hold
from tests.contract.bench import JOURNAL, StoreBench, ids, outcome
from tests.contract.lent import BEAT_S, forget, handed, lend, mark
from tests.contract.lent import store_bench as store_bench  # the fixture


async def test_an_emptied_store_is_told_again_of_leases(store_bench: StoreBench) -> None:
    _, (held,) = await lend(store_bench)
    for job_first in (True, False):
        owner = await forget(store_bench)
        if job_first:
            await store_bench.add(held.job)
        assert await store_bench.settle(handed(held)) == []
        if not job_first:
            (early,) = await store_bench.store.touch([(held.job.id, held.fence)])
            assert (early.hold, early.held, early.worker) == (Hold.STANDS, None, "w"), "it has not come yet"
            await store_bench.add(held.job)
        assert await store_bench.claim(owner) == []
        assert (await store_bench.view(held.job)).worker == "w"
    assert await store_bench.settle(outcome(held, Fate.SUCCEEDED)) == []
    assert await store_bench.state(held.job) is State.SUCCEEDED


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD, Fate.RETRY])
@pytest.mark.parametrize("job_first", [True, False])
async def test_a_hand_over_told_after_its_end_means_nothing(
    store_bench: StoreBench, fate: Fate, job_first: bool
) -> None:
    _, (held,) = await lend(store_bench)
    await forget(store_bench)
    if job_first:
        await store_bench.add(held.job)
    await store_bench.settle(outcome(held, fate))
    assert await store_bench.settle(handed(held)) == [held.job.id]
    if not job_first:
        await store_bench.add(held.job)
    assert (await store_bench.view(held.job)).worker == ""
    assert await store_bench.state(held.job) is not State.RUNNING


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD, Fate.RETRY])
@pytest.mark.parametrize("has_come", [True, False])
async def test_an_outcome_of_a_later_claim_counts_against_an_older_lease(
    store_bench: StoreBench, fate: Fate, has_come: bool
) -> None:
    """The simulation found that it did not while the job had not come: it ran again after it had failed for good. Today
    an end counts either way, and only a RETRY shows whether the older lease stays: no seed met that in hundreds."""
    _, (held,) = await lend(store_bench)
    await forget(store_bench)
    if has_come:
        await store_bench.add(held.job)
    await store_bench.settle(handed(held))
    later = Held(held.job, held.fence + 1, 2)
    assert await store_bench.settle(outcome(later, fate)) == []
    if not has_come:
        await store_bench.add(held.job)
    view = await store_bench.view(held.job)
    expected = {Fate.SUCCEEDED: State.SUCCEEDED, Fate.RETRY: State.RETRYING}.get(fate, State.FAILED)
    assert (view.state, view.worker, view.attempts) == (expected, "", 2)
    assert (await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)).given_back == 0


async def test_of_two_hand_overs_the_later_stays(store_bench: StoreBench) -> None:
    _, (held,) = await lend(store_bench)
    later = Held(held.job, held.fence + 1, 2)
    for order in ((held, later), (later, held)):
        await forget(store_bench)
        await store_bench.add(held.job)
        for one in order:
            await store_bench.settle(handed(one, f"w{one.attempt}"))
        (found,) = await store_bench.store.touch([(held.job.id, later.fence)])
        assert (found.hold, found.worker) == (Hold.STANDS, "w2")


@pytest.mark.parametrize("has_come", [True, False])
async def test_a_later_claim_of_a_daemon_takes_the_job_from_an_older_lease(
    store_bench: StoreBench, has_come: bool
) -> None:
    """The worker had given it back, which no journal tells."""
    _, (held,) = await lend(store_bench)
    for handed_first in (True, False):
        owner = await forget(store_bench)
        if has_come:
            await store_bench.add(held.job)
        if handed_first:
            await store_bench.settle(handed(held))
            assert await store_bench.store.reassert(owner, {held.job.id: held.fence}) == [held.job.id], "not the same"
        assert await store_bench.store.reassert(owner, {held.job.id: held.fence + 1}) == []
        if not handed_first:
            assert await store_bench.settle(handed(held)) == [held.job.id]
        if not has_come:
            await store_bench.add(held.job)
        assert await store_bench.store.get_held(owner) == {held.job.id: held.fence + 1}
        assert (await store_bench.view(held.job)).daemon == "one"


async def test_a_hand_over_told_again_to_its_daemon_means_nothing_when_a_later_claim_failed(
    store_bench: StoreBench,
) -> None:
    """The store was rolled back: the worker had given the job back, which no journal tells."""
    _, (held,) = await lend(store_bench)
    owner = await forget(store_bench)
    await store_bench.add(held.job)
    assert await store_bench.store.reassert(owner, {held.job.id: held.fence}) == []
    later = Held(held.job, held.fence + 1, 1)
    assert await store_bench.settle(outcome(later, Fate.RETRY)) == []
    assert await store_bench.settle(handed(held)) == [held.job.id]
    assert await store_bench.store.get_held(owner) == {held.job.id: held.fence}, "it gives that back"


@pytest.mark.parametrize("in_hand", [True, False])
async def test_what_was_told_again_and_never_heard_of_is_given_back_untried(
    store_bench: StoreBench, in_hand: bool
) -> None:
    """The simulation found a job dead by an attempt that no worker began, where its daemon had it in flight still."""
    _, (held, unseen) = await lend(store_bench, 2)
    owner = await forget(store_bench)
    await store_bench.add(held.job)
    if in_hand:
        holds = {one.job.id: one.fence for one in (held, unseen)}
        assert await store_bench.store.reassert(owner, holds) == []
    await store_bench.settle(handed(held), handed(unseen))
    found = await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)
    assert (found.leases, found.given_back) == ([], 2)
    await store_bench.add(unseen.job)
    assert [one.attempt for one in await store_bench.claim(await store_bench.join())] == [1, 1]


async def test_what_a_daemon_handed_over_and_died_is_no_attempt_until_the_worker_is_heard(
    store_bench: StoreBench,
) -> None:
    """The simulation found a job dead that no worker had seen: its daemon died before it answered the poll."""
    owner = await store_bench.join()
    await store_bench.add(store_bench.make(), store_bench.make())
    one, two = await store_bench.claim(owner)
    assert await store_bench.store.apply_outcomes(JOURNAL, 0, 9, [handed(one)], old=True) == []
    assert await store_bench.store.apply_outcomes(JOURNAL, 0, 9, [handed(one)], old=True) is None, "what was late?"
    found = await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)
    assert (found.leases, found.given_back) == ([], 1)
    assert await store_bench.store.apply_outcomes(JOURNAL, 9, 10, [handed(two)], old=True) == []
    await store_bench.store.touch([(two.job.id, two.fence)])
    (lease,) = (await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)).leases
    assert ids(lease.jobs) == [two.job.id]


async def test_a_worker_that_spoke_in_this_life_is_known_to_be_silent(store_bench: StoreBench) -> None:
    _, (held,) = await lend(store_bench)
    await forget(store_bench)
    await store_bench.add(held.job)
    await store_bench.settle(handed(held))
    await store_bench.store.touch([(held.job.id, held.fence)])
    (lease,) = (await store_bench.store.find_silent({BEAT_S: await mark(store_bench)}, 9)).leases
    assert ids(lease.jobs) == [held.job.id]


async def test_of_another_life_nothing_is_said(store_bench: StoreBench) -> None:
    _, (held,) = await lend(store_bench)
    claim = (held.job.id, held.fence)
    store_bench.wipe()
    for call in (
        lambda: store_bench.store.touch([claim]),
        lambda: store_bench.store.release_entrusted([claim]),
        lambda: store_bench.store.find_silent({}, 9),
    ):
        with pytest.raises(StoreChanged):
            await call()
        await store_bench.store.look(fresh=False)
        store_bench.wipe()
