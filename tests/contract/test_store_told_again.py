"""An emptied store is told again by journals, one after the other: what has ended stays until all have told theirs."""

import pytest

from jqd.domain.errors import StoreUnsettled
from jqd.domain.job import ChangeKind, Fate, Job, Outcome, State
from jqd.domain.record import cancel_of
from tests.contract.bench import StoreBench, changed, orders, outcome

KEPT = 5  # ended_keep_jobs of these stores
DAY_S = 86_400
HOUR_S = 3_600


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    return store_bench


async def ended(bench: StoreBench, jobs: int, **fields: object) -> list[tuple[Job, Outcome]]:
    """Jobs that succeeded, a second after each other."""
    owner, told = await bench.join(), []
    for _ in range(jobs):
        job = await bench.push()
        bench.clock.advance(1)
        held = await bench.claim_one(owner)
        one = outcome(held, Fate.SUCCEEDED, finished_at_ms=bench.clock.wall_ms(), **fields)
        await bench.settle(one)
        told.append((job, one))
    return told


async def forget(bench: StoreBench) -> None:
    """FLUSHALL, while no daemon is through its barrier any more."""
    bench.wipe()
    bench.clock.advance(0.001)
    bench.at = dict.fromkeys(bench.at, 0)
    await bench.store.look(fresh=False)


async def settle(bench: StoreBench) -> None:
    """All daemons are through."""
    owner = await bench.store.reserve_sysid("one", previous_epoch_dead=True, through=True)
    assert (await bench.store.renew_sysid(owner, through=True, settle=True)).settled


async def test_nothing_is_purged_before_all_has_been_told(store_bench: StoreBench) -> None:
    told = await ended(store_bench, 2 * KEPT)
    await forget(store_bench)
    await store_bench.settle(*(one for _, one in told))
    await store_bench.add(*(job for job, _ in told))
    store_bench.clock.advance(3 * DAY_S)
    assert (await store_bench.store.purge(100)).rows == 0
    with pytest.raises(StoreUnsettled):
        await store_bench.store.delete_dead([told[0][0].id])
    with pytest.raises(StoreUnsettled):
        await store_bench.store.clean_ended(store_bench.clock.wall_ms(), 100)
    assert all([await store_bench.state(job) is State.SUCCEEDED for job, _ in told])
    await settle(store_bench)
    assert (await store_bench.store.purge(100)).rows == 2 * KEPT


async def test_a_cancel_outlives_the_older_content_until_the_newer_one_is_told(store_bench: StoreBench) -> None:
    """Three journals: of the first content, of the cancel, and last of the content that it was meant for."""
    first = changed(store_bench.make(name="mine", eligible_at_ms=2**41), 5, ChangeKind.NEW)
    newer = changed(first, 7, ChangeKind.REPLACE)
    await forget(store_bench)
    await store_bench.cancel(cancel_of(first.id, 8))
    await store_bench.add(first)
    others = [changed(store_bench.make(name=f"{n}"), 20 + n, ChangeKind.NEW) for n in range(2 * KEPT)]
    await store_bench.add(*others)
    await store_bench.cancel(*(cancel_of(one.id, 50) for one in others))
    while (await store_bench.store.purge(100)).rows:
        continue
    await store_bench.add(newer)
    assert await store_bench.state(newer) is State.CANCELLED


async def test_what_follows_is_pushed_before_what_has_ended_goes(store_bench: StoreBench) -> None:
    """A follower that ran is known again by its own journal; if it were gone, it would be pushed anew."""
    told = await ended(store_bench, 2 * KEPT, follows=b"f")
    await forget(store_bench)
    await store_bench.settle(*(one for _, one in told))
    await store_bench.add(*(job for job, _ in told))
    await settle(store_bench)
    assert (await store_bench.store.purge(100)).rows == 0
    left = (await store_bench.store.get_outbox(100, 1 << 20)).entries
    assert len(left) == 2 * KEPT
    await store_bench.store.drop_outbox(left[1:])
    assert (await store_bench.store.purge(100)).rows == 0
    await store_bench.store.drop_outbox(left[:1])
    assert (await store_bench.store.purge(100)).rows == KEPT


async def test_what_cannot_be_pushed_does_not_fill_the_store_for_ever(store_bench: StoreBench) -> None:
    told = await ended(store_bench, 2 * KEPT, follows=b"f")
    await forget(store_bench)
    await store_bench.settle(*(one for _, one in told))
    await store_bench.add(*(job for job, _ in told))
    await settle(store_bench)
    store_bench.clock.advance(HOUR_S - 1)
    assert (await store_bench.store.purge(100)).rows == 0
    store_bench.clock.advance(2)
    assert (await store_bench.store.purge(100)).rows == KEPT


@pytest.mark.parametrize("jobs_first", [True, False], ids=["jobs-first", "endings-first"])
async def test_what_ended_first_goes_first_in_whatever_order_it_is_told(
    store_bench: StoreBench, jobs_first: bool
) -> None:
    told = await ended(store_bench, 2 * KEPT)
    await forget(store_bench)
    store_bench.clock.advance(HOUR_S)
    for job, one in told[KEPT:] + told[:KEPT]:  # the journal of the younger ones is shorter, and told first
        if jobs_first:
            await store_bench.add(job)
        await store_bench.settle(one)
        if not jobs_first:
            await store_bench.add(job)
    await settle(store_bench)
    assert (await store_bench.store.purge(100)).rows == KEPT
    assert [await store_bench.store.get_job(job.id) is None for job, _ in told] == [True] * KEPT + [False] * KEPT


async def test_a_daemon_whose_clock_is_wrong_neither_keeps_its_jobs_nor_loses_them(store_bench: StoreBench) -> None:
    """What it says of when they ended is taken between their claim and now."""
    told = await ended(store_bench, 2 * KEPT)
    await forget(store_bench)
    store_bench.clock.advance(HOUR_S)
    for number, (job, one) in enumerate(told):
        wrong = {name: getattr(one, name) for name in one.__struct_fields__}
        wrong["finished_at_ms"] = 2**42 if number < KEPT else 1
        await store_bench.settle(Outcome(**wrong))
        await store_bench.add(job)
    await settle(store_bench)
    assert (await store_bench.store.purge(100)).rows == KEPT, "by their number"
    store_bench.clock.advance(DAY_S - 1)
    assert (await store_bench.store.purge(100)).rows in (0, KEPT)
    store_bench.clock.advance(2)
    await store_bench.store.purge(100)
    assert (await store_bench.store.stats()).ended == 0


async def test_a_result_told_again_is_kept_no_longer_than_it_would_have_been(store_bench: StoreBench) -> None:
    ((job, one),) = await ended(store_bench, 1, keep_result=True, result=b"\x05")
    await forget(store_bench)
    store_bench.clock.advance(HOUR_S / 2)
    await store_bench.settle(one)
    await store_bench.add(job)
    await settle(store_bench)
    assert (await store_bench.view(job)).result == b"\x05"
    store_bench.clock.advance(HOUR_S / 2)
    assert (await store_bench.store.purge(100)).rows == 1, "result_ttl_s is an hour"
    assert (await store_bench.view(job)).result is None


async def test_what_waits_for_a_quota_holds_up_nothing_if_it_came_after_all_was_told(store_bench: StoreBench) -> None:
    told = await ended(store_bench, 2 * KEPT, follows=b"f")
    await forget(store_bench)
    await store_bench.settle(*(one for _, one in told))
    await store_bench.add(*(job for job, _ in told))
    first, *others = (await store_bench.store.get_outbox(100, 1 << 20)).entries
    await store_bench.store.put_off("acme", [first], 1.0)
    await store_bench.store.drop_outbox(others)
    await settle(store_bench)
    assert (await store_bench.store.purge(100)).rows == 0, "that was told again"
    await store_bench.store.drop_outbox([first], "acme")
    store_bench.clock.advance(1)
    await ended(store_bench, 1, follows=b"f")
    await store_bench.store.put_off("acme", (await store_bench.store.get_outbox(100, 1 << 20)).entries, 1.0)
    assert (await store_bench.store.purge(100)).rows == KEPT + 1


async def test_a_job_that_ran_ended_as_it_did_though_its_name_is_another_s_by_now(store_bench: StoreBench) -> None:
    """What follows a job was pushed, ran, and was told again when it had been pushed once more: its daemon was away."""
    owner = await store_bench.join()
    first = changed(store_bench.make(name="mine"), 5, ChangeKind.NEW, digest="d")
    later = changed(store_bench.make(name="mine"), 2**52, ChangeKind.NEW, digest="d")
    await store_bench.add(first)
    store_bench.clock.advance(1)
    won = outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED)
    for order in orders(store_bench, [("add", first), ("add", later), ("settle", won)]):
        await forget(store_bench)
        for method, record in order:
            await getattr(store_bench, method)(record)
        assert await store_bench.state(first) is State.SUCCEEDED, order


@pytest.mark.parametrize("when", ["in flight", "ended"])
async def test_an_earlier_attempt_that_is_told_late_shows_no_more_than_are_allowed(
    store_bench: StoreBench, when: str
) -> None:
    """Its daemon was away while the store was told again: the others tried the job as often as it allows."""
    job, owner = await store_bench.push(max_retry=2), await store_bench.join()
    early = outcome(await store_bench.claim_one(owner), Fate.RETRY)
    await forget(store_bench)
    await store_bench.add(job)
    owner = await store_bench.join()
    for fate in (Fate.RETRY, Fate.RETRY, Fate.DEAD):
        held = await store_bench.claim_one(owner)
        if fate is Fate.DEAD and when == "in flight":
            await store_bench.settle(early)
            assert (await store_bench.view(job)).attempts == 3
        await store_bench.settle(outcome(held, fate))
    if when == "ended":
        await store_bench.settle(early)
    view = await store_bench.view(job)
    assert (view.state, view.attempts) == (State.FAILED, 3)
