"""What it costs to choose what runs next: of 1,000 jobtypes, under constraints, and from a queue for each of many keys.

And what jobs that may not start yet cost the others: 100,000 of one limit, or 50,000 keys with two jobs each.

The stores lie side by side in one Valkey, and take turns: the ratios are of one run. Nothing is limited, so that the
same is claimed everywhere. Constraints match as a daemon has them match, when it applies jobs to the store.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec
import redis
import trio
from msgspec.structs import replace

from bench.memory import used_bytes
from bench.result import Result
from bench.scale import BATCH, CHUNK, JOURNAL, TYPES_LOOKED_AT, Place
from jqd.domain.clock import SystemClock
from jqd.domain.job import Held, Job, Wanted
from jqd.domain.record import Lane
from jqd.domain.settings import CONSTRAINT, SettingTable
from jqd.rate_limits.constraints import Constraint, Constraints, Rate, body_of, with_digest
from jqd.scheduler import Scheduler
from jqd.store import Owner, RedisStore, StoreConfig, WaitingType, open_embedded, open_store

ROUNDS = 60
RULES = 20
JOBS_PER_KEY = 2
TYPES = 1_000
JOBS_PER_TYPE = 2
PRIORITIES = 10
CHOICES = 20  # timed at once: one takes some microseconds
PROMOTE_JOBS = 500  # as dispatch does
JOBTYPE = "send-email"
PAD = [
    "x" * size for size in range(20, 180)
]  # the server rounds what it allocates, and one size would tell of its luck

PLAIN: dict[str, Constraint] = {}
# Half of them limit a rate, half how many run at once: far more than are claimed here.
MANY = {
    f"rule-{kind}": Constraint(
        match=f"job.argument.kind == {kind}",
        rate=Rate(1_000_000, 1.0) if kind % 2 else None,
        concurrency=None if kind % 2 else 10_000,
    )
    for kind in range(RULES)
}
LIMITED = "export"
HOURLY = Rate(1, 3_600.0)
BESIDE = {
    "alone": Constraint(match=f"job.name == '{LIMITED}'", rate=HOURLY),
    "limited": Constraint(match=f"job.name == '{LIMITED}'", rate=HOURLY),
    "keys": Constraint(match=f"job.name == '{LIMITED}'", key="job.argument.customer", rate=HOURLY),
}
KEYED = {"customer": Constraint(match="true", key="job.argument.customer", rate=Rate(10, 1.0))}


class Waiting(NamedTuple):
    """A row of the scheduler, as dispatch makes it of the store's."""

    jobtype: str
    priority: int
    head_id: str
    waiting: int
    rank: int


class Ruled(Place):
    """A store with jobs of one jobtype and the constraints that hold there, none at all of the plain one."""

    def __init__(self, store: RedisStore, owner: Owner, wishes: Mapping[str, Constraint], keys: int) -> None:
        super().__init__(store, owner, 1)
        self.matches_s: list[float] = []
        self.turns_s: list[float] = []
        self.argument_bytes = 0
        self.jobtype, self.priority = JOBTYPE, 0
        rules = SettingTable()
        bodies = {(CONSTRAINT, name): body_of(with_digest(name, wish)) for name, wish in wishes.items()}
        self.rules = rules.take(rules.make(bodies, now_ms=SystemClock().wall_ms(), origin=0))
        self._constraints = Constraints(rules)
        self.version = self._constraints.version
        self._keys = keys
        self._numbers = itertools.count()

    async def turn(self) -> None:
        """Also what a daemon does every now and then: limits whose time has come are looked at."""
        began_s = time.perf_counter()
        await super().turn()
        await self._store.promote(PROMOTE_JOBS)
        self.turns_s.append(time.perf_counter() - began_s)

    async def say(self) -> None:
        """The store knows the constraints."""
        await self._store.apply_settings(JOURNAL, *self._range(Lane.RULES), self.rules)

    def forget_figures(self) -> None:
        """What was measured before does not count."""
        for figures in (self.looks_s, self.claims_s, self.ends_s, self.turns_s):
            figures.clear()

    def make(self, job_id: str, now_ms: int) -> Job:
        """One job, in the queue where its constraints have it wait. Jobs of equal keys stand far from each other."""
        number = next(self._numbers)
        fields = {"customer": number % self._keys, "kind": number % RULES, "text": PAD[number % len(PAD)]}
        argument = msgspec.msgpack.encode(fields)
        job = Job(job_id, self.jobtype, argument=argument, priority=self.priority, created_at_ms=now_ms)
        self.argument_bytes += len(job.argument)
        began_s = time.perf_counter()
        queue = self._constraints.queue_of(job)
        self.matches_s.append(time.perf_counter() - began_s)
        return replace(job, queue=queue)

    async def fill(self, jobs: int) -> None:
        """So many jobs before all others, that a constraint limits. What it lets through is claimed for good."""
        self.jobtype, self.priority = LIMITED, -1
        await self.add(jobs)
        self.jobtype, self.priority = JOBTYPE, 0
        while (await self._store.get_waiting_jobtypes([Wanted()], 1))[0].jobtype == LIMITED:
            await self._store.get_waiting_jobs(
                self._owner,
                LIMITED,
                CHUNK,
                priority_min=-1,
                priority_max=-1,
                bytes_max=1 << 20,
                version=self.version,
            )

    def accept(self, held: list[Held]) -> list[Held]:
        """All, where they may start by the constraints that this daemon knows, or none: looked at as a daemon does."""
        return list(held) if all(map(self._constraints.is_current, {one.job.queue for one in held})) else []


class Typed(Place):
    """A store with 1,000 jobtypes of several priorities."""

    def make(self, job_id: str, now_ms: int) -> Job:
        """One job of the next jobtype."""
        job = super().make(job_id, now_ms)
        return replace(job, priority=hash_of(job.jobtype) % PRIORITIES)


def hash_of(jobtype: str) -> int:
    """Alike in each run."""
    return int(jobtype.rpartition("-")[2]) * 7


def run(jobs: int) -> Result:
    """`jobs` wait in each store, those with keys in half as many queues. The long form of issue and aims: 100,000."""
    return trio.run(_run, jobs)


async def _run(jobs: int) -> Result:
    figures: dict[str, float] = {}
    keys = max(1, jobs // JOBS_PER_KEY)
    places: dict[str, Ruled] = {}
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix=".jqd-bench-", dir=Path.cwd()))
        url = await stack.enter_async_context(open_embedded(Path(directory)))
        client = stack.enter_context(redis.Redis.from_url(url))
        for name, wishes in (("plain", PLAIN), ("rules", MANY), ("keyed", KEYED)):
            store = await stack.enter_async_context(open_store(StoreConfig(url, name)))
            place = places[name] = Ruled(store, await _joined(store), wishes, keys)
            await place.say()
            await store.apply_jobs(JOURNAL, 0, 0, [])  # the server compiles a script when it is first called
            before = await trio.to_thread.run_sync(used_bytes, client)
            await place.add(jobs)
            after = await trio.to_thread.run_sync(used_bytes, client)
            figures[f"{name}_bytes_a_job"] = (after - before - place.argument_bytes) / jobs
        figures |= await _plain_alone(places["plain"])
        for _ in range(ROUNDS):
            for place in places.values():
                await place.turn()
        figures |= await _beside(stack, url, jobs)
        store = await stack.enter_async_context(open_store(StoreConfig(url, "types")))
        typed = Typed(store, await _joined(store), TYPES)
        await typed.add(TYPES * JOBS_PER_TYPE)
        figures |= await _choices(store)
    figures |= _compared(places) | {"jobs": float(jobs), "keys": float(keys)}
    return Result("schedule", figures, ok=not any(place.wrong for place in places.values()))


async def _joined(store: RedisStore) -> Owner:
    await store.look(fresh=True)
    return await store.reserve_sysid("bench", True, through=True)


async def _plain_alone(plain: Ruled) -> dict[str, float]:
    """What commits are compared by: nothing else takes turns."""
    for _ in range(ROUNDS):
        await plain.turn()
    figures = {
        "plain_claims_per_s": 1 / statistics.median(plain.claims_s),
        "plain_ends_per_s": 1 / statistics.median(plain.ends_s),
        "plain_turns_per_s": BATCH / statistics.median(plain.turns_s),
    }
    plain.forget_figures()
    return figures


async def _beside(stack: AsyncExitStack, url: str, jobs: int) -> dict[str, float]:
    """Jobs that nothing limits, behind limited ones: rates over those of a store where no limited one waits."""
    places: dict[str, Ruled] = {}
    for name, wish in BESIDE.items():
        store = await stack.enter_async_context(open_store(StoreConfig(url, f"beside-{name}")))
        place = places[name] = Ruled(store, await _joined(store), {name: wish}, max(1, jobs // JOBS_PER_KEY))
        await place.say()
        await place.add(10 * BATCH)
        if name != "alone":
            await place.fill(jobs)
    for _ in range(ROUNDS):
        for place in places.values():
            await place.turn()
    alone = statistics.median(places["alone"].turns_s)
    return {
        f"beside_{name}_turns_ratio": alone / statistics.median(places[name].turns_s) for name in ("limited", "keys")
    }


async def _choices(store: RedisStore) -> dict[str, float]:
    """A look at the best 64 of the jobtypes, and the choice among these; and the choice among all of them."""
    looks_s, few_s, all_s = list[float](), list[tuple[float, float]](), list[tuple[float, float]]()
    scheduler = Scheduler()
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        found = await store.get_waiting_jobtypes([Wanted()], TYPES_LOOKED_AT)
        looks_s.append(time.perf_counter() - began_s)
        few_s.append(_choose_s(scheduler, found))
    # More than one partition brings: 16 of them tell of 1,024 rows.
    every = await store.get_waiting_jobtypes([Wanted(f"type-{kind}") for kind in range(TYPES)], TYPES)
    assert len(every) == TYPES
    for _ in range(ROUNDS):
        all_s.append(_choose_s(scheduler, every))
    return {
        "look_us": statistics.median(looks_s) * 1e6,
        "rank_64_us": statistics.median(ranked_s for ranked_s, _ in few_s) * 1e6,
        "choose_of_64_us": statistics.median(chosen_s for _, chosen_s in few_s) * 1e6,
        "rank_1000_us": statistics.median(ranked_s for ranked_s, _ in all_s) * 1e6,
        "choose_of_1000_us": statistics.median(chosen_s for _, chosen_s in all_s) * 1e6,
    }


def _choose_s(scheduler: Scheduler, found: list[WaitingType]) -> tuple[float, float]:
    """To put rows in order, once a look; and at each choice, until the first and how far it may be claimed is known."""
    rows = [Waiting(row.jobtype, row.priority, row.head_id, row.waiting, row.priority) for row in found]
    began_s = time.perf_counter()
    ranked = scheduler.ranked(rows)
    ranked_s = time.perf_counter()
    for _ in range(CHOICES):
        next(scheduler.select_rows_to_run([ranked], may_run=lambda _: True))
    return ranked_s - began_s, (time.perf_counter() - ranked_s) / CHOICES


def _compared(places: Mapping[str, Ruled]) -> dict[str, float]:
    """Rates over those of the plain store: 1 is as fast."""
    plain = places["plain"]
    figures: dict[str, float] = {}
    for name in ("rules", "keyed"):
        place = places[name]
        figures |= {
            f"{name}_claims_ratio": statistics.median(plain.claims_s) / statistics.median(place.claims_s),
            f"{name}_ends_ratio": statistics.median(plain.ends_s) / statistics.median(place.ends_s),
            f"{name}_turns_ratio": statistics.median(plain.turns_s) / statistics.median(place.turns_s),
            f"{name}_match_us": statistics.median(place.matches_s) * 1e6,
        }
    return figures
