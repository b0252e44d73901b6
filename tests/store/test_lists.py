"""Lists over several partitions: the newest of all come first, page by page, and nothing is missed or told twice.

And over one store that starts anew between two pages.
"""

import base64
from collections.abc import Sequence

import msgspec
import pytest
from msgspec import structs

from jqd.api.head_limits import TARGET_LENGTH_MAX
from jqd.domain.job import Held, State
from jqd.domain.record import Lane
from jqd.store import (
    Page,
    listing,
)
from jqd.store.merged_list import CURSOR_IDS, PIECE_JOBS
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench
from tests.contract.limited import KEYED, claim, item, setting
from tests.store.parted import CONFIG, EVERYTHING, PARTS, Cluster, name_in, parted


@pytest.fixture
async def fakes() -> Cluster:
    """See `parted`."""
    return await parted()


async def test_the_newest_of_all_come_first_page_by_page(fakes: Cluster) -> None:
    jobs = [fakes.make(name_in(fakes.random.choice([0, 1, 1, 1, 2]))) for _ in range(3 * PIECE_JOBS)]
    for at in range(0, len(jobs), 50):
        await fakes.add(*jobs[at : at + 50])
    newest = sorted((job.id for job in jobs), reverse=True)
    for limit in (1, 7, PIECE_JOBS, 2 * PIECE_JOBS + 1, 1_000):
        assert [view.id for view in await fakes.pages(None, None, None, limit)] == newest


class Ranked(FakeStore):
    """Walks what waits from the worst priority on, as the real one does: only within a page the newest come first."""

    calls = 0

    async def list_jobs(
        self,
        state: State | None,
        jobtype: str | None,
        tag: str | None,
        limit: int,
        cursor: str,
        tenant: str | None = None,
        *,
        row_bytes: int = 0,
        tried: bool = False,
        sources: int = listing.LIST_SOURCES,
    ) -> Page:
        self.calls += 1
        everything = await super().list_jobs(state, jobtype, tag, EVERYTHING, "")
        ranked = sorted(((view.priority, view.id, view) for view in everything.jobs), reverse=True)
        if cursor:
            priority, _, job_id = cursor.partition(" ")
            ranked = [row for row in ranked if row[:2] < (int(priority), job_id)]
        page, rest = ranked[:limit], ranked[limit:]
        found = sorted((view for *_, view in page), key=lambda view: view.id, reverse=True)
        return Page(found, f"{page[-1][0]} {page[-1][1]}" if rest else "")


@pytest.fixture
async def ranked() -> Cluster:
    """Partitions whose pages are newest first only in themselves, with 160 jobs of any priority."""
    cluster = await parted(Ranked)
    jobs = [cluster.make(name_in(number % PARTS), priority=cluster.random.randint(-5, 5)) for number in range(160)]
    await cluster.add(*jobs[:80])
    await cluster.add(*jobs[80:])
    return cluster


@pytest.mark.parametrize("part", [0.0, 0.7, 1.0])
async def test_nothing_is_missed_nor_told_twice_while_what_was_told_goes_away(ranked: Cluster, part: float) -> None:
    """As when what is listed is cancelled, page by page; what is left stays where the next look begins."""
    cursor, told = "", []
    while True:
        limit = ranked.random.choice([1, 5, 40])
        page = await ranked.spread.list_jobs(State.WAITING, None, None, limit, cursor)
        found = [view.id for view in page.jobs]
        assert found == sorted(found, reverse=True)
        told += found
        gone = [job_id for job_id in found if ranked.random.random() < part]
        await ranked.apply(Lane.CANCELS, [(job_id, job_id, job_id) for job_id in gone])
        cursor = page.cursor
        if not cursor:
            break
    assert sorted(told) == sorted(ranked.pushed)


async def test_a_partition_that_has_all_is_asked_in_large_pieces(ranked: Cluster) -> None:
    await ranked.add(*(ranked.make(name_in(1)) for _ in range(90)))
    await ranked.add(*(ranked.make(name_in(1)) for _ in range(90)))
    assert len(await ranked.pages(None, name_in(1), None, 1_000)) == 180 + 53
    assert [store.calls for store in ranked.stores if isinstance(store, Ranked)] == [1, 2, 1]


async def test_a_cursor_stays_small(fakes: Cluster) -> None:
    for _ in range(10):
        await fakes.add(*(fakes.make(name_in(number % PARTS)) for number in range(90)))
    cursor, pages = "", 0
    while True:
        page = await fakes.spread.list_jobs(None, None, None, 250, cursor)
        cursor, pages = page.cursor, pages + 1
        assert len(cursor) < (CURSOR_IDS + PARTS) * 40
        if not cursor:
            break
    assert pages == 4


class Sparse(FakeStore):
    """Looks at many jobs that do not fit: its pages are short."""

    looks = 0

    async def list_jobs(
        self,
        state: State | None,
        jobtype: str | None,
        tag: str | None,
        limit: int,
        cursor: str,
        tenant: str | None = None,
        *,
        row_bytes: int = 0,
        tried: bool = False,
        sources: int = listing.LIST_SOURCES,
    ) -> Page:
        self.looks += 1
        at = int(cursor or 0)
        page = await super().list_jobs(state, jobtype, tag, EVERYTHING, "")
        found = page.jobs[at // 2 : at // 2 + 1] if at % 2 else []
        return Page(found, str(at + 1) if at // 2 < len(page.jobs) else "")


@pytest.mark.parametrize("letters", [range(ord("a"), ord("z")), range(0x4E00, 0x9FA0)])
@pytest.mark.parametrize("types_at_once", [listing.LIST_TYPES, 50])
async def test_a_cursor_fits_into_a_url_however_many_jobtypes_each_partition_has(
    fakes: Cluster, monkeypatch: pytest.MonkeyPatch, types_at_once: int, letters: Sequence[int]
) -> None:
    """It had each name, and with names of 128 ideographs 41 KB: no list came to its second page."""
    monkeypatch.setattr(listing, "LIST_TYPES", types_at_once)
    names = ["".join(map(chr, fakes.random.choices(letters, k=128))) for _ in range(5 * listing.LIST_SOURCES)]
    jobs = [fakes.make(name) for name in names for _ in range(3)]
    for at in range(0, len(jobs), 50):
        await fakes.add(*jobs[at : at + 50])
    told, cursor, longest = list[str](), "", 0
    while page := await fakes.spread.list_jobs(None, None, None, 50, cursor):
        told, cursor, longest = told + [view.id for view in page.jobs], page.cursor, max(longest, len(page.cursor))
        if not cursor:
            break
    assert sorted(told) == sorted(job.id for job in jobs)
    assert longest < TARGET_LENGTH_MAX * 3 // 4


async def test_a_page_ends_where_many_were_looked_at(fakes: Cluster) -> None:
    sparse = Sparse(fakes.clock, CONFIG)
    cluster = Cluster([fakes.stores[0], sparse, fakes.stores[2]], fakes.clock)
    await cluster.begin()
    jobs = [cluster.make(name_in(number)) for number in (1, 0, 1, 2, 1)]
    await cluster.add(*jobs)
    page = await cluster.spread.list_jobs(None, None, None, 10, "")
    assert [view.id for view in page.jobs] == [jobs[3].id, jobs[1].id], "those of the others"
    assert page.cursor
    assert sparse.looks == 1
    rest: list[str] = []
    while page.cursor:
        page = await cluster.spread.list_jobs(None, None, None, 10, page.cursor)
        rest += [view.id for view in page.jobs]
    assert sorted(rest) == sorted([jobs[0].id, jobs[2].id, jobs[4].id])


class Moving(FakeStore):
    """The newest of its jobs is seen in a first piece, and again in a second, where it ended."""

    async def list_jobs(
        self,
        state: State | None,
        jobtype: str | None,
        tag: str | None,
        limit: int,
        cursor: str,
        tenant: str | None = None,
        *,
        row_bytes: int = 0,
        tried: bool = False,
        sources: int = listing.LIST_SOURCES,
    ) -> Page:
        views = (await super().list_jobs(state, jobtype, tag, EVERYTHING, "")).jobs
        return Page([structs.replace(views[0], state=State.SUCCEEDED)], "") if cursor else Page(views, "1")


async def test_a_job_that_moves_between_two_pieces_stands_once(fakes: Cluster) -> None:
    cluster = Cluster([Moving(fakes.clock, CONFIG), *fakes.stores[1:]], fakes.clock)
    await cluster.begin()
    jobs = [cluster.make(name_in(0)) for _ in range(PIECE_JOBS)]
    await cluster.add(*jobs)
    page = await cluster.spread.list_jobs(None, None, None, PIECE_JOBS + 5, "")
    assert sorted(view.id for view in page.jobs) == sorted(job.id for job in jobs)
    assert (page.jobs[0].state, page.cursor) == (State.SUCCEEDED, "")


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "!",
        "\u00e9",
        base64.b64encode(b"\x90").decode(),
        base64.b64encode(msgspec.msgpack.encode([None, None])).decode(),
        base64.b64encode(msgspec.msgpack.encode([None, None, 5])).decode(),
        base64.b64encode(msgspec.msgpack.encode([None, None, ["", [], 0]])).decode(),
        base64.b64encode(msgspec.msgpack.encode([None, None, ["", [], PIECE_JOBS + 1]])).decode(),
        base64.b64encode(msgspec.msgpack.encode([None, None, ["foreign", [], 1]])).decode(),
    ],
)
async def test_a_cursor_of_somebody_else_is_none(fakes: Cluster, cursor: str) -> None:
    await fakes.add(fakes.make(name_in(2)))
    with pytest.raises(ValueError, match="cursor"):
        await fakes.spread.list_jobs(None, None, None, 10, cursor)


async def test_no_queue_is_missed_where_the_store_starts_anew_between_two_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its queues lie in another order since, so what came behind the place in the cursor was not what was left."""
    monkeypatch.setattr(listing, "LIST_QUEUES", 20)
    clock = ManualClock()
    store = FakeStore(clock)
    await store.look(fresh=True)
    bench = StoreBench(store, clock)
    await setting(bench, "each", concurrency=1)
    await setting(bench, "all", concurrency=1, digest=0)
    owner = await bench.join()
    jobs = [bench.make(queue=KEYED + item("all") + item("each", key=f"={number}")) for number in range(300)]
    await bench.add(*jobs)
    held: list[Held] = []
    while (got := await claim(bench, owner)) or got.more:
        held += got
    first = await store.list_jobs(State.WAITING, "mail", None, 110, "")
    store.restart()
    await store.look(fresh=False)
    told, cursor, pages = {view.id for view in first.jobs}, first.cursor, 0
    while cursor:
        page = await store.list_jobs(State.WAITING, "mail", None, 110, cursor)
        told, cursor, pages = told | {view.id for view in page.jobs}, page.cursor, pages + 1
    assert told == {job.id for job in jobs} - {each.job.id for each in held}
    assert pages <= len(jobs)
