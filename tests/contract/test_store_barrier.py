"""The recovery barrier as the store sees it: lives, seats that are through or not, and holds that are said again."""

from collections.abc import Awaitable, Callable

import pytest
from msgspec import structs

from jqd.domain.errors import PositionMismatch, StaleOwner, StoreChanged, SysidRefused
from jqd.domain.job import Change, ChangeKind, Fate, Held, Job, Wanted
from jqd.domain.record import Lane, cancel_of
from jqd.store import CALL_JOBS_MAX, DurableReply, Owner, Store
from jqd.store.types import JOINS_MAX, JOINS_SOON_S
from tests.contract.bench import JOURNAL, OTHER_JOURNAL, StoreBench, changed, early, ids, outcome, setting

# ---------------------------------------------------------------- lives


async def test_a_store_nobody_used_is_settled_for_a_daemon_that_knows_none(store_bench: StoreBench) -> None:
    first = await store_bench.store.look(fresh=True)
    assert first.settled
    assert await store_bench.other.look(fresh=True) == first
    assert await store_bench.store.look(fresh=False) == first


async def test_an_emptied_store_is_not_settled(store_bench: StoreBench) -> None:
    """Whoever has a journal cannot tell an emptied store from one that was never used."""
    before = await store_bench.store.look(fresh=False)
    assert before.settled
    store_bench.wipe()
    after = await store_bench.store.look(fresh=False)
    assert after.identity != before.identity
    assert not after.settled
    assert not (await store_bench.other.look(fresh=True)).settled, "its life had an id already"


async def test_a_store_with_members_and_no_life_is_not_new(store_bench: StoreBench) -> None:
    store_bench.wipe()
    await store_bench.other.reserve_sysid("one", previous_epoch_dead=True, through=True)
    assert not (await store_bench.store.look(fresh=True)).settled


LANES: dict[str, Callable[[Store, Job], Awaitable[object]]] = {
    "jobs": lambda store, job: store.apply_jobs(JOURNAL, 0, 100, [job]),
    "changes": lambda store, job: store.apply_changes(JOURNAL, 0, 100, [changed(job, 1, ChangeKind.RETRY)]),
    "outcomes": lambda store, job: store.apply_outcomes(JOURNAL, 0, 100, [outcome(Held(job, 7, 1), Fate.SUCCEEDED)]),
    "cancels": lambda store, job: store.apply_cancels(JOURNAL, 0, 100, [job.id]),
    "rules": lambda store, job: store.apply_settings(JOURNAL, 0, 100, [setting("w", 5)]),
    "a range without records": lambda store, job: store.skip(JOURNAL, Lane.JOBS, 0, 100),
}


@pytest.mark.parametrize("lane", LANES)
async def test_nothing_is_applied_to_an_emptied_store_that_nobody_looked_at(store_bench: StoreBench, lane: str) -> None:
    """It does not know yet what it has forgotten: a hand-over told now would be one of a claim that was given back."""
    store_bench.wipe()
    with pytest.raises(StoreChanged):
        await LANES[lane](store_bench.store, store_bench.make())
    await store_bench.store.look(fresh=False)
    assert await store_bench.store.applied(JOURNAL) == dict.fromkeys(Lane, 0)
    await LANES[lane](store_bench.store, store_bench.make())


async def test_an_emptied_store_is_noticed_and_nothing_is_sent_before_the_next_look(store_bench: StoreBench) -> None:
    store = store_bench.store
    await store.look(fresh=True)
    owner = await store_bench.join()
    await store_bench.members(owner)
    store_bench.wipe()
    with pytest.raises(StoreChanged):
        await store_bench.members(owner)
    for call in (store.stats(), store_bench.push(), store.promote(1), store_bench.join(), store.get_held(owner)):
        with pytest.raises(StoreChanged):
            await call
    await store.look(fresh=False)
    with pytest.raises(StaleOwner):
        await store_bench.members(owner)
    with pytest.raises(PositionMismatch):
        await store.apply_jobs("ab" * 16, 100, 200, [store_bench.make()])


async def next_life(bench: StoreBench) -> None:
    """As a daemon begins one that noticed that the store forgot something."""
    await bench.store.new_life((await bench.store.look(fresh=False)).identity)
    await bench.store.look(fresh=False)


@pytest.mark.parametrize("call", ["renew", "reserve", "reassert", "get_job"])
async def test_calls_that_an_emptied_store_would_mislead_ask_for_the_life_we_know(
    store_bench: StoreBench, call: str
) -> None:
    store = store_bench.store
    await store.look(fresh=True)
    owner = await store_bench.join()
    store_bench.wipe()
    with pytest.raises(StoreChanged, match="another life"):
        await {
            "renew": lambda: store.renew_sysid(owner, through=True),
            "reserve": lambda: store.reserve_sysid("one", previous_epoch_dead=True, through=True),
            "reassert": lambda: store.reassert(owner, {"a": 1}),
            "get_job": lambda: store.get_job("a"),
        }[call]()


async def test_a_new_life_is_noticed_by_everybody(store_bench: StoreBench) -> None:
    store, other = store_bench.store, store_bench.other
    before = await store.look(fresh=True)
    assert await other.look(fresh=False) == before
    ours, theirs = await store_bench.join("one"), await reserve(other, "two", through=True)
    await store_bench.push()
    await store.new_life("another.life")
    await other.renew_sysid(theirs, through=True)
    await store.new_life(before.identity)
    assert await store_bench.claim(ours) == []
    with pytest.raises(StoreChanged):
        await other.renew_sysid(theirs, through=True)
    after = await other.look(fresh=True)
    assert after.identity != before.identity
    assert not after.settled
    await other.new_life(before.identity)
    assert await other.look(fresh=False) == after, "only the life that was meant ends"


async def test_who_dies_again_and_again_before_it_is_through_is_not_waited_for(store_bench: StoreBench) -> None:
    """It would stop the claims of all for ever: each seat is a new one, so nobody sees a heartbeat stand still."""
    store = store_bench.store
    await store.look(fresh=False)
    for _ in range(2 * JOINS_MAX):
        await reserve(store, "two", through=False)  # nobody else is there to wait
    await store_bench.other.look(fresh=False)
    one = await reserve(store_bench.other, "one", through=False)
    with pytest.raises(SysidRefused, match="two joined 5 times"):
        await reserve(store, "two", through=False)
    assert (await store_bench.other.renew_sysid(one, through=True, settle=True)).settled
    assert (await store.look(fresh=False)).settled
    with pytest.raises(SysidRefused):
        await reserve(store, "two", through=False)
    assert (await store.look(fresh=False)).settled, "who gets no seat disturbs nobody"
    members = (await store_bench.other.renew_sysid(one, through=True)).members
    assert not members["two"].epoch
    await store_bench.other.reap("two", members["two"], 10)
    await reserve(store, "two", through=True)
    store_bench.clock.advance(JOINS_SOON_S + 0.001)
    await reserve(store, "two", through=False)
    for _ in range(JOINS_MAX - 1):
        await reserve(store, "two", through=False)
    await store.new_life((await store.look(fresh=False)).identity)
    await store.look(fresh=False)
    await reserve(store, "two", through=False)  # another life is another matter


async def test_who_comes_through_each_time_gets_a_seat_as_often_as_he_needs_one(store_bench: StoreBench) -> None:
    """Whoever stood still for a lease is burnt, and sits down anew."""
    store, other = store_bench.store, store_bench.other
    await store.look(fresh=False)
    await other.look(fresh=False)
    await reserve(other, "one", through=False)
    for _ in range(2 * JOINS_MAX):
        await store.renew_sysid(await reserve(store, "two", through=False), through=True)


async def reserve(store: Store, sysid: str, *, through: bool) -> Owner:
    """A seat."""
    return await store.reserve_sysid(sysid, previous_epoch_dead=True, through=through)


# ---------------------------------------------------------------- who is through


async def test_nothing_is_claimed_while_somebody_is_not_through(store_bench: StoreBench) -> None:
    store, other = store_bench.store, store_bench.other
    identity = (await store.look(fresh=True)).identity
    await other.look(fresh=False)
    one = await store_bench.join("one")
    job = await store_bench.push()
    assert (await store.renew_sysid(one, through=True)).settled
    two = await reserve(other, "two", through=False)
    assert not (await store.look(fresh=False)).settled, "whoever comes with an old memory un-settles"
    assert await store_bench.claim(one) == []
    assert (await store_bench.store.get_waiting_jobtypes([Wanted()], 9))[0].head_id == job.id
    told = await store.renew_sysid(one, through=True, settle=True)
    assert not told.settled
    assert (told.members["one"].through, told.members["two"].through) == (True, False)
    assert not (await other.renew_sysid(two, through=True)).settled
    assert ids(await store_bench.claim(one)) == [job.id]
    assert (await other.renew_sysid(two, through=True, settle=True)).settled
    look = await store.look(fresh=False)
    assert (look.identity, look.settled) == (identity, True)
    await store.renew_sysid(one, through=False)
    assert not (await other.renew_sysid(two, through=True)).members["one"].through


async def test_the_burnt_are_not_waited_for(store_bench: StoreBench) -> None:
    store = store_bench.store
    await store.look(fresh=True)
    one, dead = await store_bench.join("one"), await reserve(store, "dead", through=False)
    job = await store_bench.push()
    assert await store_bench.claim(one) == []
    seen = (await store_bench.members(one))["dead"]
    assert await store.reap("dead", seen, 5) == 0
    assert ids(await store_bench.claim(one)) == [job.id]
    assert (await store.renew_sysid(one, through=True, settle=True)).settled
    with pytest.raises(StaleOwner):
        await store.renew_sysid(dead, through=True)


async def test_a_claim_that_is_held_up_spends_no_fence(store_bench: StoreBench) -> None:
    store, clock = store_bench.store, store_bench.clock
    await store.look(fresh=True)
    one = await store_bench.join("one")
    await store_bench.push()
    clock.set_wall_ms(1)  # fences count one by one from here: the clock is behind them
    two = await reserve(store, "two", through=False)
    for _ in range(3):
        assert await store_bench.claim(one) == []
    await store.renew_sysid(two, through=True)
    assert (await store_bench.claim_one(one)).fence == two.epoch + 1


async def test_a_member_of_an_earlier_life_is_not_through(store_bench: StoreBench) -> None:
    """What `through` said in another life says nothing in this one."""
    store = store_bench.store
    before = await store.look(fresh=True)
    one = await store_bench.join("one")
    await store_bench.join("two")
    await store_bench.push()
    await store.new_life(before.identity)
    await store.look(fresh=False)
    told = await store.renew_sysid(one, through=True, settle=True)
    assert told.members["one"].through
    assert not told.members["two"].through
    assert not told.settled
    assert await store_bench.claim(one) == []


# ---------------------------------------------------------------- what is unfinished


async def test_unfinished_are_those_that_are_there_and_have_not_ended(store_bench: StoreBench) -> None:
    owner, unseen = await early(store_bench)
    now_ms = store_bench.clock.wall_ms()
    waiting, later, running = (
        await store_bench.push(),
        await store_bench.push(eligible_at_ms=now_ms + 99),
        await store_bench.push("thumb"),
    )
    await store_bench.claim_one(owner, "thumb")
    over = [await store_bench.push(fate.name) for fate in (Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD)]
    for job in over:
        await store_bench.settle(outcome(await store_bench.claim_one(owner, job.jobtype), Fate[job.jobtype]))
    alive = [waiting.id, later.id, running.id]
    asked = [over[0].id, *alive, unseen.id, over[1].id, "no-such-job", over[2].id]
    assert await store_bench.store.unfinished(asked) == alive
    assert await store_bench.store.unfinished([]) == []
    assert await store_bench.store.unfinished(asked, dead=True) == [*alive, over[1].id, over[2].id]
    with pytest.raises(ValueError, match="records"):
        await store_bench.store.unfinished(["x"] * (CALL_JOBS_MAX + 1))


async def test_a_death_can_be_told_again(store_bench: StoreBench) -> None:
    """Retention says it behind the copy of a dead job: to a store that was emptied, and to the one that knows it."""
    store, owner = store_bench.store, await store_bench.join()
    first, changed = await store_bench.push("a"), store_bench.make("a")
    change = Change(1, 1, ChangeKind.NEW)
    await store_bench.add(structs.replace(changed, change=change))
    held = await store_bench.claim(owner, "a")
    await store_bench.settle(*(outcome(one, Fate.DEAD, message="it cannot") for one in held))
    poison = await store_bench.push("b")
    for _ in range(3):
        await store_bench.claim_one(await store_bench.join("two"), "b")
        await store.reap("two", (await store_bench.members(owner))["two"], 10)
    alive = await store_bench.push("c")
    ids = [first.id, changed.id, poison.id, alive.id]
    deaths, asked, gone = await store.get_ends([*ids, "none"])
    assert (asked, gone) == ({}, ["none"])
    assert [death.job_id for death in deaths] == ids[:3]
    assert [death.reason for death in deaths] == ["", "", "crash"]
    views = [await store_bench.view(job_id) for job_id in ids]
    await store_bench.settle(*deaths)
    assert [await store_bench.view(job_id) for job_id in ids] == views, "who knows it learns nothing"
    store_bench.wipe()
    await store.look(fresh=False)
    store_bench.at = dict.fromkeys(Lane, 0)
    await store_bench.settle(*deaths)
    await store_bench.add(first, structs.replace(changed, change=change), poison, alive)
    assert await store.unfinished(ids) == [alive.id]
    assert await store.get_ends(ids) == (deaths, {}, [])


async def test_a_cancel_that_waits_for_a_hand_can_be_told_again(store_bench: StoreBench) -> None:
    """Retention says it behind the copy of that job, too: of a content no later one than it was meant for."""
    store, owner = store_bench.store, await store_bench.join()
    plain, changed, waiting = await store_bench.push("a"), store_bench.make("a"), await store_bench.push("b")
    await store_bench.add(structs.replace(changed, change=Change(1, 1, ChangeKind.NEW)))
    ids = [plain.id, changed.id, waiting.id]
    held = await store_bench.claim(owner, "a")
    assert await store.get_ends(ids) == ([], {}, [])
    await store_bench.cancel(plain.id, cancel_of(changed.id, 5), waiting.id)
    assert await store.get_ends(ids) == ([], {plain.id: 0, changed.id: 5}, [waiting.id])
    await store.release_jobs(owner, {one.job.id: one.fence for one in held})
    over = await store.get_ends(ids)
    assert over == ([], {changed.id: 5}, [plain.id, waiting.id]), "a number tells whether a parent cancelled it"


async def test_journals_tell_since_when_they_keep_jobs(store_bench: StoreBench) -> None:
    store = store_bench.store
    await store.look(fresh=False)
    await store.applied(JOURNAL)
    await store.applied(OTHER_JOURNAL)
    first = await store.save_kept(JOURNAL, 7)
    assert {journal: told.since for journal, told in first.journals.items()} == {JOURNAL: 7, OTHER_JOURNAL: 0}
    store_bench.clock.advance(1.0)
    await store.applied(JOURNAL)
    second = await store_bench.other.save_kept(OTHER_JOURNAL, 9)
    assert second.now - first.now > 999_000
    assert second.journals == {JOURNAL: DurableReply(7, first.now), OTHER_JOURNAL: DurableReply(9, second.now)}
    third = await store.save_kept(JOURNAL, 5)
    assert third.journals[JOURNAL] == DurableReply(7, third.now), "it only grows"
    store_bench.clock.advance(1.0)
    store_bench.wipe()
    await store.look(fresh=False)
    after = await store.save_kept(JOURNAL, 1)
    assert (first.began, after.began) < (first.now, after.now)
    assert third.now < after.began, "of another life"
    await store_bench.push()
    assert (await store_bench.claim_one(await store_bench.join())).fence > third.now


async def test_of_many_journals_those_are_forgotten_that_are_silent_for_a_month_and_who_comes_back_tells_again(
    store_bench: StoreBench,
) -> None:
    """Each new volume of a pod is a journal. One that was only away for long tells all again, and nothing is lost."""
    store, clock = store_bench.store, store_bench.clock
    await store.look(fresh=False)
    waiting = await store_bench.push()
    await store.skip(JOURNAL, Lane.OUTCOMES, 0, 100, gone=True)
    volumes = [f"{number:032x}" for number in range(100)]
    for journal in (JOURNAL, *volumes):
        clock.advance(1)
        await store.applied(journal)
        await store.save_kept(journal, 1)
    assert len((await store.save_kept(volumes[-1], 1)).journals) == 101
    clock.advance(31 * 86_400)
    first = await store.save_kept(volumes[0], 1)
    assert len(first.journals) == 101, "the others have had no time to tell"
    await store.applied(volumes[1])
    clock.advance(5)
    await store.save_kept(volumes[0], 1)
    told = await store.save_kept(volumes[0], 1)
    assert JOURNAL not in told.journals, "it was silent longest"
    assert len(told.journals) == 100
    assert set(told.journals) >= set(volumes)

    assert await store.applied(JOURNAL) == dict.fromkeys(Lane, 0)
    late = store_bench.make()
    await store.apply_jobs(JOURNAL, 0, 100, [waiting])
    await store.apply_jobs(JOURNAL, 100, 200, [late])
    owner = await store_bench.join()
    assert ids(await store_bench.claim(owner)) == [waiting.id, late.id]


async def test_what_an_emptied_store_knows_of_jobs_and_positions_is_not_told(store_bench: StoreBench) -> None:
    """It would say that nothing is unfinished, and somebody would delete the only copy."""
    await store_bench.store.look(fresh=False)
    job = await store_bench.push()
    store = store_bench.store
    for ask in (
        lambda: store.unfinished([job.id]),
        lambda: store.get_ends([job.id]),
        lambda: store.applied(JOURNAL),
        lambda: store.save_kept(JOURNAL, 1),
    ):
        await store_bench.store.look(fresh=False)
        store_bench.wipe()
        with pytest.raises(StoreChanged, match="emptied"):
            await ask()
