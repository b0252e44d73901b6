"""What is told of claims that the store has forgotten, and of those it knows still."""

import pytest

from jqd.domain.job import Fate, Held, State
from tests.contract.bench import StoreBench, holds, outcome
from tests.contract.test_store_barrier import next_life


@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.DEAD])
async def test_an_ending_counts_of_a_claim_that_was_forgotten(store_bench: StoreBench, fate: Fate) -> None:
    """Its fence lies between the last one the store knows and the beginning of the store's present life."""
    waiting, dated = await store_bench.push(), await store_bench.push(eligible_at_ms=store_bench.clock.wall_ms() + 9000)
    store_bench.clock.advance(1)
    forgotten = store_bench.clock.wall_ms() * 1000 - 5
    await next_life(store_bench)
    lost = [Held(job, forgotten, 1) for job in (waiting, dated)]
    assert await store_bench.settle(*(outcome(held, fate) for held in lost)) == []
    assert [await store_bench.state(job) for job in (waiting, dated)] == [State.FAILED] * 2
    assert await store_bench.claim(await store_bench.join()) == []


async def test_a_retry_of_a_forgotten_claim_counts_its_attempt(store_bench: StoreBench) -> None:
    job = await store_bench.push()
    store_bench.clock.advance(1)
    forgotten = store_bench.clock.wall_ms() * 1000 - 5
    await next_life(store_bench)
    assert await store_bench.settle(outcome(Held(job, forgotten, 1), Fate.RETRY, message="x")) == []
    held = await store_bench.claim_one(await store_bench.join())
    assert (held.job.id, held.attempt) == (job.id, 2)


async def test_a_late_failure_of_a_claim_the_store_knows_still_does_not_count(store_bench: StoreBench) -> None:
    await store_bench.store.look(fresh=False)
    job = await store_bench.push()
    owner = await store_bench.join()
    old = await store_bench.claim_one(owner)
    await store_bench.store.release_jobs(owner, holds([old]))
    assert await store_bench.settle(outcome(old, Fate.DEAD)) == [job.id]
    new = await store_bench.claim_one(owner)
    early = Held(job, new.fence - 1, 1)
    assert await store_bench.settle(outcome(early, Fate.DEAD)) == [job.id]
    assert await store_bench.state(job) is State.RUNNING


async def test_fences_of_a_new_life_are_higher_than_all_that_was_forgotten(store_bench: StoreBench) -> None:
    store_bench.clock.advance(10)
    await next_life(store_bench)
    began_us = store_bench.clock.wall_ms() * 1000
    store_bench.clock.set_wall_ms(1)  # a clock that steps back
    await store_bench.push()
    assert (await store_bench.claim_one(await store_bench.join())).fence > began_us
