"""What is given when, beside a model that looks at every job: order, rates, concurrency, through ends and deaths."""

import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from jqd.domain.job import Fate, Held, Job, Wanted
from jqd.domain.jobid import parse_id
from jqd.domain.queue_name import BETWEEN, WITHIN, items_of
from jqd.domain.record import Lane
from jqd.domain.settings import Setting
from jqd.store import Ages, Owner, StoreConfig
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import ALL, JOURNAL, StoreBench, ids, outcome
from tests.store.places import short_pages

SEEDS, AGED, STEPS = 12, 6, 120
RATES = {"few": (2, 1.0), "some": (5, 3.0)}
SLOTS = {"one": 1, "three": 3}
VERSION = "4"


class Model:
    """Knows every job, and looks at each."""

    def __init__(self, clock: ManualClock, period_ms: int) -> None:
        self.clock = clock
        self.period_ms = period_ms
        self.waiting: dict[str, Job] = {}
        self.held: dict[str, Job] = {}
        self.starts: dict[tuple[str, str], list[tuple[int, int]]] = {}

    def free(self, name: str, key: str) -> float:
        if name in SLOTS:
            return SLOTS[name] - sum((name, key) in buckets(job) for job in self.held.values())
        limit, per_s = RATES[name]
        since_ms = self.clock.wall_ms() - per_s * 1000
        return limit - sum(cost for at_ms, cost in self.starts.get((name, key), []) if at_ms > since_ms)

    def in_order(self, least: int, most: int) -> list[tuple[int, Job]]:
        """Ranks and jobs."""
        now_ms = self.clock.wall_ms()
        jobs = [one for one in self.waiting.values() if least <= one.priority <= most and one.eligible_at_ms <= now_ms]
        return sorted(((self.rank(job), job) for job in jobs), key=lambda one: (one[0], one[1].id))

    def rank(self, job: Job) -> int:
        parts = parse_id(job.id)
        assert parts is not None
        since_ms = max(parts.at_ms, job.eligible_at_ms)
        return job.priority + (since_ms // self.period_ms if self.period_ms else 0)

    def claim(self, limit: int, least: int, most: int, bound: float) -> list[str]:
        given: list[str] = []
        for rank, job in self.in_order(least, most):
            if rank > bound:
                break
            its = items_of(job.queue)
            costs = [1 if item.name in SLOTS else item.cost or 0 for item in its]
            if len(given) < limit and all(self.free(i.name, i.key) >= cost for i, cost in zip(its, costs, strict=True)):
                given.append(job.id)
                self.held[job.id] = self.waiting.pop(job.id)
                for item, cost in zip(its, costs, strict=True):
                    self.starts.setdefault((item.name, item.key), []).append((self.clock.wall_ms(), cost))
        return given


def buckets(job: Job) -> list[tuple[str, str]]:
    return [(item.name, item.key) for item in items_of(job.queue)]


def some_queue(source: random.Random) -> str:
    names = source.sample([*RATES, *SLOTS], source.choice((0, 1, 1, 2)))
    cost = source.choice((1, 1, 2))
    parts = [f"{BETWEEN}{name}{WITHIN}{cost}{WITHIN}={source.choice('ab')}" for name in sorted(names)]
    return f"{BETWEEN}{VERSION}{''.join(parts)}"


def date(source: random.Random, clock: ManualClock, part: float) -> int:
    return clock.wall_ms() + source.choice((200, 900, 4_000, -9_000)) if source.random() < part else 0


@pytest.mark.parametrize(
    ("seed", "ages"), [*((seed, False) for seed in range(SEEDS)), *((seed, True) for seed in range(AGED))]
)
async def test_a_claim_gives_what_the_model_gives(seed: int, ages: bool, tmp_path: Path) -> None:
    with short_pages(tmp_path, LOOSE_MAX="1") if seed % 3 == 1 else nullcontext():  # else nearly all come loose
        await _walk(seed, ages)


async def _walk(seed: int, ages: bool) -> None:
    source, clock = random.Random(seed), ManualClock()
    is_plain, has_dates = ages and seed % 3 == 0, ages and seed % 2 == 1  # plain: no constraint is known
    period_ms = source.choice((300, 1_000, 5_000)) if ages else 0
    store = FakeStore(clock, StoreConfig())
    await store.look(fresh=True)
    bench, model, held = StoreBench(store, clock), Model(clock, period_ms), dict[str, Held]()
    owner = await bench.join(period_ms=period_ms)
    bodies: dict[str, Any] = {name: {"rate": {"limit": most, "per_s": per_s}} for name, (most, per_s) in RATES.items()}
    bodies.update((name, {"concurrency": slots}) for name, slots in SLOTS.items())
    for name, body in bodies.items() if not is_plain else ():
        setting = Setting("constraint", name, 1, 2**41, Raw(msgspec.msgpack.encode({"digest": 1, **body})))
        start = bench.at[Lane.RULES]
        bench.at[Lane.RULES] += 100
        await store.apply_settings(JOURNAL, start, start + 100, [setting])
    died = False
    for step in range(STEPS):
        match (
            source.choice(("push", "push", "claim", "claim", "end", "retry", "die", "wait"))
            if step % 40 != 39
            else "die"
        ):
            case "push":
                jobs = [
                    bench.make(
                        priority=source.randint(0, 4),
                        queue="" if is_plain else some_queue(source),
                        eligible_at_ms=date(source, clock, 0.2 * has_dates),
                    )
                    for _ in range(source.choice((1, 3, 60 if is_plain else 6)))
                ]
                await bench.add(*jobs)
                model.waiting.update({job.id: job for job in jobs})
            case "claim":
                while (await store.promote(10)).moved:
                    pass
                limit = source.choice((1, 2, 3, 5, 30))
                least, most = source.choice(((-9, 9), (-9, 9), (0, 1), (2, 4), (1, 3)))
                order = model.in_order(least, most)
                if ages:
                    rows = await store.get_waiting_jobtypes([Wanted("mail", least, most)], 9, ages=True)
                    again = await store.get_waiting_jobtypes([Wanted(None, least, most)], 9, ages=True)
                    assert [row[:4] for row in rows] == [row[:4] for row in again], f"step {step}"
                    await _check_place(bench, model, source)
                bound = source.choice(order)[0] if order and source.random() < 0.5 else float("inf")
                claim = Ages(int(min(bound, 2**53)), 0) if ages else None
                least_worst = {"priority_min": least, "priority_max": most if ages else int(min(most, bound))}
                wanted = model.claim(limit, least, most, bound)
                if ages and wanted:
                    assert rows[0].rank <= next(rank for rank, job in order if job.id == wanted[0]), f"step {step}"
                given = await store.get_waiting_jobs(
                    owner, "mail", limit, **{**ALL, **least_worst}, version="" if is_plain else VERSION, ages=claim
                )
                assert ids(given) == wanted, f"step {step}"
                held.update({one.job.id: one for one in given})
            case "end" | "retry" as how if held:
                one = held.pop(source.choice(sorted(held)))
                await bench.settle(outcome(one, Fate.SUCCEEDED if how == "end" else Fate.RETRY))
                job = model.held.pop(one.job.id)
                model.waiting.update({job.id: job} if how == "retry" else {})
            case "die" if step % 40 == 39 and not died:  # of a second death of a job orders change: test_store_deaths
                died = True
                owner = await _die(bench, owner, period_ms)
                model.waiting.update(model.held)
                model.held.clear()
                held.clear()
            case _:
                clock.advance(source.choice((0.05, 0.4, 1.0, 3.1)))


async def _check_place(bench: StoreBench, model: Model, source: random.Random) -> None:
    """Of some job the store tells how many of its queue may be before it."""
    order = [job for _, job in model.in_order(-9, 9)]
    if not order:
        return
    job = source.choice(order)
    place = await bench.store.queue_place(job.id, model.period_ms > 0)
    assert place is not None
    ahead = [one.queue for one in order[: order.index(job)]].count(job.queue)
    assert place.ahead == ahead or (not place.exact and place.ahead > ahead)


async def _die(bench: StoreBench, owner: Owner, period_ms: int) -> Owner:
    other = await bench.join("other", period_ms)
    member = (await bench.members(other))[owner.sysid]
    while await bench.store.reap(owner.sysid, member, 100):
        pass
    await bench.store.release_sysid(other)
    await bench.store.delete_dead([])
    return await bench.join(period_ms=period_ms)


LEVELS, PERIOD_MS, LOOKS = 150, 1_000, 200  # of priorities in use the 100 best are merged


async def test_of_many_priorities_in_use_an_old_job_behind_them_is_found_by_chance_and_goes_first() -> None:
    clock = ManualClock()
    store = FakeStore(clock, StoreConfig())
    await store.look(fresh=True)
    bench = StoreBench(store, clock)
    owner = await bench.join(period_ms=PERIOD_MS)
    old = await bench.push(priority=LEVELS)
    clock.advance(2 * LEVELS)
    await bench.add(*(bench.make("b", priority=priority) for priority in range(LEVELS)))
    for _ in range(LOOKS):
        first, *_ = await store.get_waiting_jobtypes([Wanted()], 64, ages=True)
        if first.head_id == old.id:
            break
    assert (first.jobtype, first.head_id) == ("mail", old.id)
    new = await bench.push(priority=0)
    claimed = await bench.claim(owner, "mail", 2, ages=Ages(2**53, first.priority))
    assert ids(claimed) == [old.id, new.id]
