"""Many queues under limits: none hides another, whatever waits in them."""

import pytest

from jqd.domain.job import Fate, Wanted
from jqd.store.keys import Keys
from tests.contract.bench import StoreBench, ids, outcome
from tests.contract.limited import KEYED, claim, heads, item, setting, taken

PRIORITIES = 1000  # of one queue, moved at once: limits.lua
VISITS = 100  # queues that give nothing, in one claim: choose.lua
PASSED = 500  # rows of what is limited, passed over by one claim: choose.lua


async def test_a_long_queue_in_pages_waits_as_a_whole(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "r", rate={"limit": 150, "per_s": 1.0})
    await bench.add(*(bench.make(queue=KEYED + item("r")) for _ in range(500)))
    assert len(await taken(bench, owner, 100)) == 100
    assert len(await taken(bench, owner, 100)) == 50
    assert await heads(bench) == []
    assert (await bench.store.stats()).waiting == 350
    assert [row.counts.waiting for row in (await bench.store.list_types()) if row.counts.waiting] == [350]
    bench.clock.advance(1.001)
    await bench.store.promote(10)
    assert await heads(bench) != []
    assert len(await taken(bench, owner, 200)) == 150


async def test_many_small_queues_fill_one_claim(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "r", concurrency=1)
    jobs = [bench.make(queue=KEYED + item("r", key=f"={n % 150}")) for n in range(300)]
    await bench.add(*jobs)
    first = await taken(bench, owner, 200)
    assert ids(first) == [job.id for job in jobs[:150]], "one of each key"
    assert await taken(bench, owner, 200) == []
    await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in first))
    assert ids(await taken(bench, owner, 200)) == [job.id for job in jobs[150:]]


async def test_keys_that_are_used_up_wait_among_many_of_which_nothing_was_spent(store_bench: StoreBench) -> None:
    """Of some of them it is asked together, and each alone where one of those was spent of."""
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "r", rate={"limit": 2, "per_s": 10.0})
    used = {3: 2, 24: 1, 25: 2, 99: 2}
    await bench.add(
        *(bench.make(queue=KEYED + item("r", key=f"={key}")) for key, count in used.items() for _ in range(count))
    )
    assert len(await taken(bench, owner)) == 7
    jobs = [bench.make(queue=KEYED + item("r", key=f"={number % 100}")) for number in range(200)]
    await bench.add(*jobs)
    found = [*await taken(bench, owner), *await taken(bench, owner), *await taken(bench, owner)]
    full = [job.id for number, job in enumerate(jobs) if used.get(number % 100, 0) == 2 or number == 124]
    assert ids(found) == [job.id for job in jobs if job.id not in full]
    bench.clock.advance(10.001)
    await bench.store.promote(100)
    assert sorted(ids(await taken(bench, owner))) == sorted(full)


async def test_of_no_key_anything_starts_while_nobody_knows_what_was_spent_of_it(store_bench: StoreBench) -> None:
    bench = store_bench
    await bench.join()
    bench.wipe()
    await bench.store.look(fresh=True)
    bench.clock.advance(1.0)
    owner = await bench.join()
    await setting(bench, "r", rate={"limit": 1, "per_s": 10.0}, rated_ms=1)
    jobs = [bench.make(queue=KEYED + item("r", key=f"={number}")) for number in range(60)]
    await bench.add(*jobs)
    assert await taken(bench, owner) == []
    bench.clock.advance(10.001)
    await bench.store.promote(100)
    assert ids(await taken(bench, owner)) == [job.id for job in jobs]


@pytest.mark.parametrize("is_changed", [False, True])
async def test_what_many_keys_spent_is_forgotten_in_some_calls(store_bench: StoreBench, is_changed: bool) -> None:
    bench, owner, spent = store_bench, await store_bench.join(), Keys("jqd")["spent"].encode()
    await setting(bench, "r", rate={"limit": 1, "per_s": 1.0})
    jobs = [bench.make(queue=KEYED + item("r", key=f"={n % 250}")) for n in range(500)]
    await bench.add(*jobs[:250])
    assert ids(await taken(bench, owner, 250)) == [job.id for job in jobs[:250]]
    if is_changed:
        await setting(bench, "r", 2, rate={"limit": 1, "per_s": 2.0})
        bench.clock.advance(1)
    assert (await bench.store.purge(100)).rows == 0
    assert spent in set(bench.keys())
    bench.clock.advance(1.002)
    while (await bench.store.purge(100)).rows:
        pass
    assert spent not in set(bench.keys())
    await bench.add(*jobs[250:])
    assert ids(await taken(bench, owner, 250)) == [job.id for job in jobs[250:]]


async def test_jobtypes_that_all_wait_for_a_constraint_hide_no_other(store_bench: StoreBench) -> None:
    """From who takes any jobtype but one: more of them than are asked for, and none worse."""
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "stop", until_ms=2**52)
    limited = [f"a{number}" for number in range(4)]
    for jobtype in limited:
        await bench.push(jobtype=jobtype, queue=KEYED + item("stop"))
    await bench.push(jobtype="free", queue=KEYED)
    for jobtype in limited:
        assert await claim(bench, owner, jobtype=jobtype) == []
    rows = await bench.store.get_waiting_jobtypes([Wanted(None, besides=frozenset({"paused"}))], 2)
    assert [row.jobtype for row in rows] == ["free"]


async def test_a_queue_of_more_priorities_than_are_moved_at_once_is_let_go_whole(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    assert bench.recount
    bench.recount.has_many_priorities = True
    await setting(bench, "stop", until_ms=2**52)
    pushed = [bench.make(queue=KEYED + item("stop"), priority=priority) for priority in range(PRIORITIES + 3)]
    for at in range(0, len(pushed), 300):
        await bench.add(*pushed[at : at + 300])
    assert [await taken(bench, owner) for _ in range(6)] == [[]] * 6, "and those behind the first are met one by one"
    await setting(bench, "stop", 2)
    await bench.store.promote(500)
    await bench.store.promote(500)
    held = [one for _ in range(6) for one in await claim(bench, owner, 500, version="")]
    assert ids(held) == [job.id for job in pushed]


async def test_a_claim_passes_over_so_many_rows_of_what_is_limited_and_the_next_one_over_the_rest(
    store_bench: StoreBench,
) -> None:
    bench, owner = store_bench, await store_bench.join()
    assert bench.recount
    bench.recount.has_many_priorities = True
    await setting(bench, "stop", until_ms=2**52)
    limited = [
        bench.make(queue=KEYED + item("stop", key=key), priority=priority)
        for priority in range(PASSED // 2 + 10)
        for key in ("=a", "=b")
    ]
    await bench.add(*limited[:300])
    await bench.add(*limited[300:])
    free = await bench.push(queue=KEYED, priority=PRIORITIES)
    first = await claim(bench, owner)
    assert (first, first.more) == ([], True), "as long as it would have been from 100 queues of 1,000 priorities"
    assert ids(await claim(bench, owner)) == [free.id]
    await setting(bench, "stop", 2)
    await bench.store.promote(500)
    held = [one for _ in range(2) for one in await claim(bench, owner, 500, version="")]
    assert ids(held) == [job.id for job in limited]


async def test_jobs_of_more_queues_than_one_claim_puts_aside_hide_none_behind_them(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "stop", until_ms=2**52)
    limited = [bench.make(queue=KEYED + item("stop", key=f"={key:03}")) for key in range(VISITS + 50)]
    await bench.add(*limited)
    free = await bench.push(queue=KEYED)
    first = await claim(bench, owner)
    assert (first, first.more) == ([], True)
    assert ids(await claim(bench, owner)) == [free.id]
    await setting(bench, "stop", 2)
    while (await bench.store.promote(500)).moved:
        pass
    held = [one for _ in range(2) for one in await claim(bench, owner, 500, version="")]
    assert sorted(ids(held)) == [job.id for job in limited]


async def test_a_loose_job_overtakes_none_of_its_queue_that_was_put_aside(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "r", rate={"limit": 1, "per_s": 1.0})
    queue = KEYED + item("r")
    old = await bench.push(queue=queue)
    (held,) = await claim(bench, owner)
    free, new = await bench.push(queue=KEYED), await bench.push(queue=queue)
    await bench.store.release_jobs(owner, {held.job.id: held.fence})
    assert ids(await claim(bench, owner, 1)) == [free.id], "the old one is put aside, the new one was not met"
    bench.clock.advance(2)
    assert await claim(bench, owner) == [], "as long as the rate was not looked at"
    await bench.store.promote(1)
    assert ids(await claim(bench, owner)) == [old.id]
    bench.clock.advance(2)
    await bench.store.promote(1)
    assert ids(await claim(bench, owner)) == [new.id]


async def test_what_the_bytes_leave_out_has_spent_nothing_and_is_in_no_hand(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "r", rate={"limit": 2, "per_s": 60.0}, digest=3)
    await setting(bench, "s", concurrency=2, digest=4)
    queues = [KEYED + item("r", key=f"={key}") + item("s", key=f"={key}") for key in "abaabb"]
    jobs = [bench.make(queue=queue, argument=b"\xc4\x64" + b"x" * 100) for queue in queues]
    await bench.add(*jobs)
    first = await claim(bench, owner, bytes_max=500)
    assert 0 < len(first) < 4
    await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in first))
    rest = await claim(bench, owner)
    assert sorted(ids([*first, *rest])) == sorted(job.id for job in jobs if job not in (jobs[3], jobs[5])), (
        "two of each"
    )
    await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in rest))
    assert await claim(bench, owner) == []
    bench.clock.advance(60)
    await bench.store.promote(10)
    assert ids(await claim(bench, owner)) == [jobs[3].id, jobs[5].id]


async def test_a_job_that_one_constraint_refuses_takes_nothing_of_another(store_bench: StoreBench) -> None:
    """Queues whose names begin alike: of one limit, of that one and another, and of the same at another cost."""
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "each", rate={"limit": 3, "per_s": 60.0}, digest=3)
    await setting(bench, "hand", concurrency=1, digest=4)
    both, one = KEYED + item("each", key="=a") + item("hand"), KEYED + item("each", key="=a")
    queues = [KEYED + item("each", key="=b"), both, both, both, one, KEYED + item("each", 2, "=a"), one, one]
    jobs = [bench.make(queue=queue) for queue in queues]
    await bench.add(*jobs)
    held = await claim(bench, owner)
    assert ids(held) == [jobs[at].id for at in (0, 1, 4, 6)], "each lets two more start, but no job of cost 2 at last"


async def test_after_an_edit_all_queues_of_a_bucket_are_let_go_whatever_waits_for_it_again(
    store_bench: StoreBench,
) -> None:
    """The first hundred of them were looked at: they wait there again, and what is behind them waited for ever, though
    no constraint limits it any more."""
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "all", concurrency=1)
    jobs = [bench.make(queue=KEYED + item("all") + item("each", key=f"={number}")) for number in range(250)]
    await bench.add(*jobs)
    assert len(await taken(bench, owner)) == 1
    while (await claim(bench, owner)).more:
        continue
    await setting(bench, "all", 2, concurrency=1, digest=8)  # of the first hundred and fifty alone
    limited, free = {job.id for job in jobs[1:150]}, set[str]()
    for _ in range(20):
        while (await bench.store.promote(500)).next_due_ms == 0:
            continue
        while (held := await claim(bench, owner, version="8")) or held.more:
            back = [(each, "\x1e8" + item("all")) for each in held if each.job.id in limited]
            assert all(each.job.queue.startswith(KEYED) for each, _ in back), "what it limits waits"
            free |= {each.job.id for each in held} - limited
            await bench.store.requeue(
                owner, [(each, queue + item("each", key=f"={each.job.id}")) for each, queue in back]
            )
        bench.clock.advance(1)
    assert free == {job.id for job in jobs[150:]}
