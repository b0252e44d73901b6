"""Several partitions beside one store that has all: what tests of both ask."""

import random
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from jqd.domain.job import Change, ChangeKind, Fate, Held, Job, State
from jqd.domain.jobid import IdSource, home_of, journal_number, partition_of, partition_of_name
from jqd.domain.record import Lane
from jqd.store import (
    EdgeStore,
    JobView,
    NameGiven,
    NameJournaled,
    NameState,
    NameWanted,
    Owner,
    PartitionedStore,
    Store,
    StoreConfig,
    TypeView,
)
from jqd.store.counts import Counts
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import ALL, JOURNAL, outcome

PARTS = 3
TYPES = ("mail", "scan", "bill", "sum")
TAGS = ("red", "blue")
NAMES = ("ann", "bob", "cid", "dan", "eve")
EVERYTHING = 10_000

CONFIG = StoreConfig(history_max=3)


class Cluster:
    """One store that has all, and partitions that have the same among them."""

    def __init__(self, stores: Sequence[Store], clock: ManualClock, seed: int = 0) -> None:
        self.clock = clock
        self.one = FakeStore(clock, CONFIG)
        self.stores = stores
        self.spread = PartitionedStore(stores, servers=1)
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
            case Lane.CHANGES:
                await store.apply_changes(JOURNAL, start, end, records)
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
        assert [(g.state, g.job_id) for g in first] == [(g.state, g.job_id) for g in second]
        rows = []
        for job, want, one, part in zip(jobs, wanted, first, second, strict=True):
            # Some pushers die before their job is in a journal: in time their name is free again.
            if one.state in (NameState.NEW, NameState.REPLACE) and self.random.random() < 0.7:
                here = structs.replace(job, id=one.job_id)
                rows.append((one.job_id, _named(here, want, one), _named(here, want, part)))
        if self.random.random() < 0.5:
            await self.one.confirm_names([_journaled(job) for _, job, _ in rows])
            await self.spread.confirm_names([_journaled(job) for _, _, job in rows])
        await self.apply(Lane.CHANGES, rows)
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
        await self.apply(Lane.CHANGES, [(job_id, one, part)])

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
        assert numbers(await self.spread.list_types()) == numbers(await self.one.list_types())
        one, parts = await self.one.stats(), await self.spread.stats()
        neither: Any = {"types": 0, "used_memory": 0}
        assert parts._replace(**neither) == one._replace(**neither)
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
    while (cleaned := await store.clean_ended(before_ms, 2)).examined:
        assert cleaned.examined <= 2
        gone, before_ms = gone + cleaned.gone, cleaned.before_ms
    return gone


def numbers(told: list[TypeView]) -> list[tuple[str, Counts, bool]]:
    """Of each jobtype; its totals begin anew in each partition. Each partition has a job that is next: since when the
    oldest of them could begin says nothing of which one is next of all."""
    return [(view.jobtype, view.counts, view.oldest_ms > 0) for view in told]


def shown(view: JobView) -> tuple[Any, ...]:
    """What does not depend on fences."""
    return view.id, view.state.value, view.jobtype, view.name, view.tags, view.attempts, view.cancel_asked


def _named(job: Job, want: NameWanted, given: NameGiven) -> Job:
    kind = ChangeKind.REPLACE if given.state is NameState.REPLACE else ChangeKind.NEW
    return structs.replace(job, change=Change(given.revision, given.revision, kind, want.digest))


def _journaled(job: Job) -> NameJournaled:
    assert job.change is not None
    return NameJournaled(job.name, job.id, job.change.digest, job.change.revision)


def fake(cluster: Cluster, number: int) -> FakeStore:
    """A partition of it."""
    store = cluster.stores[number]
    assert isinstance(store, FakeStore)
    return store


def name_in(partition: int) -> str:
    """A jobtype, or a pusher's own id, that lives there."""
    return next(name for i in range(1000) if partition_of_name(name := f"n{i}", PARTS) == partition)


async def parted(kind: type[FakeStore] = FakeStore) -> Cluster:
    """Three partitions that a test can take away."""
    clock = ManualClock()
    cluster = Cluster([kind(clock, CONFIG) for _ in range(PARTS)], clock)
    await cluster.begin()
    return cluster
