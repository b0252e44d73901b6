"""What the fake alone shows, whose rows can be looked at and put back: what stays, and a store that went back."""

import pytest

from jqd.domain.job import Fate, State
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench, outcome
from tests.contract.change import push_named
from tests.contract.lent import BEAT_S, forget, handed, lend, mark


async def fake() -> tuple[FakeStore, StoreBench]:
    clock = ManualClock()
    store = FakeStore(clock)
    await store.look(fresh=True)
    return store, StoreBench(store, clock, wipe=store.wipe)


def keys(store: FakeStore) -> set[str]:
    return {key.decode().rpartition("}:")[2] for key in store.server.keyspace.image()}


async def test_of_a_lease_that_a_daemon_takes_back_nothing_stays() -> None:
    """Which content the worker had was kept for ever."""
    store, bench = await fake()
    job, owner = await push_named(bench), await bench.join()
    held = await bench.claim_one(owner)
    assert held.generation, "else nothing of it is kept"
    owner = await forget(bench)
    await bench.add(job)
    await bench.settle(handed(held))
    assert await store.reassert(owner, {job.id: held.fence + 1}) == []
    await store.release_jobs(owner, {job.id: held.fence + 1})
    assert (await store.find_silent({BEAT_S: await mark(bench)}, 9)).leases == []
    assert "leases" not in keys(store)


@pytest.mark.parametrize("by_worker", [True, False])
@pytest.mark.parametrize("retry_first", [True, False])
async def test_a_store_that_went_back_counts_the_attempt_that_it_has_in_hand_again(
    by_worker: bool, retry_first: bool
) -> None:
    """Its claim is known, and what came of it is not: the hand-over of the next attempt may be told first."""
    store, bench = await fake()
    owner, (held,) = await lend(bench)
    image, places = store.image(), dict(bench.at)
    bench.clock.advance(1)
    retry = outcome(held, Fate.RETRY)
    await bench.settle(retry)
    second = await bench.claim_one(owner)
    bench.clock.advance(1)
    store.restart(image)
    bench.at = places
    await bench.store.look(fresh=False)
    owner = await bench.join()
    if retry_first:
        await bench.settle(retry)
    if by_worker:
        await bench.settle(handed(second))
    else:
        assert await bench.store.reassert(owner, {held.job.id: second.fence}) == []
    if not retry_first:
        await bench.settle(retry)
    if by_worker:
        await bench.store.release_entrusted([(held.job.id, second.fence)])
    else:
        await bench.store.release_jobs(owner, {held.job.id: second.fence})
    view = await bench.view(held.job)
    assert (view.state, view.attempts, view.history) == (State.RETRYING, 1, [retry])


async def test_a_store_that_went_back_counts_that_attempt_behind_the_failure_of_the_next_one_too() -> None:
    """The worker said of the next one that it failed before the first one's end was told: both say attempt 1."""
    store, bench = await fake()
    owner, (held,) = await lend(bench)
    image, places = store.image(), dict(bench.at)
    bench.clock.advance(1)
    retry = outcome(held, Fate.RETRY)
    await bench.settle(retry)
    second = await bench.claim_one(owner)
    bench.clock.advance(1)
    store.restart(image)
    bench.at = places
    await store.look(fresh=False)
    await bench.settle(handed(second))
    (found,) = await store.touch([(held.job.id, second.fence)])
    assert found.held is not None
    await bench.settle(outcome(found.held, Fate.RETRY))
    await bench.settle(retry)
    assert (await bench.view(held.job)).attempts == 2


async def test_who_was_asked_to_cancel_a_job_and_handed_it_over_is_not_asked_for_ever() -> None:
    store, bench = await fake()
    owner, job = await bench.join(), await bench.push()
    held = await bench.claim_one(owner)
    await bench.cancel(job.id)
    assert "asked:one" in keys(store)
    await bench.settle(handed(held))
    assert (await store.renew_sysid(owner, through=True)).cancels == []
    assert "asked:one" not in keys(store)
