"""Queues and their limits in the store: on the real server and in memory."""

from typing import Any

import pytest

from jqd.domain.job import Fate, State
from jqd.domain.queue_name import WITHIN
from jqd.store import Release
from tests.contract.bench import StoreBench, ids, outcome
from tests.contract.limited import KEYED, claim, heads, item, setting, taken


async def test_one_claim_fills_from_many_queues_in_the_order_of_priority_and_age(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "r", concurrency=1000)
    jobs = [
        await bench.push(priority=priority, queue=queue)
        for queue, priority in [
            (KEYED + item("r", key="=a"), 1),
            (KEYED, 0),
            (KEYED + item("r", key="=b"), 1),
            (KEYED + item("r", key="=a"), 0),
            (KEYED + item("r", key="=a"), 1),
            (KEYED + item("r", key="=b"), -5),
            (KEYED, 1),
        ]
    ]
    wanted = [job.id for job in sorted(jobs, key=lambda job: (job.priority, job.id))]
    for name in ("mail", None):
        assert await heads(bench, name) == [("mail", -5, wanted[0], 7)]
    first = await taken(bench, owner, 4)
    assert ids(first) == wanted[:4]
    assert await heads(bench) == [("mail", 1, wanted[4], 3)]
    assert first[0].job.queue == KEYED + item("r", key="=b")
    await bench.store.release_jobs(owner, {held.job.id: held.fence for held in first})
    assert ids(await taken(bench, owner)) == wanted
    assert await heads(bench) == await heads(bench, None) == []


async def test_a_queue_waits_apart_and_costs_the_others_nothing(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "two", concurrency=2)
    limited = [await bench.push(priority=-1, queue=KEYED + item("two")) for _ in range(5)]
    free = [await bench.push(queue=KEYED) for _ in range(2)]
    held = await taken(bench, owner)
    assert ids(held) == [limited[0].id, limited[1].id, free[0].id, free[1].id]
    assert await heads(bench) == await heads(bench, None) == []
    assert [(row.jobtype, row.counts.waiting) for row in (await bench.store.list_types()) if row.counts.waiting] == [
        ("mail", 3)
    ]
    assert await taken(bench, owner) == []
    for jobtype in (None, "mail"):
        page = await bench.store.list_jobs(State.WAITING, jobtype, None, 50, "")
        assert [view.id for view in page.jobs] == [job.id for job in limited[:1:-1]]
    later = await bench.push(queue=KEYED + item("two"), priority=-9)  # the best of a queue that waits
    assert await heads(bench) == []
    await bench.settle(outcome(held[0], Fate.SUCCEEDED))
    assert [row[2] for row in await heads(bench)] == [later.id]
    assert ids(await taken(bench, owner)) == [later.id]
    assert await taken(bench, owner) == []


async def test_a_jobtype_whose_last_limited_job_was_cancelled_waits_no_more(store_bench: StoreBench) -> None:
    """Every look of an idle daemon would go on asking for it."""
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "one", concurrency=1)
    first, second = [await bench.push(queue=KEYED + item("one")) for _ in range(2)]
    (held,) = await taken(bench, owner)
    assert await taken(bench, owner) == []
    await bench.settle(outcome(held, Fate.SUCCEEDED))
    assert (await bench.store.promote(10)).is_any
    other = await bench.push(queue=KEYED + item("one"))
    assert ids(await taken(bench, owner)) == [second.id]
    assert (held.job.id, await taken(bench, owner)) == (first.id, [])
    await bench.cancel(other.id)
    assert not (await bench.store.promote(10)).is_any


@pytest.mark.parametrize("how", ["retried", "released", "reaped", "cancelled"])
async def test_whoever_leaves_a_hand_makes_room(store_bench: StoreBench, how: str) -> None:
    bench, owner, other = store_bench, await store_bench.join(), await store_bench.join("two")
    await setting(bench, "one", concurrency=1)
    jobs = [await bench.push(queue=KEYED + item("one")) for _ in range(3)]
    (held,) = await taken(bench, owner)
    assert await taken(bench, other) == []
    if how == "retried":
        await bench.settle(outcome(held, Fate.RETRY, delay_ms=60_000))
    elif how == "released":
        await bench.store.release_jobs(owner, {held.job.id: held.fence}, Release.UNSENT)
    elif how == "cancelled":
        await bench.cancel(held.job.id)
        await bench.store.release_jobs(owner, {held.job.id: held.fence})
    else:
        member = (await bench.members(other))["one"]
        while await bench.store.reap("one", member, 3):
            pass
    (then,) = await taken(bench, other)
    assert then.job.id == jobs[0 if how in ("released", "reaped") else 1].id
    assert await taken(bench, other) == []


@pytest.mark.parametrize("how", ["together", "outcome", "released", "reaped", "never"])
async def test_a_late_success_gives_back_what_a_later_attempt_counts(store_bench: StoreBench, how: str) -> None:
    """Its daemon was away, and another had the job once more. That one had not begun it and gave it back, or died: it
    counted for a minute with nothing at work, and for ever where no other job of its key came."""
    bench, owner, other = store_bench, await store_bench.join(), await store_bench.join("two")
    await setting(bench, "one", concurrency=1)
    job, then = [await bench.push(queue=KEYED + item("one", key="=a")) for _ in range(2)]
    (first,) = await taken(bench, owner)
    await bench.store.release_sysid(owner)
    bench.clock.advance(1)
    (second,) = await taken(bench, other)
    assert first.job.id == second.job.id == job.id
    ends = [outcome(first, Fate.SUCCEEDED), outcome(second, Fate.RETRY)]
    assert await bench.settle(*ends[: 2 if how == "together" else 1]) == ([job.id] if how == "together" else [])
    if how == "outcome":
        assert await bench.settle(ends[1]) == [job.id]
    elif how == "released":
        await bench.store.release_jobs(other, {job.id: second.fence}, Release.UNSENT)
    elif how == "reaped":
        third = await bench.join("three")
        while await bench.store.reap("two", (await bench.members(third))["two"], 3):
            pass
        other = third
    assert ids(await taken(bench, other)) == [then.id]


@pytest.mark.parametrize("limit", [{"concurrency": 1}, {"rate": {"limit": 1, "per_s": 60.0}}], ids=["count", "rate"])
async def test_a_job_tells_by_what_it_is_limited(store_bench: StoreBench, limit: dict[str, Any]) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "one", **limit)
    first, then = [await bench.push(queue=KEYED + item("one", key="ann")) for _ in range(2)]
    assert ids(await taken(bench, owner)) == [first.id]
    assert await taken(bench, owner) == []
    told = await bench.store.queue_place(then.id)
    assert told is not None
    assert (told.limited_by, told.ahead, told.better_types) == (f"one{WITHIN}ann", 0, 0)
    assert told.holds == ((first.id,) if "concurrency" in limit else ())
    wait_ms = told.until_ms - bench.clock.wall_ms()
    assert told.until_ms == 0 if "concurrency" in limit else 0 < wait_ms <= 60_000


async def test_a_rate_holds_in_every_sliding_window(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "rate", rate={"limit": 3, "per_s": 1.0})
    for _ in range(20):
        await bench.push(queue=KEYED + item("rate"))
    starts: list[float] = []
    for _ in range(60):
        await bench.store.promote(10)
        starts += [bench.clock.wall_ms()] * len(await taken(bench, owner, 2))
        bench.clock.advance(0.07)
    assert len(starts) >= 10
    assert all(late - early >= 1000 for early, late in zip(starts, starts[3:], strict=False))


async def test_a_start_that_came_back_unsent_counts_for_its_window_all_the_same(store_bench: StoreBench) -> None:
    """As SCHEDULING.md says: a worker that refuses it was asked, too."""
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "rate", rate={"limit": 1, "per_s": 60.0})
    job = await bench.push(queue=KEYED + item("rate"))
    (held,) = await taken(bench, owner)
    await bench.store.release_jobs(owner, {job.id: held.fence}, Release.UNSENT)
    bench.clock.advance(59)
    await bench.store.promote(10)
    assert await taken(bench, owner) == []
    bench.clock.advance(2)
    await bench.store.promote(10)
    assert ids(await taken(bench, owner)) == [job.id]


async def test_a_burst_comes_on_top_once_and_comes_back_at_the_rate(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "rate", rate={"limit": 2, "per_s": 1.0, "burst": 4})
    for _ in range(40):
        await bench.push(queue=KEYED + item("rate"))
    counts = []
    for _ in range(8):
        await bench.store.promote(10)
        counts.append(len(await taken(bench, owner)))
        bench.clock.advance(1.001)
    assert counts == [6, 2, 2, 2, 2, 2, 2, 2]
    bench.clock.advance(10)
    await bench.store.promote(10)
    assert len(await taken(bench, owner)) == 6


async def test_costs_and_several_constraints_all_must_allow(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "rate", rate={"limit": 10, "per_s": 60.0}, digest=3)
    await setting(bench, "hand", concurrency=4, digest=4)
    dear = KEYED + item("hand") + item("rate", 4)
    cheap = KEYED + item("rate", 1)
    for _ in range(4):
        await bench.push(queue=dear)
    assert len(await taken(bench, owner)) == 2
    for _ in range(5):
        await bench.push(queue=cheap)
    assert len(await taken(bench, owner)) == 2, "8 of 10 were spent"
    bench.clock.advance(60)
    await bench.store.promote(10)
    held = await taken(bench, owner)
    assert [one.job.queue == dear for one in held] == [True, True, False, False]


async def test_a_pause_holds_until_its_date_or_until_it_is_taken_back(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    until_ms = bench.clock.wall_ms() + 5000
    await setting(bench, "pause", until_ms=until_ms)
    job = await bench.push(queue=KEYED + item("pause"))
    assert await taken(bench, owner) == []
    assert (await bench.store.promote(10)).next_due_ms == 5000
    bench.clock.advance(5.001)
    await bench.store.promote(10)
    (held,) = await taken(bench, owner)
    await setting(bench, "pause", 2, until_ms=2**53)
    await bench.store.release_jobs(owner, {held.job.id: held.fence})
    assert await taken(bench, owner) == []
    await setting(bench, "pause", 3, concurrency=9)
    await bench.store.promote(10)
    assert ids(await taken(bench, owner)) == [job.id]


async def test_who_matches_by_other_constraints_gets_nothing(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    job = await bench.push()
    await setting(bench, "r", concurrency=1)
    told = await claim(bench, owner, version="")
    assert (told, told.outdated) == ([], True)
    (held,) = await taken(bench, owner)  # of a queue that was found before: not checked
    assert held.job.queue == ""
    await bench.store.requeue(owner, [(held, KEYED + item("r"))])
    again = await taken(bench, owner)
    assert [(one.job.id, one.job.queue, one.job.argument) for one in again] == [
        (job.id, KEYED + item("r"), job.argument)
    ]
    assert (await bench.view(job)).attempts == 1
    await bench.push(queue=KEYED + item("r"))
    assert await taken(bench, owner) == []
    await setting(bench, "r", 2)  # deleted: what waits for it is let go, and checked anew
    await bench.store.promote(10)
    assert len(await claim(bench, owner, version="")) == 1


async def test_what_a_matcher_failed_on_waits_until_it_is_mended(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "r", concurrency=5)
    await bench.push(queue=KEYED + item("r", "", "!"))
    for _ in range(3):
        assert await taken(bench, owner) == []
        bench.clock.advance(100)
        await bench.store.promote(10)
    await setting(bench, "r", 2, concurrency=5, digest=8)
    await bench.store.promote(10)
    assert len(await claim(bench, owner, version="8")) == 1
