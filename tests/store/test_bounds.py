"""No call makes the server stand still: each script does a bounded number of commands, however much there is.

Nothing is timed here. The server counts the commands that it was given, those inside scripts too.
"""

from collections.abc import Awaitable, Callable

import pytest
import redis

from jqd.domain.errors import StoreRefused
from jqd.domain.job import Fate, State, Wanted
from jqd.store import CALL_JOBS_MAX, queries
from jqd.store.keys import Keys
from tests.contract.bench import JOURNAL, StoreBench, holds, ids, outcome
from tests.contract.limited import KEYED, item, setting, taken
from tests.store.bounded import COMMANDS_PER_JOB, FEW, MANY, Count, bench, count, fill

__all__ = ["bench", "count"]


@pytest.mark.parametrize(
    "call",
    [
        lambda store, records: store.apply_jobs(JOURNAL, 0, 1, records),
        lambda store, records: store.apply_changes(JOURNAL, 0, 1, records),
        lambda store, records: store.apply_outcomes(JOURNAL, 0, 1, records),
        lambda store, records: store.apply_cancels(JOURNAL, 0, 1, records),
        lambda store, records: store.unfinished(records),
        lambda store, records: store.delete_dead(records),
        lambda store, records: store.reserve_names(records),
    ],
    ids=[
        "apply_jobs",
        "apply_changes",
        "apply_outcomes",
        "apply_cancels",
        "unfinished",
        "delete_dead",
        "reserve_names",
    ],
)
async def test_a_call_with_too_many_records_is_refused_before_it_is_sent(
    bench: StoreBench, count: Count, call: Callable[..., Awaitable[object]]
) -> None:
    with pytest.raises(ValueError, match=f"{CALL_JOBS_MAX + 1} records"):
        await call(bench.store, ["x"] * (CALL_JOBS_MAX + 1))
    assert count.look().scripts == 0


async def test_as_many_jobs_as_are_allowed_go_in_one_call(bench: StoreBench, count: Count) -> None:
    await bench.add(*(bench.make(argument=b"\xc5\x01\xf4" + bytes(500)) for _ in range(CALL_JOBS_MAX)))
    count.look()
    assert count.scripts <= 2, "the second one loads the script"
    assert count.inside <= CALL_JOBS_MAX * COMMANDS_PER_JOB
    assert (await bench.store.stats()).waiting == CALL_JOBS_MAX


@pytest.mark.parametrize("jobs", [FEW, MANY])
async def test_what_a_call_costs_does_not_depend_on_how_many_wait(bench: StoreBench, count: Count, jobs: int) -> None:
    """The same bounds with few jobs and with many."""
    await fill(bench, jobs)
    owner = await bench.join()
    held = await bench.claim(owner, limit=100)
    count.look()
    steps: list[tuple[Callable[[], Awaitable[object]], int]] = [
        (lambda: bench.push(), 1),
        (lambda: bench.claim(owner, limit=50), 50),
        (lambda: bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in held[:50])), 50),
        (lambda: bench.settle(outcome(held[50], Fate.RETRY, delay_ms=1)), 1),
        (lambda: bench.store.release_jobs(owner, holds(held[60:])), 40),
        (lambda: bench.store.get_waiting_jobtypes([Wanted()], 64), 1),
        (lambda: bench.store.promote(100), 1),
        (lambda: bench.cancel(held[99].job.id), 1),
        (lambda: bench.members(owner), 1),
        (lambda: bench.store.stats(), 1),
        (lambda: bench.view(held[99].job), 1),
        (lambda: bench.store.applied(JOURNAL), 1),
    ]
    for number, (step, touched) in enumerate(steps):
        await step()
        count.look()
        assert count.scripts <= 2, f"step {number}"
        assert count.inside <= 50 + touched * COMMANDS_PER_JOB, f"step {number}: {count.inside} commands"


async def test_a_look_costs_the_same_however_much_waits_that_nobody_can_run(bench: StoreBench, count: Count) -> None:
    """Jobs of 300 types that are not wanted, of as many priorities, and a long queue before the one that is."""
    wanted = await bench.push("mine", priority=15)
    looks = [[Wanted(None, 10, 20)], [Wanted("mine", 10, 20)], [Wanted(besides=frozenset({"mail"}))]]
    costs: list[list[int]] = []
    for _ in range(2):
        costs.append([])
        for wishes in looks:
            count.look()
            (*_, found) = await bench.store.get_waiting_jobtypes(wishes, 64)
            costs[-1].append(count.look().inside)
            assert len(costs) == 2 or (found.jobtype, found.head_id) == ("mine", wanted.id)
        await fill(bench, MANY, jobtype="mine")
        await bench.add(*(bench.make(f"t{number}", priority=number % 10) for number in range(300)))
    assert max(later - before for before, later in zip(*(row[:2] for row in costs), strict=True)) <= 12, "of pages"
    assert costs[1][2] <= 64 * COMMANDS_PER_JOB, "all of it can be run: as many as were asked for"


PLACE_PAGES, PAGE = 12, 100


async def test_what_waits_before_a_job_is_counted_in_so_many_pages_of_all_priorities(
    bench: StoreBench, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PLACE_PAGES", PLACE_PAGES)
    levels, each = 4, 10 * PAGE
    for priority in range(levels):
        await bench.add(*(bench.make(priority=priority) for _ in range(each)))
    for priority, exact in ((0, True), (levels, False)):
        last = await bench.push(priority=priority)
        await bench.store.queue_place(last.id)  # loads the script
        count.look()
        place = await bench.store.queue_place(last.id)
        assert count.look().inside <= 2 * PLACE_PAGES + 120, "the rest looks for the first job behind in each level"
        assert place is not None
        least, most = (each, each) if exact else (levels * each + 1, levels * each + PAGE)
        assert (place.exact, least <= place.ahead <= most) == (exact, True)


@pytest.mark.parametrize("ages", [False, True])
async def test_rows_that_somebody_else_put_among_the_heads_hide_nothing(
    bench: StoreBench, client: "redis.Redis", ages: bool
) -> None:
    jobs = [await bench.push(f"t{number}") for number in range(9)]
    client.zadd(Keys("jqd")["index"], {"01GONE:t3": 0, "01GONE:gone": 0, "no row at all": 0})
    found = await bench.store.get_waiting_jobtypes([Wanted()], 64, ages=ages)
    assert sorted(row.head_id for row in found) == [job.id for job in jobs]


async def test_what_failed_is_listed_at_the_same_cost_however_much_has_ended(bench: StoreBench, count: Count) -> None:
    owner = await bench.join()
    failed = [await bench.push() for _ in range(2)]
    first, second = await bench.claim(owner)
    await bench.settle(outcome(first, Fate.FAILED), outcome(second, Fate.DEAD))
    costs = []
    for ended in (0, MANY):
        await fill(bench, ended)
        while held := await bench.claim(owner, limit=500, bytes_max=1 << 30):
            await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in held))
        count.look()
        page = await bench.store.list_jobs(State.FAILED, None, None, 50, "")
        assert (sorted(view.id for view in page.jobs), page.cursor) == ([job.id for job in failed], "")
        costs.append(count.look().inside)
    assert costs[0] == costs[1]


async def test_few_of_a_name_are_found_among_many_that_ended_and_none_costs_the_same_however_many(
    bench: StoreBench, count: Count, client: "redis.Redis"
) -> None:
    owner, rare = await bench.join(), list[str]()
    for number in range(MANY // 500):
        await fill(bench, 300)
        jobs = [await bench.push("rare") for _ in range(2)]
        if number == 3:
            await bench.cancel(jobs[0].id)
        await fill(bench, 200)
        for jobtype in ("mail", "rare"):
            while held := await bench.claim(owner, jobtype, 500):
                await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in held))
        bench.clock.advance(1)
        rare[:0] = [job.id for job in reversed(jobs)]
    count.look()
    for state, name in [(None, "none"), (State.WAITING, None), (State.FAILED, "rare"), (State.RUNNING, "mail")]:
        assert (await bench.store.list_jobs(state, name, None, 50, ""))[:2] == ([], "")
        assert count.look().inside <= 150, "the first step, and the counts"
    cancelled, cursor = list[str](), ""
    while page := await bench.store.list_jobs(State.CANCELLED, None, None, 50, cursor):
        cancelled += [view.id for view in page.jobs]
        if not (cursor := page.cursor):
            break
    assert len(cancelled) == 1
    assert count.look().inside <= MANY / 8, "of those that are passed over the outcomes are read, 25 at once"
    found, cursor = list[str](), ""
    while page := await bench.store.list_jobs(None, "rare", None, 3, cursor):
        found += [view.id for view in page.jobs]
        if not (cursor := page.cursor):
            break
    assert found == rare
    client.hset(Keys("jqd")["counts"], "succeeded:rare", "rubbish")
    found, cursor = [], ""
    while page := await bench.store.list_jobs(State.SUCCEEDED, "rare", None, 50, cursor):
        found += [view.id for view in page.jobs]
        if not (cursor := page.cursor):
            break
    assert len(found) == len(rare) - 1
    found, cursor = [], ""
    while page := await bench.store.list_jobs(State.SUCCEEDED, "mail", None, 150, cursor):
        found += [view.id for view in page.jobs]
        if not (cursor := page.cursor):
            break
    assert len(found) == len(set(found)) == MANY


async def test_jobs_of_a_call_that_was_cut_short_are_found_when_it_is_repeated(
    bench: StoreBench, client: "redis.Redis"
) -> None:
    """They wait already, in no index, and without rows."""
    owner, keys = await bench.join(), Keys("jqd")
    jobs = [bench.make("mail"), bench.make("mail", queue="\x1e7\x1er\x1d1\x1d=a")]
    await bench.add(*jobs)
    client.delete(keys["index"], keys["jobs"], keys["types"], f"{keys['queues']}:mail")
    await bench.add(*jobs)
    assert [row.head_id for row in await bench.store.get_waiting_jobtypes([Wanted()], 64)] == [jobs[0].id]
    assert sorted(holds(await bench.claim(owner))) == [job.id for job in jobs]


async def test_a_keyed_queue_that_somebody_else_wrote_over_is_refused(bench: StoreBench, client: "redis.Redis") -> None:
    """Its type is learned by reading it, not asked for."""
    owner = await bench.join()
    await fill(bench, FEW, queue=(queue := "\x1e7\x1er\x1d1\x1d=a"))  # few would be loose
    client.delete(key := Keys("jqd").ready(f"mail{queue}"))
    client.set(key, "mine")
    with pytest.raises(StoreRefused, match="has another type"):
        await bench.claim(owner)
    assert client.get(key) == b"mine"


async def test_jobtypes_are_told_few_at_a_time_whether_much_happened_to_them_or_little(
    bench: StoreBench, count: Count
) -> None:
    """A jobtype has fields only where a number is not 0."""
    jobs = [bench.make(f"t{number}") for number in range(20 * queries.TYPES_PART)]
    for start in range(0, len(jobs), CALL_JOBS_MAX):
        await bench.add(*jobs[start : start + CALL_JOBS_MAX])
    bench.clock.advance(2)
    for is_dated, commands in ((True, COMMANDS_PER_JOB), (False, 1)):
        count.look()
        views = await bench.store.list_types(dated=is_dated)
        assert count.look().scripts >= 20
        assert count.inside <= 20 * count.scripts + commands * len(jobs)
        assert [view.jobtype for view in views] == sorted(job.jobtype for job in jobs)
        assert all(bool(view.oldest_ms) is is_dated for view in views)


async def test_what_a_bucket_counts_of_thousands_and_nobody_has_is_found_in_turns(
    bench: StoreBench, client: "redis.Redis"
) -> None:
    """The first thousand by age were looked at: with so many that last nothing behind them was mended."""
    owner = await bench.join()
    await setting(bench, "all", concurrency=1_200)
    jobs = [bench.make(queue=KEYED + item("all")) for _ in range(1_201)]
    await bench.add(*jobs)
    held = [*await taken(bench, owner, 600), *await taken(bench, owner, 600)]
    assert len(held) == 1_200
    assert await taken(bench, owner) == []
    client.hdel("{jqd:0}:about", held[-1].job.id)
    for _ in range(4):
        bench.clock.advance(60)
        await bench.store.promote(10)
    assert ids(await taken(bench, owner)) == [jobs[-1].id]
