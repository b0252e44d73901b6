"""Names that pushers give: who has one, who is told so, and when it is free again. The same on every store."""

import pytest
from msgspec import structs

from jqd.domain.errors import StoreChanged, StoreUnsettled
from jqd.domain.job import ChangeKind, Fate, State
from jqd.domain.record import Lane, cancel_of
from jqd.store import JobView, NameJournaled, NameStanding, NameState, NameWanted, Replace
from tests.contract.bench import JOURNAL, StoreBench, changed, outcome
from tests.contract.change import ask, confirm, edit_of, push_named

TTL_MS = 30_000
LATER_MS = 10**13


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    """A store that nobody ever used has nothing to be told: it gives names at once."""
    await store_bench.store.look(fresh=True)
    return store_bench


async def test_a_name_stands_for_one_job(store_bench: StoreBench) -> None:
    assert await store_bench.store.resolve("mine") is None
    job = await push_named(store_bench)
    assert await store_bench.store.resolve("mine") == job.id
    again, other = await ask(store_bench, "X"), await ask(store_bench, "X", "d2")
    assert (again.state, again.job_id, again.revision) == (NameState.DUPLICATE, job.id, 0)
    assert (other.state, other.job_id, other.revision) == (NameState.CONFLICT, job.id, 0)
    assert (await ask(store_bench, "X", name="yours")).state is NameState.NEW
    view = await store_bench.view(job)
    assert (view.name, view.state) == ("mine", State.WAITING)
    assert view.revision == view.generation > 0


async def test_a_name_that_is_never_confirmed_is_free_again(store_bench: StoreBench) -> None:
    lost = store_bench.make(name="mine")
    first = await ask(store_bench, lost.id)
    assert (await ask(store_bench, "X", "d2")).state is NameState.PROMISED, "it may still come"
    same = await ask(store_bench, "X")
    assert (same.state, same.job_id) == (NameState.NEW, lost.id), "who pushes the same again need not wait"
    assert same.revision == first.revision
    for promised in (lost.id, None):
        assert await store_bench.store.resolve("mine", promised=True) == promised
        store_bench.clock.advance(TTL_MS / 1000 + 1)
    assert await store_bench.store.resolve("mine") == lost.id, "a cancel of it holds if it comes after all"
    other = await ask(store_bench, "X", "d2")
    assert (other.state, other.job_id) == (NameState.NEW, lost.id)
    # Its journal comes back after all: what it holds is older, and the later content stays.
    new = changed(lost, other.revision, ChangeKind.NEW, digest="d2", priority=7)
    await store_bench.add(new)
    await store_bench.add(changed(lost, first.revision, ChangeKind.NEW, digest="d1", priority=1))
    assert (await store_bench.view(lost)).priority == 7
    assert (await ask(store_bench, "X", "d2")).state is NameState.DUPLICATE


async def test_a_name_that_is_given_back_is_free_at_once(store_bench: StoreBench) -> None:
    """Unless a journal has its job by now, or another content has it. As often as it was asked for and refused."""
    store, lost = store_bench.store, store_bench.make(name="mine")
    for digest in ("d1", "d2"):
        given = await ask(store_bench, lost.id, digest)
        assert (given.state, given.job_id) == (NameState.NEW, lost.id)
        await store.free_names([NameWanted("mine", lost.id, "other", False)])
        assert await store.resolve("mine", promised=True) == lost.id, "another content gives nothing back"
        await store.free_names([NameWanted("mine", lost.id, digest, False)])
        assert await store.resolve("mine", promised=True) is None
    other = await ask(store_bench, lost.id, "d3")
    await confirm(store_bench, lost, "d3", other.revision)
    await store.free_names([NameWanted("mine", lost.id, "d3", False)])
    assert (await ask(store_bench, "X", "d3")).state is NameState.DUPLICATE


@pytest.mark.parametrize("later", [False, True], ids=["the later", "the earlier"])
async def test_a_name_that_two_pushes_were_given_is_not_given_back_by_one(store_bench: StoreBench, later: bool) -> None:
    """The other may be acknowledged (ack=memory), or on its way to a disk; another content would take its place."""
    store, lost = store_bench.store, store_bench.make(name="mine")
    first, second = await ask(store_bench, lost.id), await ask(store_bench, "X")
    assert (second.job_id, second.revision) == (first.job_id, first.revision)
    await store.free_names([NameWanted("mine", (first if later else second).job_id, "d1", False)])
    assert (await ask(store_bench, "Y", "d2")).state is NameState.PROMISED
    store_bench.clock.advance(31)
    assert (await ask(store_bench, "Y", "d2")).state is NameState.NEW, "none of them came"


async def test_a_confirmation_that_comes_late_takes_no_name_for_a_job_that_is_deleted(store_bench: StoreBench) -> None:
    """It stood for a job that never comes: its schedule waited for two days, and a push counted as a repeat."""
    job = await push_named(store_bench)
    assert job.change is not None
    late, behind = NameJournaled("mine", job.id, "d1", job.change.revision), store_bench.at[Lane.CHANGES]
    held = await store_bench.claim_one(await store_bench.join())
    await store_bench.settle(outcome(held, Fate.SUCCEEDED))
    store_bench.clock.advance(200_000)
    await store_bench.store.purge(100)
    assert await store_bench.store.confirm_names([late], (JOURNAL, behind)) == [NameStanding.STANDS]
    assert await store_bench.store.resolve("mine") is None
    assert await store_bench.store.confirm_names([late], (JOURNAL, behind + 1)) == [NameStanding.STANDS]
    assert await store_bench.store.resolve("mine") == job.id, "that one has not come"


async def test_many_names_are_resolved_in_one_call_and_their_jobs_read_in_one(store_bench: StoreBench) -> None:
    jobs = [store_bench.make(name=f"n{number}") for number in range(3)]
    wanted = [NameWanted(job.name, job.id, "d1", False) for job in jobs]
    given = await store_bench.store.reserve_names(wanted)
    await store_bench.add(
        *(changed(job, one.revision, ChangeKind.NEW, digest="d1") for job, one in zip(jobs, given, strict=True))
    )
    names = ["n2", "none", "n0", *(f"none{number}" for number in range(200)), "n1"]
    ids = await store_bench.store.resolve_all(names)
    assert [ids[0], ids[1], ids[2], ids[-1]] == [jobs[2].id, None, jobs[0].id, jobs[1].id]
    assert len(ids) == len(names)
    found = await store_bench.store.get_jobs([jobs[2].id, "0" * 26, jobs[0].id])
    assert [view.id if isinstance(view, JobView) else None for view in found] == [jobs[2].id, None, jobs[0].id]
    with pytest.raises(ValueError, match="17 jobs in one call; 16 at most"):
        await store_bench.store.get_jobs(["X"] * 17)


async def test_a_job_that_is_journaled_has_its_name_for_good(store_bench: StoreBench) -> None:
    job = store_bench.make(name="mine")
    given = await ask(store_bench, job.id)
    await store_bench.store.confirm_names([NameJournaled("mine", job.id, "d1", given.revision)])
    assert (await ask(store_bench, "X")).state is NameState.DUPLICATE
    store_bench.clock.advance(TTL_MS / 1000 + 1)
    assert await store_bench.store.resolve("mine", promised=True) == job.id
    assert (await ask(store_bench, "X", "d2")).state is NameState.CONFLICT
    await store_bench.store.confirm_names([NameJournaled("mine", "older", "d0", given.revision - 1)])
    assert (await ask(store_bench, "X")).state is NameState.DUPLICATE, "an older content says nothing"
    replaced = await ask(store_bench, "X", "d2", replace=True)
    await store_bench.store.confirm_names([NameJournaled("mine", job.id, "d2", replaced.revision)])
    assert (await ask(store_bench, "X", "d2")).state is NameState.DUPLICATE
    # The journal burns with the machine: the name is not taken for ever.
    store_bench.clock.advance(200_000)
    await store_bench.store.purge(100)
    assert (await ask(store_bench, "X", "d3")).state is NameState.NEW


async def test_of_two_contents_that_had_a_name_reserved_one_is_acknowledged(store_bench: StoreBench) -> None:
    """A disk stands still for longer than a reservation lasts; another one does not."""
    job = store_bench.make(name="mine")
    slow = await ask(store_bench, job.id, "slow")
    store_bench.clock.advance(TTL_MS / 1000 + 1)
    quick = await ask(store_bench, "X", "quick")
    assert (quick.state, quick.job_id) == (NameState.NEW, job.id)
    assert await confirm(store_bench, job, "slow", slow.revision) is False, "the other one may be in a journal"
    assert await confirm(store_bench, job, "quick", quick.revision) is True
    assert await confirm(store_bench, job, "slow", slow.revision) is False
    # Who may take any place had it until it was replaced.
    assert await confirm(store_bench, job, "slow", slow.revision, replaces=True) is True
    assert (await ask(store_bench, "X", "quick")).state is NameState.DUPLICATE


async def test_the_same_content_is_confirmed_by_whoever_has_it_in_a_journal(store_bench: StoreBench) -> None:
    job = store_bench.make(name="mine")
    first, second = await ask(store_bench, job.id), await ask(store_bench, "X")
    assert second.job_id == job.id
    assert await confirm(store_bench, job, "d1", first.revision) is True
    assert (await ask(store_bench, "X")).state is NameState.DUPLICATE
    assert await confirm(store_bench, job, "d1", second.revision) is True
    assert await confirm(store_bench, job, "d1", first.revision) is True


async def test_the_same_push_at_two_daemons_at_once_runs_once(store_bench: StoreBench) -> None:
    """Sent again because the first answer took long: both are journaled, and one may have run when the other comes."""
    job, owner = store_bench.make(name="mine"), await store_bench.join()
    for pushed in [await ask(store_bench, job.id), await ask(store_bench, "X")]:
        await store_bench.add(changed(job, pushed.revision, ChangeKind.NEW, digest="d1"))
        assert await confirm(store_bench, job, "d1", pushed.revision) is True
        for held in await store_bench.claim(owner):
            assert await store_bench.settle(outcome(held, Fate.SUCCEEDED)) == []
        view = await store_bench.view(job)
        assert (view.state, view.attempts) == (State.SUCCEEDED, 1)
    assert await store_bench.claim(owner) == []


async def test_a_push_that_tells_where_it_got_its_name_never_comes_late(store_bench: StoreBench) -> None:
    """A schedule's: it lay in the journal of a daemon that died, and its date was fired by another, long ago."""
    job, owner = store_bench.make(name="mine"), await store_bench.join()
    first, again = await ask(store_bench, job.id), await ask(store_bench, "X")
    assert (again.job_id, again.revision, again.life) == (job.id, first.revision, first.life), "both may journal it"
    late = changed(job, first.revision, ChangeKind.NEW, digest="d1")
    assert late.change is not None
    marked = structs.replace(late, change=structs.replace(late.change, life=first.life))
    await store_bench.add(marked)
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED))
    for _ in range(2):  # first the job is forgotten, then that there was one
        store_bench.clock.advance(200_000)
        await store_bench.store.purge(100)
    await store_bench.add(marked)
    assert await store_bench.store.unfinished([job.id]) == []
    await store_bench.add(late)
    assert await store_bench.store.unfinished([job.id]) == [job.id], "one without that mark does"


async def test_a_push_that_never_came_takes_its_cancel_along(store_bench: StoreBench) -> None:
    """The first was refused after its name was reserved; who cancelled it and pushes it again means it."""
    job = store_bench.make(name="mine")
    await ask(store_bench, job.id)
    await store_bench.cancel(cancel_of(job.id, await store_bench.store.reserve_change(job.id)))
    again = await ask(store_bench, "X")
    await store_bench.add(changed(job, again.revision, ChangeKind.NEW, digest="d1"))
    assert await store_bench.state(job) is State.WAITING


async def test_a_name_goes_with_its_job(store_bench: StoreBench) -> None:
    job = await push_named(store_bench)
    owner = await store_bench.join()
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED))
    assert (await ask(store_bench, "X")).state is NameState.DUPLICATE, "it ran; the same push again is the same job"
    assert await store_bench.store.delete_dead([job.id, "no-such-job"]) == [job.id]
    assert await store_bench.store.resolve("mine") is None
    assert (await ask(store_bench, "X")).state is NameState.NEW


async def test_a_cancelled_job_begins_anew_only_when_it_is_replaced(store_bench: StoreBench) -> None:
    """The same push may be the repetition of one whose answer was lost before the cancel."""
    job = await push_named(store_bench)
    await store_bench.cancel(cancel_of(job.id, (await store_bench.view(job)).generation))
    assert (await ask(store_bench, "X")).state is NameState.DUPLICATE
    given = await ask(store_bench, "X", replace=True)
    assert (given.state, given.job_id) == (NameState.REPLACE, job.id)
    await store_bench.add(changed(job, given.revision, ChangeKind.REPLACE, digest="d1"))
    assert await store_bench.state(job) is State.WAITING


async def test_a_cancelled_job_leaves_its_name_to_another_content(store_bench: StoreBench) -> None:
    """Once: what was given the name then may be on its way, and is what stands there when that is known."""
    job = await push_named(store_bench)
    assert (await ask(store_bench, "X", "d2", replace=Replace.CANCELLED)).state is NameState.CONFLICT
    await store_bench.cancel(cancel_of(job.id, (await store_bench.view(job)).generation))
    assert (await ask(store_bench, "X", "d2")).state is NameState.CONFLICT
    assert (await ask(store_bench, "X", replace=Replace.CANCELLED)).state is NameState.DUPLICATE, "it may be a repeat"
    given = await ask(store_bench, "X", "d2", replace=Replace.CANCELLED)
    assert (given.state, given.job_id) == (NameState.REPLACE, job.id)
    assert (await ask(store_bench, "X", "d3", replace=Replace.CANCELLED)).state is NameState.PROMISED
    store_bench.clock.advance(TTL_MS / 1000 + 1)
    given = await ask(store_bench, "X", "d2", replace=Replace.CANCELLED)
    assert given.state is NameState.REPLACE, "what was promised did not come"
    assert await confirm(store_bench, job, "d2", given.revision, True)
    assert (await ask(store_bench, "X", "d3", replace=Replace.CANCELLED)).state is NameState.CONFLICT
    assert (await ask(store_bench, "X", "d2", replace=Replace.CANCELLED)).state is NameState.DUPLICATE
    await store_bench.add(changed(job, given.revision, ChangeKind.REPLACE, digest="d2"))
    assert await store_bench.state(job) is State.WAITING
    assert (await ask(store_bench, "X", "d3", replace=Replace.CANCELLED)).state is NameState.CONFLICT


async def test_a_job_that_was_cancelled_before_it_came_leaves_its_name_too(store_bench: StoreBench) -> None:
    job = store_bench.make(name="mine")
    first = await ask(store_bench, job.id)
    assert await confirm(store_bench, job, "d1", first.revision)
    assert (await ask(store_bench, "X", "d2", replace=Replace.CANCELLED)).state is NameState.CONFLICT
    await store_bench.cancel(cancel_of(job.id, await store_bench.store.reserve_change(job.id)))
    given = await ask(store_bench, "X", "d2", replace=Replace.CANCELLED)
    assert (given.state, given.job_id) == (NameState.REPLACE, job.id)
    new = changed(job, given.revision, ChangeKind.REPLACE, digest="d2", priority=7)
    await store_bench.add(new)
    await store_bench.add(changed(job, first.revision, ChangeKind.NEW, digest="d1", priority=1))
    assert (await store_bench.view(job)).priority == 7, "the older comes last, and changes nothing"
    assert await store_bench.state(job) is State.WAITING


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.DEAD])
async def test_a_job_that_has_ended_leaves_its_name_where_that_is_asked_for(
    store_bench: StoreBench, fate: Fate
) -> None:
    job = await push_named(store_bench)
    owner = await store_bench.join()
    held = await store_bench.claim_one(owner)
    assert (await ask(store_bench, "X", replace=Replace.ENDED)).state is NameState.DUPLICATE, "it runs"
    await store_bench.settle(outcome(held, fate))
    for digest in ("d1", "d2"):
        wanted = (NameState.DUPLICATE if digest == "d1" else NameState.CONFLICT, NameState.REPLACE)
        given = [await ask(store_bench, "X", digest, replace=how) for how in (Replace.CANCELLED, Replace.ENDED)]
        assert tuple(one.state for one in given) == wanted
        store_bench.clock.advance(TTL_MS / 1000 + 1)
    assert given[1].job_id == job.id


async def test_names_that_nobody_confirms_do_not_stay_for_ever(store_bench: StoreBench) -> None:
    await ask(store_bench, store_bench.make().id)
    confirmed = await push_named_as(store_bench, "kept")
    store_bench.clock.advance(200_000)
    await store_bench.store.purge(100)
    assert await store_bench.store.resolve("mine") is None
    assert await store_bench.store.resolve("kept") == confirmed


async def push_named_as(bench: StoreBench, name: str) -> str:
    """A job under another name."""
    job = bench.make(name=name)
    given = await ask(bench, job.id, name=name)
    await bench.add(changed(job, given.revision, ChangeKind.NEW, digest="d1"))
    return job.id


async def test_an_emptied_store_agrees_to_nothing(store_bench: StoreBench) -> None:
    for call in (
        lambda: ask(store_bench, "X"),
        lambda: store_bench.store.reserve_change("X"),
        lambda: store_bench.store.reserve_edit("X", 0),
        lambda: store_bench.store.resolve("a"),
    ):
        await store_bench.store.look(fresh=False)
        store_bench.wipe()
        with pytest.raises(StoreChanged):
            await call()


async def test_no_name_is_given_while_the_store_is_told_what_it_forgot(store_bench: StoreBench) -> None:
    job = await push_named(store_bench)
    one, two = await store_bench.join("one"), await store_bench.store.reserve_sysid("two", True, through=False)
    store, revision = store_bench.store, (await store_bench.view(job)).revision
    for through in (False, True):
        for call in (
            lambda: ask(store_bench, "X", name="yours"),
            lambda: store.reserve_edit(job.id, revision),
            lambda: store.resolve("yours"),
        ):
            with pytest.raises(StoreUnsettled):
                await call()
        assert await store.resolve("mine") == job.id
        await store.renew_sysid(two, through=not through)  # and nobody has noted yet that all are
    await store.renew_sysid(two, through=True)
    await store.renew_sysid(one, through=True, settle=True)
    assert (await ask(store_bench, "X", name="yours")).state is NameState.NEW


@pytest.mark.parametrize("what", ["never comes", "is confirmed", "comes", "was confirmed before"])
async def test_a_reservation_takes_no_name_from_a_job_that_the_store_forgot(store_bench: StoreBench, what: str) -> None:
    """Its daemon was away while the store lost it and gave the name anew: that other push may never be taken."""
    job = await push_named(store_bench, priority=1)
    store_bench.clock.advance(1)
    store_bench.wipe()
    await store_bench.store.look(fresh=True)
    store_bench.at[Lane.CHANGES] = 0
    other = store_bench.make(name="mine")
    given = await ask(store_bench, other.id, "d2", replace=True)
    assert (given.state, given.job_id) == (NameState.NEW, other.id)
    if what == "was confirmed before":
        assert await confirm(store_bench, other, "d2", given.revision) is True
    await store_bench.add(job)
    stands = what == "was confirmed before"
    assert await store_bench.state(job) is (State.CANCELLED if stands else State.WAITING)
    assert await store_bench.store.resolve("mine") == (other.id if stands else job.id)
    if what == "is confirmed":
        assert await confirm(store_bench, other, "d2", given.revision) is True
    if what != "never comes":
        await store_bench.add(changed(other, given.revision, ChangeKind.NEW, digest="d2"))
        assert await store_bench.store.resolve("mine") == other.id
        assert await store_bench.state(job) is State.CANCELLED
        (held,) = await store_bench.claim(await store_bench.join())
        assert held.job.id == other.id
    else:
        store_bench.clock.advance(TTL_MS / 1000 + 200)
        await store_bench.store.purge(100)
        assert await store_bench.store.resolve("mine") == job.id
        assert (await ask(store_bench, "X")).state is NameState.DUPLICATE


async def test_a_store_that_forgot_knows_the_digest_of_a_job_whose_edit_comes_first(store_bench: StoreBench) -> None:
    """Another daemon journaled it. The same push again was refused as one with other content."""
    job = await push_named(store_bench)
    first = (await store_bench.view(job)).revision
    edit = changed(job, await edit_of(store_bench, job.id, first), ChangeKind.EDIT, generation=first, priority=7)
    await store_bench.add(edit)
    assert (await ask(store_bench, "X")).state is NameState.DUPLICATE
    store_bench.wipe()
    await store_bench.store.look(fresh=True)
    store_bench.at[Lane.CHANGES] = 0
    await store_bench.add(edit)
    await store_bench.add(job)
    assert (await store_bench.view(job)).priority == 7
    assert (await ask(store_bench, "X")).state is NameState.DUPLICATE
    assert (await ask(store_bench, "X", "d2")).state is NameState.CONFLICT
