"""Lists by any filter: page by page they tell each job that fits once, however little one page looks at."""

import random
from itertools import product
from typing import Any

import pytest

from jqd.domain.job import ChangeKind, Fate, State
from jqd.domain.tenant import annotate
from jqd.store import JobView, Page, listing
from tests.contract.bench import StoreBench, changed, outcome
from tests.contract.limited import KEYED, claim, item, setting

TENANTS, NAMES, TAGS = ("", "acme"), ("mail", "sms"), ((), ("red",), ("blue", "red"), ("reddish",))
ROWS, SCAN, FREE = 7, 20, 5
QUEUES = 300
SOURCES = 8


async def fill(bench: StoreBench) -> list[JobView]:
    """Jobs of two tenants and types, with and without tags, in every state, and of one type so many that some lie in
    pages."""
    owner, sets = await bench.join(), list(product(TENANTS, NAMES, TAGS))
    dead = bench.make("mail", tags=("red",))
    await bench.add(dead)
    for fate, delay_ms in ((Fate.DEAD, 0), (Fate.SUCCEEDED, 0), (Fate.RETRY, 60_000), (Fate.RETRY, 0), (None, 0)):
        await bench.add(*(bench.make(annotate(tenant, name), tags=tags) for tenant, name, tags in sets))
        for tenant, name in product(TENANTS, NAMES):
            held = await bench.claim(owner, annotate(tenant, name))
            if fate is not None:
                await bench.settle(*(outcome(each, fate, status=500, delay_ms=delay_ms) for each in held))
    await bench.cancel(*[(await bench.push(annotate(t, n), tags=tags)).id for t, n, tags in sets])
    later_ms = bench.clock.wall_ms() + 60_000
    await bench.add(*(bench.make(annotate(t, n), tags=tags, eligible_at_ms=later_ms) for t, n, tags in sets))
    await bench.add(*(bench.make("mail", tags=TAGS[number % 40 == 0]) for number in range(150)))
    await bench.add(*(bench.make("sms", queue=KEYED, tags=tags) for _, _, tags in sets))
    # Its outcome is of another jobtype than its content since, which came while it was dead.
    revision = await bench.store.reserve_change(dead.id)
    await bench.add(changed(dead, revision, ChangeKind.EDIT, jobtype="sms"))
    cursor, views = "", list[JobView]()
    while True:
        page = await bench.store.list_jobs(None, None, None, 1_000, cursor)
        views += page.jobs
        if not (cursor := page.cursor):
            return views


async def pages(
    bench: StoreBench, state: State | None, jobtype: str | None, tag: str | None, limit: int, **more: Any
) -> list[Page]:
    found = [await bench.store.list_jobs(state, jobtype, tag, limit, "", **more)]
    while found[-1].cursor:
        found.append(await bench.store.list_jobs(state, jobtype, tag, limit, found[-1].cursor, **more))
    return found


async def test_each_filter_tells_each_job_once_however_little_a_page_looks_at(
    store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = await fill(store_bench)
    assert len({view.id for view in views}) == len(views) == 1 + 8 * 16 + 150
    monkeypatch.setattr(listing, "LIST_ROWS", ROWS)
    monkeypatch.setattr(listing, "LIST_SCAN", SCAN)
    for state, tenant, name, tag in product((None, *State), (None, *TENANTS), (None, *NAMES), (None, "red")):
        jobtype = None if name is None else annotate(tenant or "", name)
        wanted = {
            view.id
            for view in views
            if state in (None, view.state)
            and (tenant is None or view.tenant == tenant)
            and (name is None or view.jobtype in [annotate(each, name) for each in TENANTS])
            and (tag is None or tag in view.tags)
        }
        told = await pages(store_bench, state, jobtype, tag, limit=30, tenant=tenant)
        ids = [view.id for page in told for view in page.jobs]
        assert (len(ids), {*ids}) == (len(wanted), wanted), (state, tenant, name, tag)
        assert all(page.examined < SCAN + 3 * ROWS for page in told), (state, tenant, name, tag)
        assert sum(page.examined for page in told) >= len(wanted)


@pytest.mark.parametrize("types_at_once", [listing.LIST_TYPES, 150])
async def test_a_cursor_has_a_place_for_a_group_of_jobtypes_and_not_for_all(
    store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch, types_at_once: int
) -> None:
    """With a few thousand it did not fit into a URL any more, and no list or bulk change came to its end; jobs of types
    beyond the ten thousandth were in no list."""
    monkeypatch.setattr(listing, "LIST_TYPES", types_at_once)
    owner, types, source = await store_bench.join(), 5 * listing.LIST_SOURCES, random.Random(1)
    names = [f"user-{source.randbytes(4).hex()}" for _ in range(types)]
    await store_bench.add(*(store_bench.make(name) for name in names for _ in range(3)))
    await store_bench.claim_one(owner, names[7])
    for state, jobtype, jobs in ((None, None, 3 * types), (State.WAITING, None, 3 * types - 1), (None, names[5], 3)):
        told = await pages(store_bench, state, jobtype, None, limit=50)
        ids = [view.id for page in told for view in page.jobs]
        assert (len(ids), len(set(ids))) == (jobs, jobs)
        assert max(len(page.cursor) for page in told) < 50 * listing.LIST_SOURCES


@pytest.mark.parametrize("state", [None, State.WAITING])
@pytest.mark.parametrize(("at_once", "keyed"), [("LIST_TYPES", False), ("LIST_QUEUES", True)])
async def test_what_stays_is_listed_though_what_was_listed_before_ends(
    store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch, at_once: str, keyed: bool, state: State | None
) -> None:
    """As in a bulk cancel. The server scans what is left of many jobtypes or queues in other steps then."""
    monkeypatch.setattr(listing, at_once, 50)
    if keyed:
        stay = await many_queues(store_bench)
    else:
        jobs = [store_bench.make(f"user-{number:04}") for number in range(2 * QUEUES)]
        await store_bench.add(*jobs)
        stay = {job.id for job in jobs}
    told, cursor = set[str](), ""
    while True:
        page = await store_bench.store.list_jobs(state, None, None, 20, cursor, sources=8)
        fresh = [view.id for view in page.jobs if view.id not in told]
        told |= {*fresh}
        await store_bench.cancel(*fresh)
        if not (cursor := page.cursor):
            break
    assert stay <= told


async def test_a_cursor_has_no_place_for_jobtypes_whose_jobs_have_all_ended(store_bench: StoreBench) -> None:
    """A bulk cancel of 10,000 jobtypes kept one for each that it had emptied, until no URL held them."""
    jobs = [store_bench.make(f"user-{number:04}") for number in range(40 * SOURCES) for _ in range(2)]
    await store_bench.add(*jobs)
    told, cursor, longest = set[str](), "", 0
    while page := await store_bench.store.list_jobs(State.WAITING, None, None, SOURCES, cursor, sources=SOURCES):
        told |= {view.id for view in page.jobs}
        # One of the first group stays, so that others come into that group instead of those that are gone.
        await store_bench.cancel(*(view.id for view in page.jobs if view.jobtype != "user-0000"))
        longest = max(longest, len(page.cursor))
        if not (cursor := page.cursor):
            break
    assert told == {job.id for job in jobs}
    assert longest < 100 * SOURCES


async def test_jobs_of_which_no_attempt_ended_are_left_out_where_none_of_them_can_fit(store_bench: StoreBench) -> None:
    views = await fill(store_bench)
    tried = {view.id for view in views if view.outcome is not None}
    (page,) = await pages(store_bench, None, None, None, limit=1_000, tried=True)
    found = {view.id for view in page.jobs}
    assert tried <= found
    assert {view.state for view in page.jobs if view.id not in tried} <= {State.CANCELLED}
    assert page.examined == len(views)


async def test_what_takes_long_ends_a_page_and_few_jobs_are_one_all_the_same(
    store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [(await store_bench.push(tags=("red",))).id for _ in range(2 * FREE)][::-1]
    monkeypatch.setattr(listing, "LIST_S", 0.0)
    assert len(await pages(store_bench, None, None, "red", limit=100)) == 1
    monkeypatch.setattr(listing, "LIST_FREE", FREE)
    monkeypatch.setattr(listing, "LIST_ROWS", FREE)
    told = await pages(store_bench, None, None, "red", limit=100)
    assert [view.id for page in told for view in page.jobs] == jobs
    assert len(told) >= 2


async def test_large_rows_are_looked_at_a_few_with_each_call(
    store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = b"\xc6\x00\x08\x00\x00".ljust(5 + (1 << 19), b"x")
    jobs = [(await store_bench.push(argument=large, tags=("red",) if at % 7 == 0 else ())).id for at in range(28)]
    monkeypatch.setattr(listing, "LIST_SCAN", 1)
    told = await pages(store_bench, State.WAITING, None, "red", limit=100)
    assert [view.id for page in told for view in page.jobs] == jobs[::7][::-1]
    assert 2 <= len(told) <= 28
    assert sum(page.examined for page in told) == 28


async def test_a_job_due_in_a_year_hides_no_scheduled_job_that_was_pushed_after_it(
    store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LATER_ROWS", 61)
    now_ms, day_ms = store_bench.clock.wall_ms(), 86_400_000
    jobs = list[str]()
    for number in range(40):
        jobs.append((await store_bench.push(eligible_at_ms=now_ms + (300 - number % 7) * day_ms)).id)
        jobs.append((await store_bench.push("sms" if number % 2 else "mail")).id)
        jobs.append((await store_bench.push(eligible_at_ms=now_ms + day_ms)).id if number % 2 else jobs[0])
    newest = sorted({*jobs}, reverse=True)
    for limit in (1, 13, 50, 1_000):
        told = await pages(store_bench, None, None, None, limit)
        assert [view.id for page in told for view in page.jobs] == newest, limit
    assert sum(page.examined for page in told) == len(newest)


async def test_a_cursor_is_good_in_the_next_life_of_the_store(store_bench: StoreBench) -> None:
    """Each restart of the store ended the pages that people had open, and acts of many requests."""
    store, jobs = store_bench.store, [(await store_bench.push()).id for _ in range(5)]
    page = await store.list_jobs(None, None, None, 2, "")
    await store.new_life((await store.look(fresh=False)).identity)
    await store.look(fresh=False)
    rest = await store.list_jobs(None, None, None, 9, page.cursor)
    assert [view.id for view in (*page.jobs, *rest.jobs)] == jobs[::-1]


async def test_scheduled_jobs_are_told_once_where_they_become_many_meanwhile(
    store_bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LATER_ROWS", 20)
    due_ms = store_bench.clock.wall_ms() + 86_400_000
    jobs = [(await store_bench.push(eligible_at_ms=due_ms + number * 7 % 5)).id for number in range(19)]
    page = await store_bench.store.list_jobs(None, None, None, 5, "")
    assert [view.id for view in page.jobs] == jobs[:-6:-1]
    for number in range(10):
        await store_bench.push(eligible_at_ms=due_ms + number * 3 % 5)
    rest = list[str]()
    while page.cursor:
        page = await store_bench.store.list_jobs(None, None, None, 5, page.cursor)
        rest += [view.id for view in page.jobs]
    assert sorted(rest) == jobs[:-5]


@pytest.mark.parametrize("state", [None, State.WAITING, State.RETRYING, State.RUNNING])
async def test_what_stays_as_it_is_is_told_once_whatever_else_moves_between_pages(
    store_bench: StoreBench, state: State | None
) -> None:
    """What moves may be told twice, or not at all: as docs/use/HTTP.md says."""
    owner, source, day = await store_bench.join(), random.Random(7), 86_400_000
    now_ms = store_bench.clock.wall_ms()
    for number in range(60):
        later_ms = now_ms + source.randrange(1, 9) * day if number % 3 == 0 else 0
        await store_bench.push(("mail", "sms")[number % 2], eligible_at_ms=later_ms, priority=number % 2)
    held = [*await store_bench.claim(owner, "mail", 9), *await store_bench.claim(owner, "sms", 9)]
    for each in held[::2]:
        await store_bench.settle(outcome(each, Fate.RETRY, status=500, delay_ms=source.randrange(1, 9) * day))
    held = held[1::2]
    before = {view.id: view.state for page in await pages(store_bench, None, None, None, 100) for view in page.jobs}
    assert len(before) == 60
    moved, told, cursor = set[str](), list[str](), ""
    for _ in range(len(before)):
        page = await store_bench.store.list_jobs(state, None, None, 4, cursor)
        told += [view.id for view in page.jobs]
        if not (cursor := page.cursor):
            break
        if len(held) > 3:
            each = held.pop(source.randrange(len(held)))
            fate = source.choice((Fate.RETRY, Fate.SUCCEEDED, Fate.DEAD))
            await store_bench.settle(outcome(each, fate, status=500, delay_ms=source.choice((0, day))))
            moved.add(each.job.id)
        if len(moved) < 12:
            (each,) = await store_bench.claim(owner, source.choice(("mail", "sms")), 1)
            moved.add(each.job.id)
    assert not cursor, "it comes to an end"
    stayed = sorted(job_id for job_id, its in before.items() if job_id not in moved and state in (None, its))
    assert len(stayed) >= 5
    assert sorted(job_id for job_id in told if job_id not in moved) == stayed
    assert {*told} <= {*before}


async def many_queues(bench: StoreBench) -> set[str]:
    """Jobs that wait each in a queue of its own, which all wait for one constraint; two are in a hand."""
    await setting(bench, "each", concurrency=1)
    await setting(bench, "all", concurrency=2, digest=0)
    jobs = [bench.make(queue=KEYED + item("all") + item("each", key=f"={number}")) for number in range(QUEUES)]
    await bench.add(*jobs)
    assert {view.id for page in await pages(bench, State.WAITING, None, None, 100) for view in page.jobs} == {
        job.id for job in jobs
    }
    owner = await bench.join()
    held: list[str] = []
    while (got := await claim(bench, owner)) or got.more:
        held += [each.job.id for each in got]
    assert len(held) == 2
    return {job.id for job in jobs} - {*held}


@pytest.mark.parametrize(("state", "jobtype"), [(State.WAITING, None), (State.WAITING, "mail"), (None, "mail")])
async def test_a_list_tells_as_many_as_are_counted_however_many_queues_wait_for_one_bucket(
    store_bench: StoreBench, state: State | None, jobtype: str | None
) -> None:
    """Of a bucket it saw the first hundred queues and told that these were all: a cancel by name left the others."""
    waiting = await many_queues(store_bench)
    (counts,) = [row.counts for row in await store_bench.store.list_types()]
    for tenant in (None, ""):
        told = [
            view for page in await pages(store_bench, state, jobtype, None, 40, tenant=tenant) for view in page.jobs
        ]
        assert len({view.id for view in told}) == len(told)
        assert {view.id for view in told if view.state is State.WAITING} == waiting
        assert len(waiting) == counts.waiting


async def test_a_list_tells_a_queue_that_is_parked_and_let_go_again_and_again_meanwhile(
    store_bench: StoreBench,
) -> None:
    waiting, owner = await many_queues(store_bench), await store_bench.join("two")
    begun, told, cursor = set[str](), set[str](), ""
    for number in range(QUEUES):
        page = await store_bench.store.list_jobs(State.WAITING, "mail", None, 7, cursor)
        told |= {view.id for view in page.jobs}
        if not (cursor := page.cursor):
            break
        await setting(store_bench, "all", number + 2, concurrency=2 + number % 2, digest=0)  # all are looked at anew
        while (await store_bench.store.promote(500)).next_due_ms == 0:
            continue
        begun |= {each.job.id for each in await claim(store_bench, owner)}
    assert not cursor
    assert waiting - begun <= told


async def test_jobs_that_ended_come_by_their_ends_with_a_kept_result_and_without(store_bench: StoreBench) -> None:
    owner, ids = await store_bench.join(), list[str]()
    for number in range(9):
        ids.append((await store_bench.push("mail", keep_result=number % 2 == 1)).id)
        (held,) = await store_bench.claim(owner, "mail")
        result = b"\x01" if number % 2 else b""
        await store_bench.settle(outcome(held, Fate.SUCCEEDED, result=result))
        store_bench.clock.advance(1)
    found = await pages(store_bench, State.SUCCEEDED, None, None, 3)
    assert [view.id for page in found for view in page.jobs] == ids[::-1]
