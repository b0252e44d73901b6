"""What a claim and a completion cost the store with few jobs waiting, many, and many jobtypes.

Three stores lie side by side in one Valkey, and take turns: the figures are ratios of one run. What was taken is put
back before the next turn, so that as many wait as before.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from bench.result import Result
from jqd.domain.clock import SystemClock
from jqd.domain.job import PRIORITY_MAX, PRIORITY_MIN, Fate, Held, Job, Outcome, Wanted
from jqd.domain.jobid import IdSource, journal_number
from jqd.domain.record import Lane
from jqd.store import Owner, RedisStore, StoreConfig, open_embedded, open_store

FEW = 1_000
JOBS_PER_TYPE = 100
TYPES_LOOKED_AT = 64  # as dispatch does
BATCH = 100
CHUNK = 500
ROUNDS = 60
# Of all sizes: the server rounds what it allocates, and one size would tell of its luck.
ARGUMENTS = [b"\xc4" + bytes([size]) + b"x" * size for size in range(20, 180)]
JOURNAL = "0123456789abcdef0123456789abcdef"


class Place:
    """A store with a number of jobs waiting."""

    def __init__(self, store: RedisStore, owner: Owner, types: int) -> None:
        self.claims_s: list[float] = []
        self.ends_s: list[float] = []
        self.looks_s: list[float] = []
        self.wrong = 0
        self._store, self._owner = store, owner
        self._ids = IdSource(journal=journal_number(JOURNAL), salt=7, clock=SystemClock())
        self._types: Iterator[str] = itertools.cycle([f"type-{k}" for k in range(types)])
        self._arguments = itertools.cycle(ARGUMENTS)
        self._at = dict.fromkeys(Lane, 0)

    async def add(self, jobs: int) -> None:
        """So many more wait, spread over the types."""
        while jobs > 0:
            count = min(jobs, CHUNK)
            ids = self._ids.take(count).ids()
            now_ms = SystemClock().wall_ms()  # as a pushed job has it: a date next to the one in its id
            made = [self.make(job_id, now_ms) for job_id in ids]
            await self._store.apply_jobs(JOURNAL, *self._range(Lane.JOBS), made)
            jobs -= count

    version = ""
    """By which constraints it claims: there are none."""

    def make(self, job_id: str, now_ms: int) -> Job:
        """One job of the next jobtype."""
        return Job(job_id, next(self._types), argument=next(self._arguments), created_at_ms=now_ms)

    def accept(self, held: list[Held]) -> list[Held]:
        """Those of a claim that may start."""
        return held

    async def turn(self) -> None:
        """Look what waits, claim a batch of it, end it, and put as many back."""
        began_s = time.perf_counter()
        waiting = await self._store.get_waiting_jobtypes([Wanted()], TYPES_LOOKED_AT)
        looked_s = time.perf_counter()
        claimed = await self._store.get_waiting_jobs(
            self._owner,
            waiting[0].jobtype,
            BATCH,
            priority_min=PRIORITY_MIN,
            priority_max=PRIORITY_MAX,
            bytes_max=1 << 20,
            version=self.version,
        )
        held = self.accept(claimed)
        claimed_s = time.perf_counter()
        late = await self._store.apply_outcomes(JOURNAL, *self._range(Lane.OUTCOMES), [_success(each) for each in held])
        ended_s = time.perf_counter()
        self.wrong += len(late or ()) + (BATCH - len(held))
        self.looks_s.append(looked_s - began_s)
        self.claims_s.append((claimed_s - looked_s) / BATCH)
        self.ends_s.append((ended_s - claimed_s) / BATCH)
        await self.add(BATCH)

    def _range(self, lane: Lane) -> tuple[int, int]:
        start = self._at[lane]
        self._at[lane] += 1
        return start, self._at[lane]


def run(jobs: int) -> Result:
    """Costs with `jobs` waiting over those with a thousand. What they cost in memory: bench/memory.py."""
    return trio.run(_run, jobs)


async def _run(jobs: int) -> Result:
    sizes = {"few": (FEW, 1), "many": (jobs, 1), "types": (jobs, max(1, jobs // JOBS_PER_TYPE))}
    places: dict[str, Place] = {}
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix=".jqd-bench-", dir=Path.cwd()))
        url = await stack.enter_async_context(open_embedded(Path(directory)))
        for name, (waiting, types) in sizes.items():
            store = await stack.enter_async_context(open_store(StoreConfig(url, name)))
            places[name] = await _filled(store, waiting, types)
        for _ in range(ROUNDS):
            for place in places.values():
                await place.turn()
    return _result(places, jobs)


async def _filled(store: RedisStore, jobs: int, types: int) -> Place:
    await store.look(fresh=True)
    owner = await store.reserve_sysid("bench", True, through=True)
    place = Place(store, owner, types)
    await place.add(jobs)
    return place


def _result(places: dict[str, Place], jobs: int) -> Result:
    few = places["few"]
    figures = {
        "claim_us": statistics.median(few.claims_s) * 1e6,
        "end_us": statistics.median(few.ends_s) * 1e6,
        "look_us": statistics.median(few.looks_s) * 1e6,
    }
    for name in ("many", "types"):
        place = places[name]
        figures[f"claim_{name}_ratio"] = statistics.median(place.claims_s) / statistics.median(few.claims_s)
        figures[f"end_{name}_ratio"] = statistics.median(place.ends_s) / statistics.median(few.ends_s)
    figures |= {
        "look_types_ratio": statistics.median(places["types"].looks_s) / statistics.median(few.looks_s),
        "jobs": float(jobs),
    }
    return Result("scale", figures, ok=not any(place.wrong for place in places.values()))


def _success(held: Held) -> Outcome:
    return Outcome(held.job.id, held.fence, Fate.SUCCEEDED, held.job.jobtype, held.job.priority, held.attempt)
