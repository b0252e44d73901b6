"""Random walks among hands: limits, workers, claims told again, attempts told of late or twice in a call.

What the store counts, and who owns what, is compared with a recount after each call.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec import structs

from jqd.domain.errors import StoreChanged, StoreError, StoreRefused
from jqd.domain.job import Fate, Held, Job
from jqd.domain.record import Lane
from jqd.domain.settings import Setting
from jqd.store import Release, Store, StoreConfig
from jqd.store.types import SilentLeases
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import ALL, JOURNAL, holds, outcome
from tests.contract.lent import handed
from tests.contract.limited import DIGEST, KEYED, item
from tests.contract.walk import TYPES, Walk
from tests.store.counting import KEYS, of_fake

STEPS = 150
SEEDS = (
    *range(6),
    12,
    14,
)  # the last but one finds a slot that a claim forgot to free, the last a name that nobody has
EARLIER = (77, 78, 99)  # claims of before all lives
NAMES = ("a", "b")


class HandsWalk(Walk):
    """One seed, one store. Half of its steps are those of the walk among stores."""

    number = 0
    """Of the last setting."""
    marks: tuple[int, ...] = ()

    async def both(self, call: Callable[[Store], Awaitable[Any]]) -> Any:
        """The answer, or the class of the error; a script that fails by no name is a mistake."""
        try:
            return await call(self.stores[0])
        except StoreRefused:
            raise
        except StoreError as error:
            self.shut = isinstance(error, StoreChanged)
            return type(error)

    async def step(self) -> None:
        if self.also.random() < 0.35:
            again = [self.limit, self.give_back, self.find_silent, self.touch, self.reassert, self.settle, self.claim]
            await self.also.choice([*again, self.settle])()
            self.clock.advance(0.01)
        else:
            await super().step()
        if self.also.random() < 0.05:
            self.clock.advance(70)

    def make(self) -> Job:
        job = super().make()
        if self.also.random() < 0.75:
            limited = self.also.sample(NAMES, self.also.randint(0, len(NAMES)))
            job = structs.replace(job, queue=KEYED + "".join(item(name) for name in limited))
            self.jobs[-1] = job
        return job

    async def limit(self) -> None:
        self.number += 1
        body = msgspec.msgpack.encode({"digest": DIGEST, "concurrency": self.also.choice([1, 2, 5])})
        said = Setting("constraint", self.also.choice(NAMES), self.number, 1 << 41, msgspec.Raw(body))
        await self.lane(Lane.RULES, lambda store, at: store.apply_settings(JOURNAL, *at, [said]))

    async def claim(self) -> None:
        if self.owners:
            owner, jobtype, limit = self.owner(), self.random.choice(TYPES), self.random.randint(1, 4)
            limits = {**ALL, "version": str(DIGEST)}
            answer = await self.both(lambda store: store.get_waiting_jobs(owner, jobtype, limit, **limits))
            if isinstance(answer, list):
                self.held += answer

    def some(self, most: int) -> list[Held]:
        """Of those held lately."""
        lately = self.held[-12:]
        return self.random.sample(lately, min(len(lately), most))

    async def settle(self) -> None:
        held = self.some(self.random.randint(1, 3))
        held += [self.random.choice(held)] if held and self.random.random() < 0.4 else []
        held += [
            structs.replace(one, fence=one.fence + self.random.choice([-1, 1]))
            for one in held
            if self.random.random() < 0.2
        ]
        if self.jobs and self.random.random() < 0.3:
            held.append(Held(self.random.choice(self.jobs), self.random.choice(EARLIER), 1))
        fates = [Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD, Fate.RETRY]
        told = [
            handed(one)
            if self.random.random() < 0.4
            else outcome(one, self.random.choice(fates), delay_ms=self.random.choice([0, 700]))
            for one in held
        ]
        old = self.random.random() < 0.3
        await self.lane(Lane.OUTCOMES, lambda store, at: store.apply_outcomes(JOURNAL, *at, told, old=old))

    async def reassert(self) -> None:
        if self.owners:
            owner, claimed = self.owner(), holds(self.some(2))
            others = [*self.jobs[-1:], *self.random.sample(self.jobs, min(len(self.jobs), 2))]
            claimed |= {job.id: self.random.choice(EARLIER) for job in others}
            contents = {i: self.random.choice([0, *self.revisions]) for i in claimed if self.random.random() < 0.5}
            lost = await self.both(lambda store: store.reassert(owner, claimed, contents))
            if isinstance(lost, list):
                known = {job.id: job for job in self.jobs}
                self.held += [Held(known[i], fence, 1) for i, fence in claimed.items() if i not in lost]

    async def give_back(self) -> None:
        claims = [(one.job.id, one.fence) for one in self.some(4)]
        how = self.random.choice([Release.UNGET, Release.UNSENT])
        await self.both(lambda store: store.release_entrusted(claims, how))

    async def find_silent(self) -> None:
        found = await self.both(lambda store: store.find_silent({}, 10))
        if isinstance(found, SilentLeases):
            self.marks = (*self.marks, found.now)
            at = self.random.choice(self.marks)
            await self.both(lambda store: store.find_silent({10: at, 0: at}, 10))

    async def touch(self) -> None:
        claims = [(one.job.id, self.random.choice([0, one.fence])) for one in self.some(4)]
        await self.both(lambda store: store.touch(claims))


def check_places(fake: FakeStore, when: str) -> None:
    """A record that names a queue is counted in one of its buckets at least; without one, and in others, nothing is."""
    keys, prefix = fake.server.keyspace.keys, KEYS["busy"].encode() + b":"
    busy = {name[len(prefix) :]: rows.scores for name, rows in keys.items() if name.startswith(prefix)}
    records = [(job_id, text) for job_id, text in keys.get(KEYS["about"].encode(), {}).items() if job_id != b"?"]
    queues = {job_id: (b" " + text).partition(b" q")[2] for job_id, text in records}
    for job_id, queue in queues.items():
        its = [bucket for bucket, ids in busy.items() if job_id in ids]
        assert bool(its) == bool(queue), f"{when}: {job_id!r} {queue!r} {its}"
        assert all(bucket in queue for bucket in its), f"{when}: {job_id!r} {queue!r} {its}"


@pytest.mark.parametrize("seed", SEEDS)
async def test_who_has_a_job_and_what_limits_count_agree_with_a_recount(seed: int) -> None:
    clock = ManualClock()
    config = StoreConfig(url="redis://fake", history_max=2, ended_keep_jobs=12, result_ttl_s=9, tombstone_keep_s=30)
    fake = FakeStore(clock, config)
    walk = HandsWalk(seed, fake, fake, clock, fake.wipe)
    of_fake(fake).watch(fake)
    await walk.look()
    await walk.limit()
    for step in range(STEPS):
        await walk.step()
        check_places(fake, f"step {step}")
