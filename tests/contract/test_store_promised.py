"""A job under its pusher's own id is known by jqd's id, too, from its reservation until it comes."""

import pytest

from jqd.domain.job import Change, ChangeKind, Job, State
from jqd.domain.jobid import journal_number
from jqd.store import NameJournaled, NameStanding, NameState, NameWanted, OnItsWay
from jqd.store.keys import last_field
from jqd.store.links import Watched, WatchPair
from tests.contract.bench import JOURNAL, OTHER_JOURNAL, StoreBench

KEEP_S = 172_800.0


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    await store_bench.store.applied(JOURNAL)
    await store_bench.join()
    return store_bench


async def watched(bench: StoreBench, job: Job) -> Watched:
    pair = WatchPair("child", "", job.id, last_field(journal_number(JOURNAL)))
    (one,) = await bench.store.watch_parents([pair])
    return one


async def test_a_journal_that_told_nothing_yet_is_told_from_one_that_is_not_known(store_bench: StoreBench) -> None:
    """What the first still has is on its way; the other may never come."""
    job = store_bench.make()
    pairs = [WatchPair("child", "", job.id, last_field(journal_number(name))) for name in (JOURNAL, OTHER_JOURNAL)]
    assert [one.last_id for one in await store_bench.store.watch_parents(pairs)] == ["", None]


async def test_a_named_job_is_on_its_way_by_its_id_from_the_promise_to_its_coming(store_bench: StoreBench) -> None:
    job = store_bench.make(name="mine")
    await store_bench.push()  # with a later id
    store = store_bench.store
    assert (await watched(store_bench, job)).is_coming is False
    (given,) = await store.reserve_names([NameWanted("mine", job.id, "d", False)])
    assert (await watched(store_bench, job)).is_coming
    await store.confirm_names([NameJournaled("mine", job.id, "d", given.revision)])
    asked = await watched(store_bench, job)
    assert (asked.id, asked.how, asked.is_coming) == (job.id, None, True)
    assert (asked.last_id or "") > job.id, "by the ids alone it would be gone"
    assert isinstance(await store.get_job(job.id), OnItsWay)
    change = Change(given.revision, given.revision, ChangeKind.NEW, "d")
    await store_bench.add(Job(job.id, "mail", name="mine", change=change))
    asked = await watched(store_bench, job)
    assert (asked.how, asked.is_coming) == ("", False)
    await store_bench.cancel(f"{job.id}@{given.revision}")
    assert (await watched(store_bench, job)).how == "cancelled"


async def test_who_gives_a_name_back_promises_nothing(store_bench: StoreBench) -> None:
    job = store_bench.make(name="mine")
    wanted = NameWanted("mine", job.id, "d", False)
    await store_bench.store.reserve_names([wanted])
    await store_bench.store.free_names([wanted])
    assert (await watched(store_bench, job)).is_coming is False


async def test_a_promise_that_nobody_keeps_is_forgotten(store_bench: StoreBench) -> None:
    job = store_bench.make(name="mine")
    await store_bench.store.reserve_names([NameWanted("mine", job.id, "d", False)])
    store_bench.clock.advance(KEEP_S - 1)
    await store_bench.store.purge(100)
    assert (await watched(store_bench, job)).is_coming
    store_bench.clock.advance(2)
    await store_bench.store.purge(100)
    assert (await watched(store_bench, job)).is_coming is False


async def test_a_job_whose_name_went_to_another_is_promised_no_more_once_it_came(store_bench: StoreBench) -> None:
    job, other = store_bench.make(name="mine"), store_bench.make(name="mine")
    confirm = store_bench.store.confirm_names  # as daemons do that got the name in lives of the store that are gone
    await confirm([NameJournaled("mine", job.id, "d", 5)])
    await confirm([NameJournaled("mine", other.id, "d2", 9)])
    await store_bench.add(Job(job.id, "mail", name="mine", change=Change(5, 5, ChangeKind.NEW, "d")))
    assert await store_bench.state(job) is State.CANCELLED
    await store_bench.store.delete_dead([job.id])
    assert (await watched(store_bench, job)).is_coming is False
    assert (await watched(store_bench, other)).is_coming


async def test_a_replacement_that_is_confirmed_makes_the_end_before_it_uncertain(store_bench: StoreBench) -> None:
    job = store_bench.make(name="mine")
    store = store_bench.store
    (given,) = await store.reserve_names([NameWanted("mine", job.id, "d", False)])
    first = Job(job.id, "mail", name="mine", change=Change(given.revision, given.revision, ChangeKind.NEW, "d"))
    await store_bench.add(first)
    await store_bench.cancel(f"{job.id}@{given.revision}")
    assert (await watched(store_bench, job)).how == "cancelled"
    again = await store.reserve_change(job.id)
    await store.confirm_names([NameJournaled("mine", job.id, "d2", again, replaces=True)])
    store_bench.clock.advance(40)
    assert (await watched(store_bench, job)).is_coming


@pytest.mark.parametrize("later", [False, True], ids=["alone", "with a later content promised"])
async def test_a_copy_that_comes_after_its_job_was_deleted_takes_back_what_was_confirmed_late(
    store_bench: StoreBench, later: bool
) -> None:
    """Two daemons journaled one push: who waits for it waited for two days, and a push was a duplicate of nothing."""
    job, store = store_bench.make(name="mine"), store_bench.store
    (first,) = await store.reserve_names([NameWanted("mine", job.id, "d", False)])
    (second,) = await store.reserve_names([NameWanted("mine", store_bench.make().id, "d", False)])
    assert (second.job_id, second.revision) == (job.id, first.revision)
    copy = Job(job.id, "mail", name="mine", change=Change(first.revision, first.revision, ChangeKind.NEW, "d"))
    await store.confirm_names([NameJournaled("mine", job.id, "d", first.revision)])
    await store_bench.add(copy)
    await store_bench.cancel(f"{job.id}@{first.revision}")
    await store.delete_dead([job.id])
    assert await store.resolve("mine") is None
    late = NameJournaled("mine", job.id, "d", first.revision)
    assert await store.confirm_names([late]) == [NameStanding.STANDS]
    assert (await watched(store_bench, job)).is_coming
    if later:
        await store.confirm_names([NameJournaled("mine", job.id, "d2", first.revision + 1)])
    await store_bench.add(copy)
    assert (await watched(store_bench, job)).is_coming is later
    assert await store.resolve("mine") == (job.id if later else None)
    if not later:
        (again,) = await store.reserve_names([NameWanted("mine", store_bench.make().id, "d", False)])
        assert again.state is NameState.NEW
        assert again.job_id != job.id
