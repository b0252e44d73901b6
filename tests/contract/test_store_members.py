"""Seats, heartbeats, and what the dead leave behind, on the fake and on a real Valkey."""

import pytest

from jqd.domain.errors import StaleOwner, SysidTaken
from jqd.domain.job import Fate, State
from jqd.store import Member
from tests.contract.bench import StoreBench, holds, ids, outcome


async def test_epochs_and_heartbeats_only_grow(store_bench: StoreBench) -> None:
    one = await store_bench.join("one")
    two = await store_bench.join("two")
    assert one.epoch < two.epoch
    first = await store_bench.members(one)
    second = await store_bench.members(one)
    assert set(first) == {"one", "two"}
    assert first["one"].counter < second["one"].counter
    assert first["two"] == second["two"]
    assert second["one"].epoch == one.epoch
    store_bench.clock.set_wall_ms(1)
    third = await store_bench.members(one)
    assert third["one"].counter == second["one"].counter + 1, "a clock that steps back does not restart it"
    again = await store_bench.join("one")
    assert again.epoch > two.epoch


async def test_a_burnt_epoch_changes_nothing(store_bench: StoreBench) -> None:
    await store_bench.push()
    old = await store_bench.join()
    held = await store_bench.claim(old)
    new = await store_bench.join()
    for call in (
        store_bench.members(old),
        store_bench.store.release_jobs(old, holds(held)),
        store_bench.store.get_held(old),
        store_bench.store.release_sysid(old),
        store_bench.claim(old),
    ):
        with pytest.raises(StaleOwner):
            await call
    assert [(one.job.id, one.attempt) for one in await store_bench.claim(new)] == [(held[0].job.id, 1)]


async def test_a_seat_is_taken_once(store_bench: StoreBench) -> None:
    store = store_bench.store
    owner = await store.reserve_sysid("one", previous_epoch_dead=False, through=True)
    with pytest.raises(SysidTaken):
        await store.reserve_sysid("one", previous_epoch_dead=False, through=True)
    members = await store_bench.members(owner)
    assert await store.reap("one", members["one"], 10) == 0
    assert (await store.reserve_sysid("one", previous_epoch_dead=False, through=True)).epoch > owner.epoch


async def test_a_call_for_a_seat_that_comes_after_the_one_that_replaced_it_changes_nothing(
    store_bench: StoreBench,
) -> None:
    """It was given up, and lay in a network for long: it would burn the epoch of the very daemon that sent it."""
    store = store_bench.store
    given_up = await store.look(fresh=False)
    owner = await store.reserve_sysid("one", True, through=True, seen=given_up.fence)
    with pytest.raises(StaleOwner):
        await store_bench.other.reserve_sysid("one", True, through=True, seen=given_up.fence)
    await store.renew_sysid(owner, through=True)
    seen = (await store.look(fresh=False)).fence
    assert (await store.reserve_sysid("one", True, through=True, seen=seen)).epoch > owner.epoch


async def test_release_gives_back_without_counting(store_bench: StoreBench) -> None:
    owner, other = await store_bench.join("one"), await store_bench.join("two")
    jobs = [await store_bench.push(priority=1) for _ in range(3)]
    held = await store_bench.claim(owner)
    await store_bench.store.release_jobs(other, holds(held))
    assert await store_bench.store.get_held(owner) == holds(held), "they are not the other's to give"
    await store_bench.store.release_jobs(owner, holds(held[:2]))
    assert await store_bench.store.get_held(owner) == holds(held[2:])
    again = await store_bench.claim(owner)
    assert ids(again) == [jobs[0].id, jobs[1].id]
    assert [one.attempt for one in again] == [1, 1]
    await store_bench.store.release_jobs(owner, holds(held))
    assert await store_bench.store.get_held(owner) == holds(again), "only what is held under that fence goes"
    await store_bench.store.release_jobs(owner, {})


async def test_the_dead_are_reaped_in_steps(store_bench: StoreBench) -> None:
    store = store_bench.store
    dead, watcher = await store_bench.join("dead"), await store_bench.join("watcher")
    jobs = [await store_bench.push() for _ in range(5)]
    await store_bench.claim(dead)
    seen = (await store_bench.members(watcher))["dead"]
    await store_bench.members(dead)
    assert await store.reap("dead", seen, 2) == 0, "its heart has beaten since"
    seen = (await store_bench.members(watcher))["dead"]
    assert await store.reap("dead", seen, 2) == 2
    assert (await store_bench.members(watcher))["dead"] == Member(seen.counter, 0, False)
    with pytest.raises(StaleOwner):
        await store_bench.members(dead)
    assert await store.reap("dead", seen, 2) == 2
    assert await store.reap("dead", Member(0, 0, False), 2) == 1
    assert await store.reap("dead", seen, 2) == 0
    assert set(await store_bench.members(watcher)) == {"watcher"}
    assert await store.reap("dead", seen, 2) == 0
    assert ids(await store_bench.claim(watcher)) == [job.id for job in jobs]


async def test_a_new_epoch_survives_a_reaper_of_the_old_one(store_bench: StoreBench) -> None:
    store = store_bench.store
    old = await store_bench.join("one")
    await store_bench.push()
    await store_bench.claim(old)
    seen = (await store_bench.members(old))["one"]
    new = await store_bench.join("one")
    (held,) = await store_bench.claim(new)
    assert await store.reap("one", seen, 10) == 0
    assert await store.get_held(new) == holds([held])


async def test_leaving_frees_seat_and_jobs(store_bench: StoreBench) -> None:
    owner, other = await store_bench.join("one"), await store_bench.join("two")
    job = await store_bench.push()
    held = await store_bench.claim_one(owner)
    await store_bench.store.release_sysid(owner)
    await store_bench.store.release_sysid(owner)
    assert set(await store_bench.members(other)) == {"two"}
    assert await store_bench.state(job) is State.WAITING
    with pytest.raises(StaleOwner):
        await store_bench.members(owner)
    assert await store_bench.settle(outcome(held, Fate.RETRY)) == [job.id]


async def test_held_is_told_in_full(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    for priority in (3, 2, 1):  # the newest are claimed first: fences and ids run against each other
        await store_bench.add(*(store_bench.make(priority=priority) for _ in range(400)))
    expected = [held for _ in range(3) for held in await store_bench.claim(owner, limit=400)]
    assert await store_bench.store.get_held(owner) == holds(expected)
    assert (await store_bench.store.stats()).running == 1200


async def test_wrong_uses_are_told(store_bench: StoreBench) -> None:
    with pytest.raises(ValueError, match="records"):
        await store_bench.cancel(*["x"] * 2001)
