"""A store, its clock, and a journal that only knows how to count."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from jqd.domain.job import Change, ChangeKind, Fate, Held, Job, Outcome, State
from jqd.domain.jobid import IdSource, journal_number
from jqd.domain.record import Lane
from jqd.domain.settings import Setting
from jqd.store import Claimed, JobView, Member, Owner, Store
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.store.counting import Recount

ORDERS_PART = 7  # one order in so many is tried on a server; the fake runs the same scripts, and is given all
JOURNAL = "0123456789abcdef0123456789abcdef"
OTHER_JOURNAL = "f" * 32
ENDS = [fate for fate in Fate if fate is not Fate.ENTRUSTED]
ALL: dict[str, Any] = {"priority_min": -(2**31), "priority_max": 2**31 - 1, "bytes_max": 1 << 20}


def orders(bench: "StoreBench", records: Sequence[tuple[str, Any]]) -> Iterator[tuple[tuple[str, Any], ...]]:
    """In which order records may come."""
    step = 1 if isinstance(bench.store, FakeStore) else ORDERS_PART
    return itertools.islice(itertools.permutations(records), 0, None, step)


def outcome(held: Held, fate: Fate, **fields: Any) -> Outcome:
    """How this attempt ended."""
    common: dict[str, Any] = {
        "job_id": held.job.id,
        "fence": held.fence,
        "fate": fate,
        "jobtype": held.job.jobtype,
        "priority": held.job.priority,
        "attempt": held.attempt,
        "keep_result": held.job.keep_result,
        "generation": held.generation,
    }
    return Outcome(**common | fields)


def changed(job: Job, revision: int, kind: ChangeKind, generation: int = 0, digest: str = "", **fields: Any) -> Job:
    """That job with other content."""
    base = {name: getattr(job, name) for name in job.__struct_fields__} | fields
    anew = generation if kind is ChangeKind.EDIT else revision
    return Job(**base | {"change": Change(revision, anew, kind, digest)})


def setting(name: str, revision: int, body: object = 0) -> Setting:
    """A registration of the worker of that name; None: it left."""
    return Setting("worker", name, revision, 1_800_000_000_000, Raw(msgspec.msgpack.encode(body)))


class StoreBench:
    """Short words for what every test does."""

    def __init__(
        self,
        store: Store,
        clock: ManualClock,
        *,
        other: Store | None = None,
        wipe: Callable[[], object] = lambda: pytest.fail("this bench cannot wipe its store"),
        recount: Recount | None = None,
        keys: Callable[[], Iterable[bytes]] = lambda: pytest.fail("this bench does not know its keys"),
    ) -> None:
        """`other`: what a second daemon would open. `wipe`: FLUSHALL. `recount`: it looks after each call. `keys`: all
        that there are."""
        self.keys = keys
        self.recount = recount
        self.store = store
        self.other = other or store
        self.wipe = wipe
        self.clock = clock
        self.ids = IdSource(journal=journal_number(JOURNAL), salt=7, clock=clock)
        self.at = dict.fromkeys(Lane, 0)

    def make(self, jobtype: str = "mail", **fields: Any) -> Job:
        """A job with an id of our journal."""
        return Job(self.ids.take(1).first, jobtype, **fields)

    async def add(self, *jobs: Job) -> None:
        """Apply jobs at the present position, and changes at that of their lane."""
        changes = [job for job in jobs if job.change is not None]
        if len(changes) < len(jobs) or not jobs:
            pushed = [job for job in jobs if job.change is None]
            await self.store.apply_jobs(JOURNAL, *self._range(Lane.JOBS, 100), pushed)
        if changes:
            await self.store.apply_changes(JOURNAL, *self._range(Lane.CHANGES, 100), changes)

    @property
    def written(self) -> tuple[str, int]:
        """Where the jobs that were added last were written: as `confirm_names` has it."""
        return JOURNAL, self.at[Lane.JOBS]

    async def push(self, jobtype: str = "mail", **fields: Any) -> Job:
        """Make one job and add it."""
        job = self.make(jobtype, **fields)
        await self.add(job)
        return job

    async def settle(self, *outcomes: Outcome, old: bool = False) -> list[str]:
        """Apply outcomes at the present position. Returns the ids of those that came too late."""
        late = await self.store.apply_outcomes(JOURNAL, *self._range(Lane.OUTCOMES, 100), outcomes, old=old)
        assert late is not None, "they were not applied before"
        return [outcomes[place].job_id for place in late]

    async def cancel(self, *job_ids: str) -> list[str] | None:
        """Apply cancels at the present position."""
        return await self.store.apply_cancels(JOURNAL, *self._range(Lane.CANCELS, 100), job_ids)

    async def join(self, sysid: str = "one", period_ms: int = 0) -> Owner:
        """Take a seat."""
        return await self.store.reserve_sysid(sysid, previous_epoch_dead=True, through=True, period_ms=period_ms)

    async def members(self, owner: Owner) -> dict[str, Member]:
        """Renew, and see everybody."""
        return (await self.store.renew_sysid(owner, through=True)).members

    async def claim(self, owner: Owner, jobtype: str = "mail", limit: int = 100, **limits: Any) -> Claimed:
        """Lease jobs of any priority."""
        return await self.store.get_waiting_jobs(owner, jobtype, limit, **{**ALL, **limits})

    async def claim_one(self, owner: Owner, jobtype: str = "mail") -> Held:
        """Lease the next job, which must be there."""
        (held,) = await self.claim(owner, jobtype, 1)
        return held

    async def view(self, job: Job | str) -> JobView:
        """The job, which the store must know."""
        view = await self.store.get_job(job if isinstance(job, str) else job.id)
        assert isinstance(view, JobView), view
        return view

    async def state(self, job: Job) -> State:
        """Where it stands."""
        return (await self.view(job)).state

    def _range(self, lane: Lane, step: int) -> tuple[int, int]:
        start = self.at[lane]
        self.at[lane] = start + step
        return start, start + step


def holds(held: Sequence[Held]) -> dict[str, int]:
    """Id → fence."""
    return {one.job.id: one.fence for one in held}


def ids(held: Sequence[Held]) -> list[str]:
    """Their ids, in order."""
    return [one.job.id for one in held]


async def early(store_bench: StoreBench, fence: int = 5) -> tuple[Owner, Job]:
    """A job in our hand that the store has not seen yet."""
    owner, job = await store_bench.join("one"), store_bench.make(keep_result=True)
    assert await store_bench.store.reassert(owner, {job.id: fence}) == []
    assert await store_bench.store.get_held(owner) == {job.id: fence}
    return owner, job


def outcome_of(job: Job, fate: Fate) -> Outcome:
    """An outcome under a claim this store has forgotten."""
    return outcome(Held(job, 12345, 1), fate, result=b"\x05", delay_ms=500)
