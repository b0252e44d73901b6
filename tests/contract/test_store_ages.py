"""What looks find where jobs age and a date has passed: every jobtype, and the same of it whoever looks."""

import msgspec
import pytest
from msgspec import Raw

from jqd.domain.job import ChangeKind, Fate, Wanted
from jqd.domain.queue_name import BETWEEN, WITHIN
from jqd.domain.settings import Setting
from jqd.domain.tenant import annotate
from jqd.store import Ages, Release, StoreConfig
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import JOURNAL, StoreBench, changed, holds, outcome

PERIOD_MS = 1_000
CHUNK = 64  # rows of one priority that a look or a claim reads at once
ROWS = 1_024  # that a look goes through
PRIORITIES = 100  # looked at in one claim
TYPES = [f"type{number:02}" for number in range(70)]


async def begun() -> tuple[StoreBench, ManualClock]:
    clock = ManualClock()
    store = FakeStore(clock, StoreConfig())
    await store.look(fresh=True)
    bench = StoreBench(store, clock)
    await bench.join(period_ms=PERIOD_MS)
    return bench, clock


def key(number: int) -> str:
    return f"{BETWEEN}1{BETWEEN}three{WITHIN}1{WITHIN}{number}"


async def limit(bench: StoreBench, concurrency: int) -> None:
    """So many jobs of each key may run at once."""
    body = Raw(msgspec.msgpack.encode({"digest": 1, "concurrency": concurrency}))
    await bench.store.apply_settings(JOURNAL, 0, 100, [Setting("constraint", "three", 1, 2**41, body)])


async def look(bench: StoreBench, *jobtypes: str | None) -> dict[str, int]:
    """Jobtype → rank."""
    wanted = [Wanted(jobtype, -9, 1_000) for jobtype in jobtypes]
    rows = await bench.store.get_waiting_jobtypes(wanted, 64, ages=True)
    return {row.jobtype: row.rank for row in rows}


async def add_dated(bench: StoreBench, clock: ManualClock) -> str:
    return (await bench.push("dated", priority=5, eligible_at_ms=clock.wall_ms() - 10)).id


async def test_what_waited_before_jobs_aged_is_in_order_with_what_comes_after() -> None:
    """Then it stands loose, and what comes after does not."""
    clock = ManualClock()
    store = FakeStore(clock, StoreConfig())
    await store.look(fresh=True)
    bench = StoreBench(store, clock)
    owner = await bench.join()
    await limit(bench, 2)
    old = [
        await bench.push(priority=priority, queue=key(one))
        for priority, one in ((3, 1), (2, 2), (3, 1), (4, 1), (2, 3))
    ]
    clock.advance(2 * PERIOD_MS / 1000)
    await store.save_ageing(owner.sysid, PERIOD_MS)
    new = [await bench.push(priority=priority, queue=key(one)) for priority, one in ((2, 3), (0, 2), (3, 4), (1, 1))]
    claims = []
    for _ in range(2):
        assert await look(bench, None) == await look(bench, "mail")
        held = await bench.claim(owner, "mail", 7, ages=Ages(2**53, 0), version="1")
        claims.append([(one.job.id) for one in held])
        await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in held))
        await store.promote(99)
    by_age = [old[1], old[4], new[1], old[0], old[2], new[0], new[2]]
    assert claims == [[job.id for job in by_age], [new[3].id, old[3].id]]


@pytest.mark.parametrize("dated", ["none", "one waits", "one was cancelled"])
@pytest.mark.parametrize("keyed", [False, True])
async def test_the_oldest_is_found_among_more_rows_than_a_look_reads(dated: str, keyed: bool) -> None:
    bench, clock = await begun()
    if dated == "one was cancelled":
        await bench.cancel(await add_dated(bench, clock))
    await bench.push("old", priority=100, queue=key(1) if keyed else "")
    clock.advance(100 * PERIOD_MS)
    for jobtype in TYPES:
        await bench.add(*[bench.make(jobtype, priority=of, queue=key(of) if keyed else "") for of in range(16)])
    if dated == "one waits":
        await add_dated(bench, clock)
    assert len(TYPES) * 16 > ROWS
    found = await look(bench, None)
    assert "old" in found
    assert len(found) == 64


@pytest.mark.parametrize("dated", [False, True])
async def test_each_jobtype_that_is_named_is_found_however_many_queues_others_have(dated: bool) -> None:
    bench, clock = await begun()
    if dated:
        await add_dated(bench, clock)
    for jobtype in TYPES[:20]:
        await bench.add(*[bench.make(jobtype, queue=key(number)) for number in range(66)])
    assert ROWS < 20 * 66
    assert (await look(bench, *TYPES[:20])).keys() == set(TYPES[:20])


async def test_who_takes_any_jobtype_is_told_the_same_rank_as_who_names_it() -> None:
    bench, clock = await begun()
    await bench.push("a", eligible_at_ms=clock.wall_ms() + 9 * PERIOD_MS)  # pushed first, ready last
    clock.advance(1)
    await bench.push("b")
    clock.advance(1)
    await bench.push("a", priority=1)
    clock.advance(1)
    await bench.push("c")
    clock.advance(10 * PERIOD_MS)
    while (await bench.store.promote(10)).moved:
        continue
    named, found = await look(bench, *"abc"), await look(bench, None)
    assert found == named


@pytest.mark.parametrize(
    "then", ["waits", "is told anew", "UNGET", "UNSENT", "is reaped", "fails", "fails and has a date"]
)
async def test_a_job_that_had_ended_ages_from_when_it_is_tried_again_whatever_becomes_of_it(then: str) -> None:
    bench, clock = await begun()
    owner = await bench.join("other", PERIOD_MS)
    dead = await bench.push("dead", priority=5)
    await bench.settle(outcome(await bench.claim_one(owner, "dead"), Fate.DEAD))
    clock.advance(100 * PERIOD_MS)
    await bench.push("fresh")
    if then == "is told anew":  # the changes before the jobs, as may be after a loss
        now_ms = clock.wall_ms()
        bench, clock = await begun()
        clock.set_wall_ms(now_ms)
        await bench.push("fresh")
    await bench.add(changed(dead, clock.wall_ms() * 1_000, ChangeKind.RETRY))
    if then not in ("waits", "is told anew"):
        (held,) = await bench.claim(owner, "dead", 1, ages=Ages(2**53, 0))
        if then in Release.__members__:
            await bench.store.release_jobs(owner, holds([held]), Release[then])
        elif then == "is reaped":
            await bench.store.release_sysid(owner)
            await bench.join(period_ms=PERIOD_MS)
        else:
            await bench.settle(outcome(held, Fate.RETRY, delay_ms=10 if "date" in then else 0))
            clock.advance(1)
            await bench.store.promote(10)
    found = await look(bench, None)
    assert (found["dead"] or 0) - (found["fresh"] or 0) >= 5, "a month of dead jobs, tried again, went before all else"


async def test_queues_that_are_used_up_are_passed_over_in_pieces() -> None:
    """Those of so many priorities in one claim, and what waits behind them is found."""
    bench, _ = await begun()
    await limit(bench, 1)
    owner, ages = await bench.join("two", PERIOD_MS), Ages(2**53, 0)
    queues, levels = 3, 400
    for number in range(queues):
        await bench.add(*[bench.make(queue=key(number), priority=of) for of in range(levels)])
    assert len(await bench.claim(owner, limit=queues, version="1", ages=ages)) == queues
    free = await bench.push(priority=levels)
    for _ in range(1 + levels // PRIORITIES):
        claimed = await bench.claim(owner, limit=1, version="1", ages=ages)
        if claimed:
            break
    assert [held.job.id for held in claimed] == [free.id]


async def test_an_older_one_behind_a_chunk_of_dated_ones_goes_first() -> None:
    bench, clock = await begun()
    await limit(bench, 1_000)
    for number in range(CHUNK + 1):
        await bench.push(queue=key(number), eligible_at_ms=clock.wall_ms() + 9 * PERIOD_MS)
    clock.advance(1)
    oldest = await bench.push(queue=key(CHUNK + 1))
    clock.advance(10 * PERIOD_MS)
    while (await bench.store.promote(CHUNK + 1)).moved:
        continue
    owner = await bench.join("other", PERIOD_MS)
    claimed = await bench.claim(owner, limit=1, version="1", ages=Ages(2**53, 0))
    assert [held.job.id for held in claimed] == [oldest.id]


@pytest.mark.parametrize("besides", [frozenset[str](), frozenset(["else"])])
@pytest.mark.parametrize("ages", [False, True])
async def test_who_takes_any_jobtype_is_told_those_of_the_tenant_alone(ages: bool, besides: frozenset[str]) -> None:
    bench, _ = await begun()
    await bench.push("ours")
    await bench.push(annotate("acme", "theirs"))
    for tenant, jobtype in (("", "ours"), ("acme", annotate("acme", "theirs"))):
        found = await bench.store.get_waiting_jobtypes([Wanted(tenant=tenant, besides=besides)], 64, ages=ages)
        assert [row.jobtype for row in found] == [jobtype]


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_date_counts_from_no_time_to_come_after_a_change_of_the_period(leaves: bool) -> None:
    """A longer one: the number of its own period lies ahead of it. And who leaves takes its period along."""
    day_ms, clock = 86_400_000, ManualClock()
    store = FakeStore(clock, StoreConfig())
    await store.look(fresh=True)
    bench = StoreBench(store, clock)
    await bench.join("other", period_ms=day_ms)
    await bench.push("dated", priority=5, eligible_at_ms=clock.wall_ms() + 3 * day_ms)
    clock.advance(4 * day_ms / 1_000)
    await store.promote(10)
    longer = await bench.join("one", period_ms=2 * day_ms)
    if leaves:
        await store.release_sysid(longer)
    clock.advance(10)
    await bench.push("fresh", priority=5)
    ranks = await look(bench, "dated", "fresh")
    assert ranks["dated"] <= ranks["fresh"]
    assert ranks["fresh"] == 5 + clock.wall_ms() // (day_ms if leaves else 2 * day_ms)
