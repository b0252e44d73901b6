"""Holds that a daemon says again, before their jobs come and after."""

import pytest
import redis

from jqd.domain.errors import StaleOwner
from jqd.domain.job import ChangeKind, Fate, Held, State, Wanted
from jqd.domain.record import Lane, cancel_of
from jqd.store import CALL_JOBS_MAX, Hold, OnItsWay, StoreConfig, open_store
from jqd.store.keys import Keys
from jqd.testing.clock import ManualClock
from tests.contract.bench import ENDS, StoreBench, changed, early, holds, ids, outcome
from tests.contract.change import edit_of
from tests.contract.walk import check
from tests.valkey import Valkey

# ---------------------------------------------------------------- what we hold is said again


async def test_the_store_arbitrates_what_we_hold(store_bench: StoreBench) -> None:
    store = store_bench.store
    one, two = await store_bench.join("one"), await store_bench.join("two")
    jobs = {
        name: await store_bench.push(name)
        for name in ("ready", "later", "ours", "theirs", "ended", "dead", "cancelled")
    }
    held = {name: await store_bench.claim_one(one, name) for name in ("later", "ours", "ended", "dead")}
    held["theirs"] = await store_bench.claim_one(two, "theirs")
    await store_bench.settle(
        outcome(held["later"], Fate.RETRY, delay_ms=9_000),
        outcome(held["ended"], Fate.SUCCEEDED),
        outcome(held["dead"], Fate.DEAD),
    )
    await store_bench.cancel(jobs["cancelled"].id)
    said = {job.id: 1_000 + at for at, job in enumerate(jobs.values())}
    lost = await store.reassert(one, said)
    assert sorted(lost) == sorted(jobs[name].id for name in ("ours", "theirs", "ended", "dead", "cancelled"))
    assert await store.reassert(one, holds([held["ours"]])) == [], "it is ours by a later claim than we said"
    mine = holds([held["ours"]]) | {jobs[name].id: said[jobs[name].id] for name in ("ready", "later")}
    assert await store.get_held(one) == mine
    assert await store.get_held(two) == holds([held["theirs"]])
    assert await store.get_waiting_jobtypes([Wanted()], 9) == [], "what is in flight again waits nowhere else"
    assert (await store.promote(9)).next_due_ms is None
    ready = Held(jobs["ready"], mine[jobs["ready"].id], 1)
    assert await store_bench.settle(outcome(ready, Fate.SUCCEEDED)) == [], "under the fence that was said"


async def test_only_the_present_epoch_says_what_it_holds(store_bench: StoreBench) -> None:
    job = await store_bench.push()
    old = await store_bench.join()
    await store_bench.join()
    with pytest.raises(StaleOwner):
        await store_bench.store.reassert(old, {job.id: 5})
    assert await store_bench.state(job) is State.WAITING


async def test_a_cancel_that_meets_a_hold_stays_asked(store_bench: StoreBench) -> None:
    seen, unseen = await store_bench.push(), store_bench.make()
    owner = await store_bench.join()
    await store_bench.cancel(unseen.id)
    assert await store_bench.store.reassert(owner, {seen.id: 5, unseen.id: 5}) == []
    await store_bench.cancel(seen.id)
    await store_bench.add(unseen)
    for job in (seen, unseen):
        view = await store_bench.view(job)
        assert (view.state, view.cancel_asked) == (State.RUNNING, True)
    await store_bench.store.release_jobs(owner, {seen.id: 5, unseen.id: 5})
    assert {await store_bench.state(job) for job in (seen, unseen)} == {State.CANCELLED}


async def test_a_job_comes_into_the_hand_that_holds_it_already(store_bench: StoreBench) -> None:
    owner, job = await early(store_bench)
    other = await store_bench.join("two")
    assert isinstance(await store_bench.store.get_job(job.id), OnItsWay)
    assert (await store_bench.store.stats())[:5] == (0, 0, 0, 0, 0)
    assert await store_bench.store.reassert(other, {job.id: 4}) == [job.id], "one hand at a time"
    assert await store_bench.store.reassert(owner, {job.id: 6}) == []
    neighbour = store_bench.make()
    await store_bench.add(job, neighbour)
    view = await store_bench.view(job)
    assert (view.state, view.daemon) == (State.RUNNING, "one")
    assert ids(await store_bench.claim(other)) == [neighbour.id]
    assert await store_bench.store.get_held(owner) == {job.id: 6}
    assert (await store_bench.store.stats())[:5] == (0, 0, 2, 0, 0)
    assert await store_bench.settle(outcome(Held(job, 6, 1), Fate.SUCCEEDED)) == []
    assert await store_bench.state(job) is State.SUCCEEDED


@pytest.mark.parametrize("has_come", [True, False])
async def test_of_two_claims_that_are_told_again_the_later_has_the_job(store_bench: StoreBench, has_come: bool) -> None:
    """The store went back to the earlier one: who had that lost it since, or there were no later one."""
    store, job = store_bench.store, store_bench.make()
    for order in ((5, 9), (9, 5), (9, 5, 9)):
        store_bench.wipe()
        store_bench.at = dict.fromkeys(Lane, 0)
        await store.look(fresh=False)
        hands = {5: await store_bench.join("one"), 9: await store_bench.join("two")}
        if has_come:
            await store_bench.add(job)
        answers = [await store.reassert(hands[fence], {job.id: fence}) for fence in order]
        assert answers == [[job.id] if fence == 5 and at else [] for at, fence in enumerate(order)]
        if not has_come:
            await store_bench.add(job)
        assert [await store.get_held(hands[fence]) for fence in (5, 9)] == [{}, {job.id: 9}]
        assert await store_bench.settle(outcome(Held(job, 5, 1), Fate.FAILED)) == [job.id]
        assert await store_bench.settle(outcome(Held(job, 9, 1), Fate.FAILED)) == []


async def test_an_early_hold_is_on_its_way_whatever_ids_say(store_bench: StoreBench) -> None:
    """Its journal was applied beyond it: copied forward, it still comes. And an id that no journal made is held too."""
    owner = await store_bench.join()
    behind, ahead = store_bench.make(), store_bench.make()
    await store_bench.add(ahead)
    await store_bench.store.reassert(owner, {behind.id: 5, "my-own-name": 5})
    assert await store_bench.store.get_job(behind.id) == OnItsWay(ahead.id, held=True)
    assert await store_bench.store.get_job("my-own-name") == OnItsWay("", held=True)
    await store_bench.store.release_jobs(owner, {behind.id: 5, "my-own-name": 5})
    assert await store_bench.store.get_job(behind.id) is None


@pytest.mark.parametrize("fate", ENDS)
async def test_an_attempt_may_end_before_its_job_comes(store_bench: StoreBench, fate: Fate) -> None:
    owner, job = await early(store_bench)
    one = outcome(Held(job, 5, 2), fate, result=b"\x07", delay_ms=500)
    assert await store_bench.settle(one) == []
    assert await store_bench.store.get_held(owner) == {}
    assert await store_bench.store.reassert(owner, {job.id: 5}) == ([] if fate is Fate.RETRY else [job.id])
    await store_bench.store.release_jobs(owner, {job.id: 5})
    await store_bench.add(job)
    view = await store_bench.view(job)
    expected = {Fate.SUCCEEDED: State.SUCCEEDED, Fate.RETRY: State.RETRYING}.get(fate, State.FAILED)
    assert (view.state, view.attempts) == (expected, 2)
    assert view.result == (b"\x07" if fate is Fate.SUCCEEDED else None)


async def test_of_an_older_attempt_only_a_success_counts_before_the_job_comes(store_bench: StoreBench) -> None:
    owner, job = await early(store_bench)
    older = Held(job, 4, 1)
    for fate in (Fate.FAILED, Fate.DEAD):
        assert await store_bench.settle(outcome(older, fate)) == [job.id]
    assert await store_bench.store.get_held(owner) == {job.id: 5}
    assert await store_bench.settle(outcome(older, Fate.SUCCEEDED), outcome(older, Fate.SUCCEEDED)) == [job.id]
    assert await store_bench.store.get_held(owner) == {}
    await store_bench.add(job)
    assert await store_bench.state(job) is State.SUCCEEDED


@pytest.mark.parametrize("came", [True, False])
async def test_no_success_of_an_older_content_ends_a_later_one_in_the_hand(store_bench: StoreBench, came: bool) -> None:
    """The store went back: the older success is told again before the change that exchanged what had succeeded."""
    store, job = store_bench.store, store_bench.make()
    owner, other = await store_bench.join(), await store_bench.join("two")
    later = changed(job, 7, ChangeKind.REPLACE)
    if came:
        await store_bench.add(job)
    assert await store.reassert(owner, {job.id: 9}, {job.id: 7}) == []
    assert await store_bench.settle(outcome(Held(job, 4, 1), Fate.SUCCEEDED)) == [job.id]
    assert await store.get_held(owner) == {job.id: 9}
    if not came:
        await store_bench.add(job)
    await store_bench.add(later)
    assert await store_bench.claim(other) == [], "it runs"
    assert await store_bench.settle(outcome(Held(later, 9, 1, generation=7), Fate.SUCCEEDED)) == []
    assert await store_bench.state(job) is State.SUCCEEDED


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.FAILED, Fate.RETRY])
@pytest.mark.parametrize("known", ["nothing", "the older content"])
@pytest.mark.parametrize("at", ["a daemon's", "a worker's"])
async def test_no_cancel_of_an_older_content_stops_a_later_one_in_the_hand(
    store_bench: StoreBench, at: str, known: str, fate: Fate
) -> None:
    """The store forgot; the cancel is told again before the change that exchanged what had been cancelled."""
    store, job = store_bench.store, store_bench.make()
    older, later = changed(job, 5, ChangeKind.NEW), changed(job, 7, ChangeKind.REPLACE)
    if known != "nothing":
        await store_bench.add(older)
    owner, held = await store_bench.join(), Held(later, 9, 1, generation=7)
    if at == "a worker's":
        assert await store_bench.settle(outcome(held, Fate.ENTRUSTED, message="w", delay_ms=20_000)) == []
    else:
        assert await store.reassert(owner, {job.id: 9}, {job.id: 7}) == []
    await store_bench.cancel(cancel_of(job.id, 6))
    assert (await store.renew_sysid(owner, through=True)).cancels == []
    (seen,) = await store.touch([(job.id, 9)])
    assert (seen.hold, seen.cancelled) == (Hold.STANDS, False)
    await store_bench.add(later)
    assert not (await store_bench.view(job)).cancel_asked
    assert await store_bench.settle(outcome(held, fate)) == []
    expected = {Fate.SUCCEEDED: State.SUCCEEDED, Fate.FAILED: State.FAILED, Fate.RETRY: State.RETRYING}
    assert await store_bench.state(job) is expected[fate]


async def test_what_ends_before_its_change_comes_is_not_cancelled_with_an_older_content(
    store_bench: StoreBench,
) -> None:
    job = store_bench.make()
    later, owner = changed(job, 7, ChangeKind.REPLACE), await store_bench.join()
    await store_bench.add(job)
    await store_bench.store.reassert(owner, {job.id: 9}, {job.id: 7})
    await store_bench.cancel(cancel_of(job.id, 6))
    assert await store_bench.settle(outcome(Held(later, 9, 1, generation=7), Fate.FAILED)) == []
    await store_bench.add(later)
    assert await store_bench.state(job) is State.FAILED


async def test_an_earlier_retry_gives_no_date_to_a_job_in_hand(store_bench: StoreBench) -> None:
    job, owner = store_bench.make(), await store_bench.join()
    await store_bench.settle(outcome(Held(job, 4, 1), Fate.RETRY, delay_ms=9_000))
    assert await store_bench.store.reassert(owner, {job.id: 5}) == []
    await store_bench.add(job)
    view = await store_bench.view(job)
    assert (view.state, view.attempts) == (State.RUNNING, 2)
    await store_bench.store.release_jobs(owner, {job.id: 5})
    assert await store_bench.state(job) is State.RETRYING
    assert ids(await store_bench.claim(owner)) == [job.id], "at once"


@pytest.mark.parametrize("how", ["released", "left", "reaped", "joined anew"])
async def test_an_early_hold_just_drops(store_bench: StoreBench, how: str) -> None:
    store = store_bench.store
    owner, job = await early(store_bench)
    held = await store_bench.push()
    await store_bench.claim_one(owner)
    watcher = await store_bench.join("two")
    if how == "released":
        await store.release_jobs(owner, {job.id: 4})
        assert job.id in await store.get_held(owner), "not under that fence"
        await store.release_jobs(owner, await store.get_held(owner))
    elif how == "left":
        await store.release_sysid(owner)
    elif how == "joined anew":
        await store_bench.join("one")
    else:
        seen = (await store_bench.members(watcher))["one"]
        assert [await store.reap("one", seen, 1) for _ in range(3)] == [1, 1, 0]
    assert await store_bench.state(held) is State.WAITING
    await store_bench.add(job)
    assert await store_bench.state(job) is State.WAITING
    assert sorted(ids(await store_bench.claim(watcher))) == sorted([held.id, job.id])


async def test_an_asked_cancel_stays_as_long_as_the_early_hold(store_bench: StoreBench) -> None:
    owner, job = await early(store_bench)
    await store_bench.cancel(job.id)
    store_bench.clock.advance(200_000)
    assert (await store_bench.store.purge(10)).rows == 0
    store_bench.clock.advance(100_000)
    assert (await store_bench.store.purge(10)).rows == 0
    await store_bench.store.release_jobs(owner, {job.id: 5})
    await store_bench.add(job)
    assert await store_bench.state(job) is State.CANCELLED


async def test_any_number_of_holds(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    said = {f"job-{number:05}": 1 + number % 3 for number in range(CALL_JOBS_MAX + 600)}
    assert await store_bench.store.reassert(owner, said) == []
    assert await store_bench.store.get_held(owner) == said
    await store_bench.store.release_jobs(owner, said)
    assert await store_bench.store.get_held(owner) == {}
    assert await store_bench.store.reassert(owner, {}) == []


@pytest.mark.parametrize("comes", ["again", "changed"])
async def test_of_a_deleted_job_that_somebody_holds_nothing_stays_noted_when_it_comes(
    fresh_valkey: Valkey, comes: str
) -> None:
    clock, config = ManualClock(), StoreConfig(url=fresh_valkey.url)
    async with open_store(config, now_ms=clock.wall_ms) as store:
        await store.look(fresh=True)
        bench = StoreBench(store, clock)
        owner, job = await bench.join(), await bench.push()
        await bench.add(changed(job, await edit_of(bench, job.id, 0), ChangeKind.EDIT))
        held = await bench.claim_one(owner)
        await bench.settle(outcome(held, Fate.SUCCEEDED))
        clock.advance(1)
        assert (await store.clean_ended(clock.wall_ms(), 1)).gone == 1
        assert await store.reassert(owner, holds([held])) == [], "a store that forgot knows no better"
        later = changed(job, await store.reserve_change(job.id), ChangeKind.EDIT)
        await bench.add(job if comes == "again" else later)
        assert await bench.state(job) is State.RUNNING
        with redis.Redis.from_url(fresh_valkey.url) as client:
            check(client, Keys(config.prefix))
