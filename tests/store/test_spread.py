"""Several partitions as one: they answer as one store that has all would, and what one of them lacks is told."""

import base64
import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from msgspec import structs

from jqd.store import (
    EdgeStore,
    JobView,
    NameGiven,
    NameJournaled,
    NameWanted,
    Owner,
    Page,
    Spread,
    Store,
    StoreConfig,
    StoreStats,
    Verdict,
    open_store,
)
from jqd.store.spread import CURSOR_IDS, PIECE_JOBS
from jqd.testing.store import FakeStore
from jqd.words.clock import ManualClock
from jqd.words.errors import StoreAway, StoreChanged, StoreRefused
from jqd.words.job import Change, ChangeKind, Fate, Held, Job, State
from jqd.words.jobid import IdSource, home_of, journal_number, partition_of, partition_of_name
from jqd.words.record import Lane
from tests.contract.bench import ALL, JOURNAL, outcome
from tests.valkey import Valkey

PARTS = 3
TYPES = ("mail", "scan", "bill", "sum")
TAGS = ("red", "blue")
NAMES = ("ann", "bob", "cid", "dan", "eve")
EVERYTHING = 10_000
STEPS = 60
WALKS = 25  # of the suite's form
REAL_PART = 10  # one walk in so many is done on a real server too: the contract holds the fake to it

CONFIG = StoreConfig(history_max=3)


class Cluster:
    """One store that has all, and partitions that have the same among them."""

    def __init__(self, stores: Sequence[Store], clock: ManualClock, seed: int = 0) -> None:
        self.clock = clock
        self.one = FakeStore(clock, CONFIG)
        self.stores = stores
        self.spread = Spread(stores, servers=1)
        self.ids = IdSource(journal=journal_number(JOURNAL), salt=7, clock=clock)
        self.random = random.Random(seed)
        self.at = dict.fromkeys(Lane, 0)
        self.owners: list[Owner] = []
        self.pushed: list[str] = []
        self.held: list[tuple[Held, Held]] = []
        """What runs, as the one store has it and as its partition does."""

    async def begin(self) -> None:
        for store in (self.one, *self.stores):
            await store.look(fresh=True)
            await store.applied(JOURNAL)
            self.owners.append(await store.reserve_sysid("d1", True, through=True))

    def make(self, jobtype: str, **fields: Any) -> Job:
        self.clock.advance(0.001)
        return Job(self.ids.take(1, home_of(fields.get("name") or jobtype)).first, jobtype, **fields)

    async def apply(self, lane: Lane, ours: Sequence[tuple[str, Any, Any]]) -> None:
        """Apply records: id, as the one store gets it, as its partition gets it."""
        start = self.at[lane]
        end = self.at[lane] = start + 10
        await self._apply(self.one, lane, start, end, [record for _, record, _ in ours])
        for number, store in enumerate(self.stores):
            its = [record for job_id, _, record in ours if partition_of(job_id, PARTS) == number]
            await self._apply(store, lane, start, end, its)

    async def _apply(self, store: Store, lane: Lane, start: int, end: int, records: list[Any]) -> None:
        match lane:
            case Lane.JOBS:
                await store.apply_jobs(JOURNAL, start, end, records)
            case Lane.OUTCOMES:
                await store.apply_outcomes(JOURNAL, start, end, records)
            case Lane.CANCELS:
                await store.apply_cancels(JOURNAL, start, end, records)

    async def add(self, *jobs: Job) -> None:
        self.pushed += (job.id for job in jobs)
        await self.apply(Lane.JOBS, [(job.id, job, job) for job in jobs])

    # ------------------------------------------------------------ what may happen

    async def push(self) -> None:
        await self.add(*(self._any_job() for _ in range(self.random.randint(1, 6))))

    def _any_job(self) -> Job:
        tags = tuple(tag for tag in TAGS if self.random.random() < 0.4)
        later = self.clock.wall_ms() + 60_000 if self.random.random() < 0.2 else 0
        return self.make(self.random.choice(TYPES), tags=tags, eligible_at_ms=later, keep_result=True)

    async def push_named(self) -> None:
        """Several names in one call, in any order, some of them known."""
        names = self.random.sample(NAMES, self.random.randint(1, len(NAMES)))
        jobs = [self.make(self.random.choice(TYPES), name=name) for name in names]
        replace = self.random.random() < 0.5
        wanted = [NameWanted(job.name, job.id, f"digest{self.random.randint(0, 1)}", replace) for job in jobs]
        first, second = await self.one.reserve_names(wanted), await self.spread.reserve_names(wanted)
        assert [(g.verdict, g.job_id) for g in first] == [(g.verdict, g.job_id) for g in second]
        rows = []
        for job, want, one, part in zip(jobs, wanted, first, second, strict=True):
            # Some pushers die before their job is in a journal: in time their name is free again.
            if one.verdict in (Verdict.NEW, Verdict.REPLACE) and self.random.random() < 0.7:
                here = structs.replace(job, id=one.job_id)
                rows.append((one.job_id, _named(here, want, one), _named(here, want, part)))
        if self.random.random() < 0.5:
            await self.one.confirm_names([_journaled(job) for _, job, _ in rows])
            await self.spread.confirm_names([_journaled(job) for _, _, job in rows])
        await self.apply(Lane.JOBS, rows)
        self.pushed += (job_id for job_id, _, _ in rows)

    async def change(self) -> None:
        if not self.pushed:
            return
        job_id = self.random.choice(self.pushed)
        view = await self.one.get_job(job_id)
        if not isinstance(view, JobView):
            return
        numbers = await self.one.reserve_change(job_id), await self.spread.reserve_change(job_id)
        job = Job(job_id, view.jobtype, name=view.name, argument=b"\x07", eligible_at_ms=0)
        one, part = (structs.replace(job, change=Change(n, n, ChangeKind.RETRY, "")) for n in numbers)
        await self.apply(Lane.JOBS, [(job_id, one, part)])

    async def claim(self) -> None:
        """All that waits of a type: which come first differs between one store and several."""
        jobtype = self.random.choice(TYPES)
        one = await self.one.get_waiting_jobs(self.owners[0], jobtype, 1_000, **ALL)
        parts: dict[str, Held] = {}
        for owner, store in zip(self.owners[1:], self.stores, strict=True):
            parts |= {h.job.id: h for h in await store.get_waiting_jobs(owner, jobtype, 1_000, **ALL)}
        assert {held.job.id for held in one} == parts.keys()
        self.held += ((held, parts[held.job.id]) for held in one)

    async def settle(self) -> None:
        rows = []
        for one, part in self.held[:5]:
            fate = self.random.choice(list(Fate))
            fields = {"delay_ms": 5_000} if fate is Fate.RETRY else {"result": b"\x05"}
            rows.append((one.job.id, outcome(one, fate, **fields), outcome(part, fate, **fields)))
        del self.held[:5]
        await self.apply(Lane.OUTCOMES, rows)

    async def cancel(self) -> None:
        ids = self.random.sample(self.pushed, min(3, len(self.pushed)))
        await self.apply(Lane.CANCELS, [(job_id, job_id, job_id) for job_id in ids])

    async def tidy(self) -> None:
        """What the edge deletes; how much of it in one call need not be the same."""
        ids = list(dict.fromkeys(self.random.sample(self.pushed, min(4, len(self.pushed)))))
        match self.random.randint(0, 2):
            case 0:
                assert await self.spread.delete_dead(ids) == await self.one.delete_dead(ids)
            case 1:
                if ids:
                    await self.one.drop_result(ids[0])
                    await self.spread.drop_result(ids[0])
            case _:
                before_ms = self.clock.wall_ms() - self.random.choice([0, 3_000])
                assert await _clean(self.spread, before_ms) == await _clean(self.one, before_ms)

    async def wait(self) -> None:
        self.clock.advance(self.random.choice([1, 10]))
        for store in (self.one, *self.stores):
            while (await store.promote(100)).moved:
                continue

    async def step(self) -> None:
        acts = [self.push] * 3 + [self.claim, self.settle] * 2
        acts += [self.push_named, self.change, self.cancel, self.tidy, self.wait]
        await self.random.choice(acts)()

    # ------------------------------------------------------------ what both say

    async def compare(self) -> None:
        state = self.random.choice([None, None, *State])
        jobtype = self.random.choice([None, None, *TYPES])
        tag = self.random.choice([None, None, *TAGS])
        here = (await self.one.list_jobs(state, jobtype, tag, EVERYTHING, "")).jobs
        there = await self.pages(state, jobtype, tag, self.random.choice([1, 2, 7, 1_000]))
        assert sorted(map(shown, there)) == sorted(map(shown, here))
        if len(here) <= 1_000:
            whole = await self.spread.list_jobs(state, jobtype, tag, 1_000, "")
            assert [view.id for view in whole.jobs] == [view.id for view in here]
            assert whole.cursor == ""
        assert await self.spread.list_types(100) == await self.one.list_types(100)
        one, parts = await self.one.stats(), await self.spread.stats()
        assert parts._replace(types=0, used_memory=0) == one._replace(types=0, used_memory=0)
        for job_id in [*self.random.sample(self.pushed, min(3, len(self.pushed))), self.make("mail").id, "", "x"]:
            a, b = await self.one.get_job(job_id), await self.spread.get_job(job_id)
            assert type(a) is type(b), job_id
            if isinstance(a, JobView) and isinstance(b, JobView):
                assert (shown(a), a.result) == (shown(b), b.result)
        some = self.random.sample(self.pushed, min(20, len(self.pushed)))
        assert sorted(await self.spread.unfinished(some)) == sorted(await self.one.unfinished(some))
        for name in (*NAMES, "nobody"):
            assert await self.spread.resolve(name) == await self.one.resolve(name)

    async def pages(self, state: State | None, jobtype: str | None, tag: str | None, limit: int) -> list[JobView]:
        """All jobs that fit, a page at a time."""
        told: list[JobView] = []
        cursor = ""
        while True:
            page = await self.spread.list_jobs(state, jobtype, tag, limit, cursor)
            assert len(page.jobs) <= limit
            assert [view.id for view in page.jobs] == sorted((view.id for view in page.jobs), reverse=True)
            told += page.jobs
            cursor = page.cursor
            if not cursor:
                return told


async def _clean(store: EdgeStore, before_ms: int) -> int:
    """All that ended before that, two at a time."""
    gone = 0
    while found := await store.clean_ended(before_ms, 2):
        assert found <= 2
        gone += found
    return gone


def shown(view: JobView) -> tuple[Any, ...]:
    """What does not depend on fences."""
    return view.id, view.state.value, view.jobtype, view.name, view.tags, view.attempts, view.cancel_asked


def _named(job: Job, want: NameWanted, given: NameGiven) -> Job:
    kind = ChangeKind.REPLACE if given.verdict is Verdict.REPLACE else ChangeKind.NEW
    return structs.replace(job, change=Change(given.revision, given.revision, kind, want.digest))


def _journaled(job: Job) -> NameJournaled:
    assert job.change is not None
    return NameJournaled(job.name, job.id, job.change.digest, job.change.revision)


# ---------------------------------------------------------------- as one


@pytest.fixture
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[tuple[list[Store], ManualClock]]:
    """Partitions of the kind that the test names."""
    clock = ManualClock()
    if request.param == "fake":
        yield [FakeStore(clock, CONFIG) for _ in range(PARTS)], clock
        return
    server: Valkey = request.getfixturevalue("fresh_valkey")
    config = dataclasses.replace(CONFIG, url=server.url, partitions=PARTS)
    async with AsyncExitStack() as stack:
        parts = [open_store(part, now_ms=clock.wall_ms) for part in config.parts()]
        yield [await stack.enter_async_context(part) for part in parts], clock


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each seed. The option is known only when this directory was named on the command line."""
    if metafunc.function is test_partitions_answer_as_one_store_would:
        count = metafunc.config.getoption("--spread-walks", None) or WALKS
        walks = [("fake", seed) for seed in range(count)] + [("real", seed) for seed in range(0, count, REAL_PART)]
        metafunc.parametrize(("stores", "seed"), walks, indirect=["stores"], ids=[f"{k}-{s}" for k, s in walks])


async def test_partitions_answer_as_one_store_would(stores: tuple[list[Store], ManualClock], seed: int) -> None:
    cluster = Cluster(*stores, seed)
    await cluster.begin()
    for step in range(STEPS):
        await cluster.step()
        if step % 6 == 5:
            await cluster.compare()
    assert {partition_of(job_id, PARTS) for job_id in cluster.pushed} == set(range(PARTS))


# ---------------------------------------------------------------- one of them is away


@pytest.fixture
async def fakes() -> Cluster:
    """Three partitions that a test can take away."""
    clock = ManualClock()
    cluster = Cluster([FakeStore(clock, CONFIG) for _ in range(PARTS)], clock)
    await cluster.begin()
    return cluster


def fake(cluster: Cluster, number: int) -> FakeStore:
    """A partition of it."""
    store = cluster.stores[number]
    assert isinstance(store, FakeStore)
    return store


def name_in(partition: int) -> str:
    """A jobtype, or a pusher's own id, that lives there."""
    return next(name for i in range(1000) if partition_of_name(name := f"n{i}", PARTS) == partition)


async def test_what_is_of_a_reachable_partition_goes_on(fakes: Cluster) -> None:
    here, there = fakes.make(name_in(0)), fakes.make(name_in(1))
    await fakes.add(here, there)
    fake(fakes, 1).away = "cable pulled"
    spread = fakes.spread
    view = await spread.get_job(here.id)
    assert isinstance(view, JobView)
    assert await spread.unfinished([here.id]) == [here.id]
    assert await spread.reserve_change(here.id) > 0
    assert await spread.resolve(name_in(2)) is None
    (given,) = await spread.reserve_names([wanted(fakes, name_in(0))])
    assert given.verdict is Verdict.NEW
    assert await spread.wait_durable(where=[0, 2])
    assert await spread.delete_dead([here.id]) == []
    await spread.drop_result(here.id)


def wanted(cluster: Cluster, name: str) -> NameWanted:
    """A name, for a job that lives with it."""
    return NameWanted(name, cluster.make("mail", name=name).id, "d", False)


ASK: dict[str, Callable[[Cluster, str], Awaitable[object]]] = {
    "get_job": lambda cluster, job_id: cluster.spread.get_job(job_id),
    "unfinished": lambda cluster, job_id: cluster.spread.unfinished([cluster.pushed[0], job_id]),
    "delete_dead": lambda cluster, job_id: cluster.spread.delete_dead([cluster.pushed[0], job_id]),
    "drop_result": lambda cluster, job_id: cluster.spread.drop_result(job_id),
    "reserve_change": lambda cluster, job_id: cluster.spread.reserve_change(job_id),
    "reserve_edit": lambda cluster, job_id: cluster.spread.reserve_edit(job_id, 0),
    "resolve": lambda cluster, job_id: cluster.spread.resolve(name_in(1)),
    "reserve_names": lambda cluster, job_id: cluster.spread.reserve_names(
        [wanted(cluster, name_in(0)), wanted(cluster, name_in(1))]
    ),
    "confirm_names": lambda cluster, job_id: cluster.spread.confirm_names(
        [NameJournaled(name_in(1), job_id, "d", 1), NameJournaled(name_in(0), cluster.pushed[0], "d", 1)]
    ),
    "touch": lambda cluster, job_id: cluster.spread.touch([(cluster.pushed[0], 1), (job_id, 1)]),
    "release_entrusted": lambda cluster, job_id: cluster.spread.release_entrusted(
        [(cluster.pushed[0], 1), (job_id, 1)]
    ),
    "list_jobs": lambda cluster, job_id: cluster.spread.list_jobs(None, None, None, 10, ""),
    "list_types": lambda cluster, job_id: cluster.spread.list_types(10),
    "clean_ended": lambda cluster, job_id: cluster.spread.clean_ended(0, 10),
    "wait_durable": lambda cluster, job_id: cluster.spread.wait_durable(),
}


def test_every_method_is_asked() -> None:
    methods = {name for name in vars(EdgeStore) if not name.startswith("_")}
    assert set(ASK) == methods - {"durability_rule", "stats"}, "these two answer whatever is away"
    assert methods <= set(dir(Spread))


@pytest.mark.parametrize("name", ASK)
async def test_what_concerns_one_that_is_away_says_so_and_which(fakes: Cluster, name: str) -> None:
    here, there = fakes.make(name_in(0)), fakes.make(name_in(1))
    await fakes.add(here, there)
    fake(fakes, 1).away = "cable pulled"
    with pytest.raises(StoreAway, match=r"^partition 1 of 3: .*cable pulled"):
        await ASK[name](fakes, there.id)
    if name == "confirm_names":  # whoever is there was told all the same
        assert await fakes.spread.resolve(name_in(0)) == here.id
    fake(fakes, 1).away = None
    await ASK[name](fakes, there.id)


async def test_numbers_tell_what_they_lack(fakes: Cluster) -> None:
    await fakes.add(*(fakes.make(name_in(number)) for number in (0, 1, 1, 2)))
    assert (await fakes.spread.stats())[:1] == (4,)
    assert (await fakes.spread.stats()).unreachable == ()
    fake(fakes, 1).away = "cable pulled"
    stats = await fakes.spread.stats()
    assert (stats.waiting, stats.unreachable) == (2, (1,))
    for store in fakes.stores:
        assert isinstance(store, FakeStore)
        store.away = "cable pulled"
    with pytest.raises(StoreAway, match=r"^partition 0 of 3"):
        await fakes.spread.stats()


async def test_memory_counts_once_for_each_server(fakes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, store in enumerate(fakes.stores):
        monkeypatch.setattr(store, "stats", partial(_memory, 100 + number))
    assert (await Spread(fakes.stores, servers=1).stats()).used_memory == 102
    assert (await Spread(fakes.stores, servers=2).stats()).used_memory == 102 + 101
    assert (await Spread(fakes.stores, servers=3).stats()).used_memory == 100 + 101 + 102


async def _memory(used: int) -> StoreStats:
    return StoreStats(0, 0, 0, 0, 0, 0, used)


async def test_an_error_is_told_as_what_it_is(fakes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several the first, and never a group: callers know errors."""
    errors = (StoreRefused("odd"), StoreChanged("another"), ZeroDivisionError("a bug"))
    for number, error in enumerate(errors):
        monkeypatch.setattr(fakes.stores[number], "list_types", _raises(error, turns=3 - number))
    with pytest.raises(StoreRefused, match=r"^partition 0 of 3: odd$") as refused:
        await fakes.spread.list_types(10)
    assert refused.value.__cause__ is errors[0]
    monkeypatch.setattr(fakes.stores[0], "list_types", fakes.one.list_types)
    with pytest.raises(StoreChanged, match=r"^partition 1 of 3: another$"):
        await fakes.spread.list_types(10)
    monkeypatch.setattr(fakes.stores[1], "list_types", fakes.one.list_types)
    with pytest.raises(ZeroDivisionError):
        await fakes.spread.list_types(10)


def _raises(error: Exception, *, turns: int) -> Callable[..., Awaitable[Any]]:
    """What fails so late that others have failed before."""

    async def fail(*_: object) -> Any:
        for _turn in range(turns):
            await trio.lowlevel.checkpoint()
        raise error

    return fail


async def test_what_was_cleaned_is_told_before_what_could_not_be(fakes: Cluster) -> None:
    """Whoever asks until nothing is left meets the error then, and knows the number."""
    jobs = [fakes.make(name_in(number)) for number in (0, 1, 2)]
    await fakes.add(*jobs)
    await fakes.apply(Lane.CANCELS, [(job.id, job.id, job.id) for job in jobs])
    fakes.clock.advance(1)
    fake(fakes, 0).away = "cable pulled"
    assert await fakes.spread.clean_ended(fakes.clock.wall_ms(), 10) == 2
    with pytest.raises(StoreAway, match="partition 0"):
        await fakes.spread.clean_ended(fakes.clock.wall_ms(), 10)
    fake(fakes, 0).away = None
    assert await fakes.spread.clean_ended(fakes.clock.wall_ms(), 10) == 1


async def test_durable_is_what_all_say_or_those_that_matter(fakes: Cluster) -> None:
    assert await fakes.spread.wait_durable()
    fake(fakes, 2).durable = False
    assert not await fakes.spread.wait_durable()
    assert not await fakes.spread.wait_durable(where=frozenset({0, 2}))
    assert await fakes.spread.wait_durable(where=frozenset({0, 1}))


async def test_rules_are_told_of_each_where_they_differ(fakes: Cluster) -> None:
    rule = fakes.one.durability_rule
    assert fakes.spread.durability_rule == rule

    class Other(FakeStore):
        @property
        def durability_rule(self) -> str:
            return "at once"

    mixed = Spread([fakes.one, Other(fakes.clock), fakes.one], servers=3)
    assert mixed.durability_rule == f"partition 0, 2: {rule}; partition 1: at once"


# ---------------------------------------------------------------- lists


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
        self, state: State | None, jobtype: str | None, tag: str | None, limit: int, cursor: str
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
    clock = ManualClock()
    cluster = Cluster([Ranked(clock, CONFIG) for _ in range(PARTS)], clock)
    await cluster.begin()
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
        self, state: State | None, jobtype: str | None, tag: str | None, limit: int, cursor: str
    ) -> Page:
        self.looks += 1
        at = int(cursor or 0)
        page = await super().list_jobs(state, jobtype, tag, EVERYTHING, "")
        found = page.jobs[at // 2 : at // 2 + 1] if at % 2 else []
        return Page(found, str(at + 1) if at // 2 < len(page.jobs) else "")


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
        self, state: State | None, jobtype: str | None, tag: str | None, limit: int, cursor: str
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


async def test_the_list_of_types_keeps_its_limit(fakes: Cluster) -> None:
    await fakes.add(*(fakes.make(f"t{number}") for number in range(9)))
    assert [row.jobtype for row in await fakes.spread.list_types(4)] == ["t0", "t1", "t2", "t3"]
