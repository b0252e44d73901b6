"""What is given when, beside a model that looks at every job: order, rates, concurrency, through ends and deaths."""

import random
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from jqd.store import Owner, StoreConfig
from jqd.testing.store import FakeStore
from jqd.words.clock import ManualClock
from jqd.words.constraints import BETWEEN, WITHIN, items_of
from jqd.words.job import Fate, Held, Job
from jqd.words.record import Lane
from jqd.words.rules import Rule
from tests.contract.bench import ALL, JOURNAL, StoreBench, ids, outcome

SEEDS, STEPS = 12, 120
RATES = {"few": (2, 1.0), "some": (5, 3.0)}
SLOTS = {"one": 1, "three": 3}
VERSION = "4"


class Model:
    """Knows every job, and looks at each."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.waiting: dict[str, Job] = {}
        self.held: dict[str, Job] = {}
        self.starts: dict[tuple[str, str], list[tuple[int, int]]] = {}

    def free(self, name: str, key: str) -> float:
        if name in SLOTS:
            return SLOTS[name] - sum((name, key) in buckets(job) for job in self.held.values())
        limit, per_s = RATES[name]
        since_ms = self.clock.wall_ms() - per_s * 1000
        return limit - sum(cost for at_ms, cost in self.starts.get((name, key), []) if at_ms > since_ms)

    def claim(self, limit: int) -> list[str]:
        given: list[str] = []
        for job in sorted(self.waiting.values(), key=lambda job: (job.priority, job.id)):
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


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_claim_gives_what_the_model_gives(seed: int) -> None:
    source, clock = random.Random(seed), ManualClock()
    store = FakeStore(clock, StoreConfig())
    await store.look(fresh=True)
    bench, model, held = StoreBench(store, clock), Model(clock), dict[str, Held]()
    owner = await bench.join()
    bodies: dict[str, Any] = {name: {"rate": {"limit": most, "per_s": per_s}} for name, (most, per_s) in RATES.items()}
    bodies.update((name, {"concurrency": slots}) for name, slots in SLOTS.items())
    for name, body in bodies.items():
        rule = Rule("constraint", name, 1, 2**41, Raw(msgspec.msgpack.encode({"digest": 1, **body})))
        start = bench.at[Lane.RULES]
        bench.at[Lane.RULES] += 100
        await store.apply_rules(JOURNAL, start, start + 100, [rule])
    died = False
    for step in range(STEPS):
        match (
            source.choice(("push", "push", "claim", "claim", "end", "retry", "die", "wait"))
            if step % 40 != 39
            else "die"
        ):
            case "push":
                jobs = [
                    bench.make(priority=source.randint(0, 2), queue=some_queue(source))
                    for _ in range(source.choice((1, 3, 6)))
                ]
                await bench.add(*jobs)
                model.waiting.update({job.id: job for job in jobs})
            case "claim":
                while (await store.promote(10)).moved:
                    pass
                limit = source.choice((1, 2, 3, 5, 30))
                wanted = model.claim(limit)
                given = await store.get_waiting_jobs(owner, "mail", limit, **ALL, version=VERSION)
                assert ids(given) == wanted, f"step {step}"
                held.update({one.job.id: one for one in given})
            case "end" | "retry" as how if held:
                one = held.pop(source.choice(sorted(held)))
                await bench.settle(outcome(one, Fate.SUCCEEDED if how == "end" else Fate.RETRY))
                job = model.held.pop(one.job.id)
                model.waiting.update({job.id: job} if how == "retry" else {})
            case "die" if step % 40 == 39 and not died:  # of a second death of a job orders change: test_store_deaths
                died = True
                owner = await _die(bench, owner)
                model.waiting.update(model.held)
                model.held.clear()
                held.clear()
            case _:
                clock.advance(source.choice((0.05, 0.4, 1.0, 3.1)))


async def _die(bench: StoreBench, owner: Owner) -> Owner:
    other = await bench.join("other")
    member = (await bench.members(other))[owner.sysid]
    while await bench.store.reap(owner.sysid, member, 100):
        pass
    await bench.store.release_sysid(other)
    await bench.store.delete_dead([])
    return await bench.join()
