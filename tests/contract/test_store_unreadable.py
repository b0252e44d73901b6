"""Rows that cannot be read, and rows of another version: nothing of them is lost, and their neighbours go on."""

import pytest

from jqd.domain.errors import StoreRefused
from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import ChangeKind, Job, State
from jqd.store import JobView, codec
from jqd.store.codec import ROW_VERSION
from tests.contract.bench import StoreBench, changed, ids
from tests.contract.change import ask, push_named
from tests.contract.limited import KEYED, claim, item, setting
from tests.store.counting import Recount

BAD = b"\xc1 rubbish"


def recount_of(bench: StoreBench) -> Recount:
    assert bench.recount is not None
    return bench.recount


async def check(bench: StoreBench) -> None:
    """Whatever was written by others is out of the way: counts and owners agree after one call more."""
    recount_of(bench).off = False
    await bench.store.stats()


async def delete(bench: StoreBench, job: Job) -> None:
    assert await bench.store.delete_dead([job.id]) == [job.id]
    assert not isinstance(await bench.store.get_job(job.id), JobView)
    await check(bench)
    assert recount_of(bench).row(job.id) is None


@pytest.mark.parametrize("queue", [KEYED, KEYED + item("c", 1, "k")])
@pytest.mark.parametrize("number", [1, 60])
async def test_one_that_waits_in_a_limited_queue_is_shown_and_the_next_claim_buries_it(
    store_bench: StoreBench, queue: str, number: int
) -> None:
    owner = await store_bench.join()
    await setting(store_bench, "c", concurrency=100)
    jobs = [store_bench.make(queue=queue, argument=b"\x05") for _ in range(number)]
    await store_bench.add(*jobs)
    recount_of(store_bench).spoil(jobs[0].id, BAD)
    for _ in range(2):
        view = await store_bench.view(jobs[0])
        assert (view.state, view.history[-1].reason) == (State.FAILED, "unreadable")
        assert len((await store_bench.store.list_jobs(None, None, None, 100, "")).jobs) == number
    assert await store_bench.store.delete_dead([jobs[0].id]) == [], "it waits yet"
    assert ids(await claim(store_bench, owner)) == ids_of(jobs[1:])
    assert await claim(store_bench, owner) == []
    assert jobs[0].id not in await store_bench.store.get_held(owner)
    view = await store_bench.view(jobs[0])
    assert (view.state, view.jobtype, view.history[-1].reason) == (State.FAILED, "mail", "unreadable")
    await check(store_bench)
    await delete(store_bench, jobs[0])


def ids_of(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


@pytest.mark.parametrize("how", ["look", "claim"])
async def test_its_row_stays_whole_until_it_is_deleted(store_bench: StoreBench, how: str) -> None:
    job, row = await store_bench.push(), BAD + bytes(5_000)
    recount_of(store_bench).spoil(job.id, row)
    if how == "claim":
        assert await store_bench.claim(await store_bench.join()) == []
    for _ in range(2):
        assert (await store_bench.view(job)).state is State.FAILED
        assert recount_of(store_bench).row(job.id) == row
        await check(store_bench)
    await delete(store_bench, job)


async def test_with_another_content_it_waits_again_and_is_counted_where_it_was(store_bench: StoreBench) -> None:
    owner, job = await store_bench.join(), await store_bench.push()
    recount_of(store_bench).spoil(job.id, BAD)
    assert await store_bench.claim(owner) == []
    await check(store_bench)
    await store_bench.add(changed(job, await store_bench.store.reserve_change(job.id), ChangeKind.RETRY))
    (held,) = await store_bench.claim(owner)
    assert held.job.argument == job.argument


async def test_a_row_that_can_be_read_beside_one_that_cannot_keeps_the_name(store_bench: StoreBench) -> None:
    owner, job = await store_bench.join(), await push_named(store_bench, argument=b"\xa5hello")
    recount_of(store_bench).spoil(job.id, BAD[:3], "tries")
    assert await store_bench.claim(owner) == []
    view = await store_bench.view(job)
    assert (view.state, view.name, view.argument) == (State.FAILED, "mine", b"\xa5hello")
    assert recount_of(store_bench).row(job.id) == codec.encode_job(job)
    assert await store_bench.store.resolve("mine") == job.id
    await delete(store_bench, job)
    assert await store_bench.store.resolve("mine") is None


async def test_whose_latest_content_nobody_knows_is_kept_until_it_is_replaced(store_bench: StoreBench) -> None:
    owner, job = await store_bench.join(), await push_named(store_bench)
    recount_of(store_bench).spoil(job.id, BAD, "generation")
    assert await store_bench.claim(owner) == []
    (listed,) = (await store_bench.store.list_jobs(None, None, None, 100, "")).jobs
    assert (listed.id, listed.state) == (job.id, State.FAILED)
    assert await store_bench.store.delete_dead([job.id]) == [], "a later content may be on its way"
    await check(store_bench)
    given = await ask(store_bench, job.id, "d2", replace=1)
    await store_bench.add(changed(job, given.revision, ChangeKind.REPLACE, digest="d2"))
    assert ids(await store_bench.claim(owner)) == [job.id]


async def test_what_was_written_anew_since_it_was_seen_is_not_buried(store_bench: StoreBench) -> None:
    job = await store_bench.push()
    store_bench.store.burial.note(job.id, "it was rubbish", BAD)
    assert not await store_bench.store.burial.bury()
    assert ids(await store_bench.claim(await store_bench.join())) == [job.id]


@pytest.mark.parametrize("other", [b"\x02", b"\x02\xc3"], ids=["next", "of_another_form"])
async def test_a_row_of_another_version_stays_where_it_is_for_who_can_read_it(
    store_bench: StoreBench, other: bytes
) -> None:
    owner, job = await store_bench.join(), await store_bench.push(argument=b"\xa5hello")
    row = codec.encode_job(job)
    assert row[1] == ROW_VERSION
    later = bytes([row[0] + len(other) - 1]) + other + row[2:]
    recount_of(store_bench).spoil(job.id, later)
    for call in (
        store_bench.store.get_job(job.id),
        store_bench.store.list_jobs(None, None, None, 100, ""),
        store_bench.claim(owner),
    ):
        with pytest.raises(StoreRefused, match="has version 2, this jqd reads 1"):
            await call
    assert recount_of(store_bench).row(job.id) == later
    recount_of(store_bench).spoil(job.id, row)  # as one that reads it would find it
    await store_bench.store.release_jobs(owner, await store_bench.store.get_held(owner))
    await check(store_bench)
    (held,) = await store_bench.claim(owner)
    assert held.job == job


async def test_a_blocked_one_is_buried_and_those_taken_with_it_are_not_held_up(store_bench: StoreBench) -> None:
    bench = store_bench
    await bench.store.look(fresh=True)
    parent = bench.make()
    bad, good = (
        bench.make("sum", flow=Flow(after=(parent.id,)), eligible_at_ms=BLOCKED_MS, created_at_ms=at) for at in (1, 2)
    )
    await bench.add(parent, bad, good)
    recount_of(bench).spoil(bad.id, BAD)
    assert [each.job.id for each in (await bench.store.take_links(100, 5.0)).blocked] == [good.id]
    assert "holds something" in str(bench.store.burial.complaint)
    view = await bench.view(bad)
    assert (view.state, view.history[-1].reason) == (State.FAILED, "unreadable")
    rows = await bench.store.list_links([bad.id, good.id], 1)
    assert [(row.job.id, row.state) for row in rows if row] == [(bad.id, "failed"), (good.id, "blocked")]
    assert not (await bench.store.take_links(100, 5.0)).blocked, "both were taken"
    assert await bench.store.delete_dead([bad.id]) == [bad.id]


async def test_a_blocked_one_of_another_version_stays_and_is_named(store_bench: StoreBench) -> None:
    bench = store_bench
    await bench.store.look(fresh=True)
    parent = bench.make()
    new, good = (bench.make("sum", flow=Flow(after=(parent.id,)), eligible_at_ms=BLOCKED_MS) for _ in range(2))
    await bench.add(parent, new, good)
    row = codec.encode_job(new)
    recount_of(bench).spoil(new.id, row.replace(bytes([ROW_VERSION]), bytes([ROW_VERSION + 1]), 1))
    assert [each.job.id for each in (await bench.store.take_links(100, 5.0)).blocked] == [good.id]
    assert "has version" in str(bench.store.burial.complaint)
    assert [row is not None for row in await bench.store.list_links([new.id, good.id], 1)] == [True, True]
