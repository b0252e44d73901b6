"""Two partitions and the loop that lets children go on, for its tests: each release is noted."""

import random
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from outcome import acapture

from jqd.chaining.flows import Flows
from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import ChangeKind, Fate, Job, State
from jqd.domain.jobid import partition_of
from jqd.store import JobView, StoreConfig
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench, changed, outcome
from tests.loops.house import TrioClock


class Faulty:
    """A way to a store on which something happens at one call, before or after the store did it."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.at, self.is_before = 0, False
        self.happens: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.store, name)
        if not callable(real):
            return real

        async def call(*args: Any, **named: Any) -> Any:
            self.at -= 1
            is_now = self.at == 0
            if is_now and self.is_before:
                await self.happens()
            answer = await real(*args, **named)
            if is_now and not self.is_before:
                await self.happens()
            return answer

        return call


class Room:
    """Two partitions, of which the second has the parents; what is released goes into the first at once."""

    def __init__(self, partitions: int = 2) -> None:
        self.clock = TrioClock()
        parts = StoreConfig(url="redis://fake", partitions=partitions).parts()
        self.stores = [FakeStore(self.clock, part) for part in parts]
        self.benches = [StoreBench(store, self.clock) for store in self.stores]
        self.unsettled: set[int] = set()
        self.released: list[str] = []
        self.failed: list[str] = []
        self.refuses: Exception | bool | None = None
        self.made: dict[str, Job] = {}
        self._adding = trio.Lock()
        self.flows = self.loop()

    def loop(self, number: int = 0, wrap: Callable[[FakeStore], Any] = lambda store: store) -> Flows:
        stores: Any = [wrap(store) for store in self.stores]
        return Flows(number, stores, self.settled, self.release, clock=self.clock, source=random.Random(1))

    def settled(self, where: Collection[int]) -> bool:
        return self.unsettled.isdisjoint(where)

    async def release(self, job_id: str, failed: str, _: str) -> bool:
        if isinstance(self.refuses, Exception):
            raise self.refuses
        view = await self.stores[0].get_job(job_id)
        if self.refuses or not isinstance(view, JobView) or view.state is not State.BLOCKED:
            return not self.refuses
        self.released.append(job_id)
        self.failed.append(failed)
        revision = await self.stores[0].reserve_change(job_id)
        async with self._adding:  # one journal tells of them one after the other
            await self.benches[0].add(changed(self.made[job_id], revision, ChangeKind.EDIT, eligible_at_ms=0))
        return True

    def make(self, home: int, **fields: Any) -> Job:
        made = self.benches[home].make(**fields)
        named = next(name for name in (made.id[:-1] + letter for letter in "01") if partition_of(name, 2) == home)
        job = msgspec.structs.replace(made, id=named)
        self.made[job.id] = job
        return job

    async def parent(self) -> Job:
        job = self.make(len(self.stores) - 1)
        await self.benches[-1].add(job)
        return job

    async def child(self, *parents: Job) -> Job:
        flow = Flow(after=tuple(parent.id for parent in parents))
        job = self.make(0, jobtype="sum", flow=flow, eligible_at_ms=BLOCKED_MS)
        await self.benches[0].add(job)
        return job

    async def retry(self, parent: Job) -> None:
        revision = await self.stores[-1].reserve_change(parent.id)
        await self.benches[-1].add(changed(parent, revision, ChangeKind.RETRY))

    async def end(self, fate: Fate = Fate.SUCCEEDED) -> None:
        bench = self.benches[-1]
        await bench.settle(outcome(await bench.claim_one(await bench.join()), fate))


async def one_round(flows: Flows) -> float:
    """One round, and all releases that it began."""
    outer = getattr(flows, "_nursery", None)  # where a round is begun within another of the same loop
    async with trio.open_nursery() as flows._nursery:
        ended = await acapture(flows.one_round)
    if outer is not None:
        flows._nursery = outer
    return ended.unwrap()


@pytest.fixture
async def room() -> Room:
    room = Room()
    for store in room.stores:
        await store.look(fresh=True)
    return room


@pytest.fixture
async def running(room: Room, nursery: trio.Nursery) -> Room:
    await nursery.start(room.flows.run)
    return room
