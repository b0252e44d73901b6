"""Counts by jobtype, and what waits before a job. That they equal a recount all contract tests show."""

from jqd.domain.job import SNOOZE, ChangeKind, Fate, State
from jqd.store import Release
from jqd.store.counts import Counts, Totals
from tests.contract.bench import StoreBench, changed, holds, outcome


async def counts(bench: StoreBench, jobtype: str = "mail") -> dict[str, int]:
    """Those that are not 0."""
    told = await bench.store.list_types()
    view = {view.jobtype: view.counts for view in told}.get(jobtype, Counts())
    return {state: number for state, number in view._asdict().items() if number}


async def test_each_job_counts_in_its_state(store_bench: StoreBench) -> None:
    store, owner = store_bench.store, await store_bench.join()
    await store_bench.add(*(store_bench.make() for _ in range(7)))
    await store_bench.push(eligible_at_ms=store_bench.clock.wall_ms() + 9_000)
    await store_bench.push("pdf")
    assert await counts(store_bench) == {"waiting": 7, "scheduled": 1}
    held = await store_bench.claim(owner, limit=6)
    fates = (Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD, Fate.RETRY)
    await store_bench.settle(*(outcome(one, fate, delay_ms=500) for one, fate in zip(held, fates, strict=False)))
    await store_bench.cancel(held[4].job.id)
    assert await counts(store_bench) == {
        "waiting": 1, "scheduled": 1, "running": 2, "retrying": 1, "succeeded": 1, "failed": 2,
    }  # fmt: skip
    await store.release_jobs(owner, holds(held[4:]))
    store_bench.clock.advance(1.0)
    await store.promote(10)
    assert await counts(store_bench) == {
        "waiting": 2, "scheduled": 1, "retrying": 1, "succeeded": 1, "failed": 2, "cancelled": 1,
    }  # fmt: skip
    for state in State:  # a list by state has as many
        page = await store.list_jobs(state, "mail", None, 100, "")
        assert len(page.jobs) == (await counts(store_bench)).get(state.value, 0), state
    stats = await store.stats()
    assert (stats.counts.jobs, stats.counts.waiting, stats.counts.queued) == (9, 3, 5)
    assert await counts(store_bench, "pdf") == {"waiting": 1}


async def test_what_was_put_off_has_not_failed(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    await store_bench.push()
    held = await store_bench.claim_one(owner)
    await store_bench.settle(outcome(held, Fate.RETRY, delay_ms=500, reason=SNOOZE))
    assert await counts(store_bench) == {"scheduled": 1}


async def test_another_content_may_be_of_another_type(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    job = await store_bench.push(name="own")
    await store_bench.claim_one(owner)
    await store_bench.add(changed(job, 10**15, ChangeKind.REPLACE, jobtype="pdf"))
    assert (await counts(store_bench), await counts(store_bench, "pdf")) == ({}, {"running": 1})


async def test_what_is_deleted_counts_no_more(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    job, dead = await store_bench.push(), await store_bench.push("pdf")
    for jobtype, fate in (("mail", Fate.SUCCEEDED), ("pdf", Fate.DEAD)):
        await store_bench.settle(outcome(await store_bench.claim_one(owner, jobtype), fate))
    assert await store_bench.store.delete_dead([dead.id]) == [dead.id]
    assert [view.jobtype for view in await store_bench.store.list_types()] == ["mail"]
    store_bench.clock.advance(8 * 86_400)
    assert (await store_bench.store.purge(100)).rows == 1
    assert await store_bench.store.list_types() == []
    assert await store_bench.store.unfinished([job.id]) == []


async def test_totals_only_grow(store_bench: StoreBench) -> None:
    """Of all together for ever, of a jobtype until the last of its jobs is deleted."""
    store, owner = store_bench.store, await store_bench.join()

    async def totals() -> tuple[int, ...]:
        (view,) = await store.list_types()
        assert (await store.stats()).totals == view.totals, "the only type"
        return view.totals

    await store_bench.add(*(store_bench.make() for _ in range(30)))
    held = await store_bench.claim(owner, limit=20)
    fates = [Fate.SUCCEEDED] * 12 + [Fate.DEAD] * 6 + [Fate.RETRY]
    await store_bench.settle(*(outcome(one, fate) for one, fate in zip(held, fates, strict=False)))
    await store_bench.cancel(*(one.job.id for one in await store_bench.claim(owner, limit=1)))
    assert await totals() == (30, 21, 18, 6)
    await store.delete_dead([one.job.id for one in held[:18]])
    await store_bench.claim(owner, limit=3)
    assert await totals() == (30, 24, 18, 6)
    pdf = await store_bench.push("pdf")
    await store_bench.cancel(pdf.id)
    await store.delete_dead([pdf.id])
    assert (await store.stats()).totals == (31, 24, 19, 6)
    assert await totals_of(store_bench, "pdf") is None
    await store_bench.push("pdf")
    assert await totals_of(store_bench, "pdf") == (1, 0, 0, 0)


async def totals_of(bench: StoreBench, jobtype: str) -> Totals | None:
    return {view.jobtype: view.totals for view in await bench.store.list_types()}.get(jobtype)


async def test_a_job_that_becomes_one_of_another_type_was_pushed_there(store_bench: StoreBench) -> None:
    """Else its new type had no total by which it is found."""
    job = await store_bench.push(name="own")
    await store_bench.add(changed(job, 10**15, ChangeKind.REPLACE, jobtype="pdf"))
    assert await totals_of(store_bench, "pdf") == (1, 0, 0, 0)
    assert await totals_of(store_bench, "mail") is None


async def test_a_job_whose_row_is_gone_bad_moves_from_no_type(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    job = await store_bench.push()
    assert store_bench.recount is not None
    store_bench.recount.spoil(job.id)
    assert await store_bench.claim(owner) == []
    assert (await store_bench.store.stats()).counts.failed == 1
    await store_bench.store.release_jobs(owner, {}, Release.UNGET)


# ------------------------------------------------------------ what waits before a job


async def test_a_place_in_the_queue(store_bench: StoreBench) -> None:
    store, owner = store_bench.store, await store_bench.join()
    jobs = [store_bench.make(priority=5) for _ in range(350)]
    await store_bench.add(*jobs)
    first = await store_bench.push(priority=1)
    late = await store_bench.push(priority=7)
    await store_bench.add(store_bench.make("bill", priority=6), store_bench.make("bill", priority=9))
    await store_bench.push("thumb", priority=7)

    async def place(job_id: str) -> tuple[object, ...] | None:
        told = await store.queue_place(job_id)
        return None if told is None else (told.ahead, told.exact, told.better_types, told.better)

    assert await place(first.id) == (0, True, 0, [])
    for at in (0, 99, 100, 101, 250, 349):
        assert await place(jobs[at].id) == (at + 1, True, 0, []), at
    assert await place(late.id) == (351, True, 1, [("bill", 2)])
    (held,) = await store_bench.claim(owner, limit=1)
    assert held.job == first
    assert await place(first.id) is None
    assert await place(jobs[120].id) == (120, True, 0, [])
    assert await place(store_bench.make().id) is None


async def test_the_next_job_waits_since_it_could_begin(store_bench: StoreBench) -> None:
    """Not since its push: an alert by that age would come for each job with a date, or one that is tried again."""
    store, clock, owner = store_bench.store, store_bench.clock, await store_bench.join()

    async def waited_s() -> float:
        await store.promote(10)
        (view,) = await store.list_types()
        return (clock.wall_ms() - view.oldest_ms) / 1000 if view.oldest_ms else -1

    job = await store_bench.push(eligible_at_ms=clock.wall_ms() + 3_600_000)
    clock.advance(60)
    assert await waited_s() == -1, "none is ready"
    clock.advance(3_600)
    assert await waited_s() == 60
    held = await store_bench.claim_one(owner)
    at_ms = clock.wall_ms()
    await store_bench.settle(outcome(held, Fate.RETRY, delay_ms=600_000, finished_at_ms=at_ms))
    clock.advance(630)
    assert await waited_s() == 30
    held = await store_bench.claim_one(owner)
    await store_bench.settle(outcome(held, Fate.DEAD))
    clock.advance(86_400)
    await store_bench.add(changed(job, clock.wall_ms() * 1000, ChangeKind.RETRY))
    clock.advance(5)
    assert await waited_s() == 5, "since somebody had it tried anew"
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED))
    await store_bench.push()
    clock.advance(7)
    assert await waited_s() == 7
