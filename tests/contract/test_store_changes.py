"""Jobs whose content is changed: whatever comes in whatever order, the latest content stays."""

import pytest

from jqd.domain.job import ChangeKind, Fate, State
from jqd.domain.record import Lane, cancel_of
from jqd.store import NameJournaled, NameStanding, NameState, OnItsWay
from tests.contract.bench import StoreBench, changed, orders, outcome
from tests.contract.change import TTL_MS, ask, edit_of, push_named


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    """A store that nobody ever used has nothing to be told: it gives names at once."""
    await store_bench.store.look(fresh=True)
    return store_bench


async def test_numbers_go_on_above_those_that_a_journal_tells(store_bench: StoreBench) -> None:
    """A server that was emptied had its clock ahead: what it gave then must not beat what is acknowledged now."""
    far = await store_bench.store.reserve_change("any") + 10**9
    job = await store_bench.push()
    await store_bench.add(changed(job, far, ChangeKind.EDIT))
    given = await store_bench.store.reserve_change(job.id)
    assert given > far
    await store_bench.cancel(cancel_of(job.id, given + 10**9))
    assert await store_bench.store.reserve_change(job.id) > given + 10**9


async def test_a_change_says_nothing_of_the_jobs_before_it(store_bench: StoreBench) -> None:
    """Its lane is ahead of theirs: they are on their way, and not such as never were."""
    behind = store_bench.make()
    await push_named(store_bench)
    assert isinstance(await store_bench.store.get_job(behind.id), OnItsWay)
    await store_bench.push()
    assert await store_bench.store.get_job(behind.id) is None


async def test_a_change_is_made_of_the_latest_content_and_one_at_a_time(store_bench: StoreBench) -> None:
    job, store = await store_bench.push(), store_bench.store
    assert await store.reserve_edit("no-such-job", 0) is None
    first = await edit_of(store_bench, job.id, 0)
    assert first > 0
    assert await store.reserve_edit(job.id, 0) is None, "somebody else changes it"
    await store_bench.add(changed(job, first, ChangeKind.EDIT))
    assert await store.reserve_edit(job.id, 0) is None, "it is another by now"
    assert await edit_of(store_bench, job.id, first) > first
    store_bench.clock.advance(TTL_MS / 1000 + 1)
    assert await edit_of(store_bench, job.id, first) > first, "that one never came"


@pytest.mark.parametrize("journaled", [False, True])
async def test_no_change_is_made_of_a_content_that_is_being_replaced(store_bench: StoreBench, journaled: bool) -> None:
    job, store = await push_named(store_bench), store_bench.store
    seen = (await store_bench.view(job)).revision
    given = await ask(store_bench, "X", "d2", replace=True)
    if journaled:
        await store.confirm_names([NameJournaled("mine", job.id, "d2", given.revision, replaces=True)])
        store_bench.clock.advance(TTL_MS / 1000 + 1)  # it was acknowledged: it will come
    assert await store.reserve_edit(job.id, seen) is None
    await store_bench.add(changed(job, given.revision, ChangeKind.REPLACE, digest="d2"))
    assert await store.reserve_edit(job.id, given.revision)


@pytest.mark.parametrize("applied", [False, True])
async def test_a_replacement_that_took_too_long_is_not_acknowledged_over_an_edit(
    store_bench: StoreBench, applied: bool
) -> None:
    """The edit was made of what was to be replaced, and its revision is the greater one: it stays."""
    job, store = await push_named(store_bench), store_bench.store
    slow = await ask(store_bench, "X", "d2", replace=True)
    store_bench.clock.advance(TTL_MS / 1000 + 1)
    edit = await edit_of(store_bench, job.id, job.change.revision if job.change else 0)
    assert edit > slow.revision
    if applied:
        await store_bench.add(changed(job, edit, ChangeKind.EDIT, priority=3))
    replacement = NameJournaled("mine", job.id, "d2", slow.revision, replaces=True)
    assert await store.confirm_names([replacement]) == [NameStanding.OVERTAKEN]
    again = await ask(store_bench, "X", "d2", replace=True)
    assert await store.confirm_names([replacement._replace(revision=again.revision)]) == [NameStanding.STANDS]


async def test_a_waiting_job_is_replaced_where_it_waits(store_bench: StoreBench) -> None:
    job = await push_named(store_bench, argument=b"\x01")
    given = await ask(store_bench, "X", "d2", replace=True)
    assert given.state is NameState.REPLACE
    await store_bench.add(
        changed(job, given.revision, ChangeKind.REPLACE, digest="d2", argument=b"\x02", jobtype="sms")
    )
    owner = await store_bench.join()
    assert await store_bench.claim(owner) == []
    held = await store_bench.claim_one(owner, "sms")
    assert (held.job.id, held.job.argument) == (job.id, b"\x02")
    assert (await ask(store_bench, "X", "d2")).state is NameState.DUPLICATE


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.RETRY, Fate.DEAD])
async def test_a_running_job_that_was_replaced_runs_again(store_bench: StoreBench, fate: Fate) -> None:
    job = await push_named(store_bench, argument=b"\x01")
    owner = await store_bench.join()
    old = await store_bench.claim_one(owner)
    given = await ask(store_bench, "X", "d2", replace=True)
    await store_bench.add(changed(job, given.revision, ChangeKind.REPLACE, digest="d2", argument=b"\x02"))
    assert await store_bench.state(job) is State.RUNNING
    assert await store_bench.settle(outcome(old, fate)) == [job.id], "that was of the old content"
    new = await store_bench.claim_one(owner)
    assert (new.job.id, new.job.argument) == (job.id, b"\x02")
    assert await store_bench.settle(outcome(new, Fate.SUCCEEDED)) == []
    assert await store_bench.state(job) is State.SUCCEEDED


async def test_a_replaced_job_with_a_date_waits_for_it_after_the_old_attempt(store_bench: StoreBench) -> None:
    job = await push_named(store_bench)
    old = await store_bench.claim_one(await store_bench.join())
    given = await ask(store_bench, "X", "d2", replace=True)
    at_ms = store_bench.clock.wall_ms() + 60_000
    await store_bench.add(changed(job, given.revision, ChangeKind.REPLACE, digest="d2", eligible_at_ms=at_ms))
    await store_bench.settle(outcome(old, Fate.SUCCEEDED))
    assert await store_bench.state(job) is State.SCHEDULED


@pytest.mark.parametrize("how", ["released", "reaped", "seat taken anew", "retried"])
async def test_a_job_that_is_given_another_date_in_hand_waits_for_it_however_it_leaves_that(
    store_bench: StoreBench, how: str
) -> None:
    job = await push_named(store_bench)
    owner = await store_bench.join()
    old = await store_bench.claim_one(owner)
    at_ms = store_bench.clock.wall_ms() + 60_000
    kind = ChangeKind.EDIT if how == "retried" else ChangeKind.REPLACE
    revision = await store_bench.store.reserve_change(job.id)
    await store_bench.add(changed(job, revision, kind, digest="d2", eligible_at_ms=at_ms))
    match how:
        case "released":
            await store_bench.store.release_jobs(owner, {job.id: old.fence})
        case "reaped":
            other = await store_bench.join("other")
            members = (await store_bench.store.renew_sysid(other, through=True)).members
            await store_bench.store.reap(owner.sysid, members[owner.sysid], 10)
        case "seat taken anew":
            await store_bench.store.reserve_sysid(owner.sysid, True, through=True)
        case _:
            await store_bench.settle(outcome(old, Fate.RETRY, delay_ms=500))
    store_bench.clock.advance(1.0)
    assert (await store_bench.store.promote(10)).moved == 0
    assert await store_bench.state(job) in (State.SCHEDULED, State.RETRYING)
    store_bench.clock.advance(60.0)
    assert (await store_bench.store.promote(10)).moved == 1


async def test_an_edit_changes_what_waits_and_nothing_else(store_bench: StoreBench) -> None:
    job = await store_bench.push(argument=b"\x01")
    revision = await store_bench.store.reserve_change(job.id)
    later = store_bench.clock.wall_ms() + 60_000
    await store_bench.add(changed(job, revision, ChangeKind.EDIT, priority=3, eligible_at_ms=later))
    view = await store_bench.view(job)
    assert (view.state, view.priority, view.eligible_at_ms, view.argument) == (State.SCHEDULED, 3, later, b"\x01")
    assert (view.revision, view.generation, view.missed) == (revision, 0, False)
    now = await store_bench.store.reserve_change(job.id)
    await store_bench.add(changed(job, now, ChangeKind.EDIT, argument=b"\x02"))
    owner = await store_bench.join()
    held = await store_bench.claim_one(owner)
    assert held.job.argument == b"\x02"
    # While it runs the row is exchanged for a next attempt; the present one counts.
    await store_bench.add(
        changed(job, await store_bench.store.reserve_change(job.id), ChangeKind.EDIT, argument=b"\x03")
    )
    assert (await store_bench.view(job)).missed
    assert await store_bench.settle(outcome(held, Fate.RETRY)) == []
    again = await store_bench.claim_one(owner)
    assert (again.job.argument, again.attempt) == (b"\x03", 2)
    await store_bench.settle(outcome(again, Fate.SUCCEEDED))
    await store_bench.add(
        changed(job, await store_bench.store.reserve_change(job.id), ChangeKind.EDIT, argument=b"\x04")
    )
    assert await store_bench.state(job) is State.SUCCEEDED, "what has ended stays so"


@pytest.mark.parametrize("end", ["dead", "failed", "cancelled"])
async def test_what_ended_is_tried_anew(store_bench: StoreBench, end: str) -> None:
    job = await store_bench.push()
    owner = await store_bench.join()
    held = await store_bench.claim_one(owner)
    await store_bench.settle(outcome(held, Fate.RETRY, message="first"))
    if end == "cancelled":
        await store_bench.cancel(job.id)
    else:
        fate = Fate.DEAD if end == "dead" else Fate.FAILED
        await store_bench.settle(outcome(await store_bench.claim_one(owner), fate, message="last"))
    assert (await store_bench.view(job)).state.is_final
    await store_bench.add(changed(job, await store_bench.store.reserve_change(job.id), ChangeKind.RETRY))
    view = await store_bench.view(job)
    assert not view.state.is_final
    told = [attempt.message for attempt in view.history]
    assert told == (["first"] if end == "cancelled" else ["first", "last"]), "what went wrong before stays known"
    held = await store_bench.claim_one(owner)
    assert held.attempt == 1
    await store_bench.settle(outcome(held, Fate.SUCCEEDED))
    assert await store_bench.state(job) is State.SUCCEEDED
    assert (await store_bench.store.stats()).dead == 0


async def test_a_cancel_of_what_was_replaced_meanwhile_changes_nothing(store_bench: StoreBench) -> None:
    job = await push_named(store_bench)
    old = (await store_bench.view(job)).generation
    given = await ask(store_bench, "X", "d2", replace=True)
    await store_bench.add(changed(job, given.revision, ChangeKind.REPLACE, digest="d2"))
    await store_bench.cancel(cancel_of(job.id, old))
    assert await store_bench.state(job) is State.WAITING
    await store_bench.cancel(cancel_of(job.id, given.revision))
    assert await store_bench.state(job) is State.CANCELLED


@pytest.mark.parametrize("cancelled", ["the older", "the newer"])
@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.DEAD, Fate.SUCCEEDED])
async def test_a_cancel_beats_a_failure_of_its_content_and_no_later_one(
    store_bench: StoreBench, cancelled: str, fate: Fate
) -> None:
    """The job failed, was tried again, and that ended, too; all of it comes to an emptied store in any order."""
    job = await store_bench.push()
    owner = await store_bench.join()
    first = outcome(await store_bench.claim_one(owner), Fate.FAILED)
    store_bench.clock.advance(1)
    old = await store_bench.store.reserve_change(job.id)
    await store_bench.settle(first)
    again = changed(job, await store_bench.store.reserve_change(job.id), ChangeKind.RETRY)
    await store_bench.add(again)
    last = outcome(await store_bench.claim_one(owner), fate)
    new = await store_bench.store.reserve_change(job.id)
    cancel = cancel_of(job.id, old if cancelled == "the older" else new)
    records = [("add", job), ("add", again), ("settle", first), ("settle", last), ("cancel", cancel)]
    store_bench.clock.advance(1)
    failed = State.FAILED if cancelled == "the older" else State.CANCELLED
    for order in orders(store_bench, records):
        store_bench.wipe()
        store_bench.at = dict.fromkeys(store_bench.at, 0)
        await store_bench.store.look(fresh=False)
        for lane, record in order:
            await getattr(store_bench, lane)(record)
        state = await store_bench.state(job)
        assert state is (State.SUCCEEDED if fate is Fate.SUCCEEDED else failed), order
        assert (await store_bench.store.stats())[:3] == (0, 0, 0), order


@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.DEAD, Fate.RETRY, Fate.SUCCEEDED])
async def test_a_running_job_whose_cancel_was_asked_ends_as_cancelled_unless_it_succeeds(
    store_bench: StoreBench, fate: Fate
) -> None:
    job = await store_bench.push()
    owner = await store_bench.join()
    held = await store_bench.claim_one(owner)
    await store_bench.cancel(job.id)
    assert (await store_bench.store.renew_sysid(owner, through=True)).cancels == [(job.id, held.fence)]
    assert (await store_bench.store.renew_sysid(owner, through=True)).cancels == [], "told once"
    await store_bench.settle(outcome(held, fate, message="told to stop"))
    view = await store_bench.view(job)
    assert view.state is (State.SUCCEEDED if fate is Fate.SUCCEEDED else State.CANCELLED)
    assert view.outcome is not None
    assert view.outcome.message == "told to stop"


async def test_a_job_that_lost_its_name_to_another_takes_it_back_by_no_change(store_bench: StoreBench) -> None:
    """It was dead and deleted, and its name another's, when the store lost all: then both are told again. A retry of
    what is dead cancelled the other one, which was acknowledged and waited."""
    store, old = store_bench.store, await push_named(store_bench)
    owner = await store_bench.join()
    dead = outcome(await store_bench.claim_one(owner), Fate.DEAD)
    await store_bench.settle(dead)
    await store.renew_sysid(owner, through=True, settle=True)
    assert await store.delete_dead([old.id]) == [old.id]
    new = await push_named(store_bench, digest="d2")
    store_bench.wipe()
    await store.look(fresh=True)
    store_bench.at = dict.fromkeys(Lane, 0)
    await store_bench.add(old)
    await store_bench.settle(dead, old=True)
    await store_bench.add(new)
    for job, is_its in ((old, False), (new, True)):
        given = await store.reserve_edit(job.id, (await store_bench.view(job)).revision)
        assert given is not None
        assert (given.revision > 0) is is_its
    assert await store_bench.state(new) is State.WAITING
    assert await store.resolve("mine") == new.id
