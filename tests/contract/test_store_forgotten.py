"""What is told of claims that the store has forgotten, and of those it knows still."""

import random

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


BEHIND_US = 120_000_000
"""So far the clock is behind of a server that goes on with what another one had."""


async def lost_claim(bench: StoreBench) -> Held:
    """Of a job that waits here: claimed at another server, whose clock was right, and lost with it."""
    job = await bench.push()
    bench.clock.advance(1)
    return Held(job, bench.clock.wall_ms() * 1000 + BEHIND_US, 1)


@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.DEAD, Fate.RETRY])
async def test_what_was_claimed_by_a_clock_that_was_ahead_of_ours_counts_as_forgotten(
    store_bench: StoreBench, fate: Fate
) -> None:
    lost = await lost_claim(store_bench)
    await next_life(store_bench)
    assert await store_bench.settle(outcome(lost, fate, message="x")) == []
    again = await store_bench.claim(await store_bench.join())
    assert [(held.job.id, held.attempt) for held in again] == ([(lost.job.id, 2)] if fate is Fate.RETRY else [])
    await store_bench.push()
    assert all(held.fence > lost.fence for held in again)
    assert (await store_bench.claim_one(await store_bench.join())).fence > lost.fence


async def test_what_this_life_gave_is_not_forgotten_when_a_claim_is_told_that_is_ahead_of_it(
    store_bench: StoreBench,
) -> None:
    """A daemon that was away for longer than all others waited: of its claims none, and of theirs all are known."""
    lost, earlier = await lost_claim(store_bench), await lost_claim(store_bench)
    other = await store_bench.push("other")
    await next_life(store_bench)
    owner = await store_bench.join()
    old = await store_bench.claim_one(owner, "other")
    await store_bench.store.release_jobs(owner, holds([old]))
    assert await store_bench.settle(outcome(lost, Fate.DEAD), outcome(earlier, Fate.RETRY)) == []
    assert await store_bench.settle(outcome(old, Fate.DEAD)) == [other.id]
    assert await store_bench.settle(outcome(lost, Fate.DEAD)) == [lost.job.id]
    assert [await store_bench.state(each) for each in (lost.job, other)] == [State.FAILED, State.WAITING]
    (again,) = await store_bench.claim(owner)
    assert (again.job.id, again.attempt, again.fence > lost.fence) == (earlier.job.id, 2, True)


async def test_who_knew_a_later_life_ends_an_older_one_that_came_back(store_bench: StoreBench) -> None:
    store = store_bench.store
    first = await store.look(fresh=True)
    await store_bench.push()
    claimed = await store_bench.claim_one(await store_bench.join())
    assert await store.look(fresh=False, before=first.since) == first._replace(fence=claimed.fence)
    later = first.since + BEHIND_US
    again = await store.look(fresh=False, before=later)
    assert again.identity != first.identity
    assert not again.settled
    assert again.since >= later
    assert await store.look(fresh=False, before=later) == again
    assert await store.look(fresh=False, before=later + 5) == again._replace(fence=later + 5, since=later + 5), (
        "nothing was claimed in it, and all are waited for"
    )


async def test_who_starts_and_tells_of_claims_that_were_never_given_here_ends_what_all_had_left(
    store_bench: StoreBench,
) -> None:
    store = store_bench.store
    first = await store.look(fresh=True)
    await store_bench.push()
    held = await store_bench.claim_one(await store_bench.join())
    assert (await store.look(fresh=False, highest=held.fence)).identity == first.identity
    again = await store.look(fresh=False, highest=held.fence + 1)
    assert again.identity != first.identity
    assert not again.settled
    assert (await store.look(fresh=False, highest=held.fence + 9)).identity == again.identity


@pytest.mark.parametrize("seed", range(20))
async def test_daemons_that_know_other_lives_do_not_end_each_others_in_turns(
    store_bench: StoreBench, seed: int
) -> None:
    """Whatever each knows, starts with, and claims in between: once each has looked, the life stays."""
    source, store, bench = random.Random(seed), store_bench.store, store_bench
    await store.look(fresh=True)
    known = [source.randrange(2 * BEHIND_US) + bench.clock.wall_ms() * 1000 for _ in range(4)]
    lives = []
    for daemon in [*source.sample(range(4), 4), *source.choices(range(4), k=8)]:
        is_started = source.random() < 0.3
        look = await store.look(fresh=False, **{"highest" if is_started else "before": known[daemon]})
        assert look.fence >= look.since
        known[daemon] = look.since
        lives.append(look.identity)
        if source.random() < 0.5:
            await bench.push()
            await bench.claim(await bench.join())
    assert len(set(lives[3:])) == 1
