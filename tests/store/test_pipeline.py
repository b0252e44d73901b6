"""Calls of one lane through the store, to a real server: they are done in their order, whatever breaks."""

import redis
import trio

from jqd.domain.errors import JqdError, PositionMismatch, StoreAway
from jqd.domain.job import Job
from jqd.domain.record import Lane
from jqd.store.functions import shipped
from tests.contract.bench import JOURNAL, StoreBench
from tests.store.proxy import Proxy


class Batch:
    """Applies of one lane that are made at once, one behind the other."""

    def __init__(self, bench: StoreBench, count: int) -> None:
        self._store, self._jobs = bench.store, [bench.make() for _ in range(count)]
        self.failed: dict[int, JqdError] = {}

    async def apply(self) -> None:
        async with trio.open_nursery() as nursery:
            for number, job in enumerate(self._jobs):
                nursery.start_soon(self._apply, number, job)
                await trio.lowlevel.checkpoint()

    async def _apply(self, number: int, job: Job) -> None:
        try:
            await self._store.apply_jobs(JOURNAL, number, number + 1, [job])
        except JqdError as error:
            self.failed[number] = error
        else:
            self.failed.pop(number, None)


async def test_calls_of_a_lane_are_done_in_the_order_in_which_they_are_made(bench: StoreBench) -> None:
    batch = Batch(bench, 20)
    await batch.apply()
    assert batch.failed == {}
    assert (await bench.store.applied(JOURNAL))[Lane.JOBS] == 20
    assert (await bench.store.stats()).waiting == 20


async def test_flushed_scripts_are_loaded_again_for_all_of_them(bench: StoreBench, client: "redis.Redis") -> None:
    batch = Batch(bench, 5)
    client.script_flush()
    await batch.apply()
    assert batch.failed == {}
    assert (await bench.store.stats()).waiting == 5


async def test_a_lost_answer_leaves_all_behind_it_to_be_sent_again(bench: StoreBench, proxy: Proxy) -> None:
    batch = Batch(bench, 5)
    proxy.lose_answer(shipped().function("apply_jobs").encode())
    await batch.apply()
    assert set(batch.failed) == set(range(5))
    assert all(isinstance(error, StoreAway) for error in batch.failed.values())
    # Some behind the lost one may have been done before the break: whoever sends them again is told where to go on.
    done = (await bench.store.applied(JOURNAL))[Lane.JOBS]
    assert done >= 1
    await batch.apply()
    assert set(batch.failed) == set(range(done - 1))
    assert all(isinstance(error, PositionMismatch) for error in batch.failed.values())
    assert (await bench.store.stats()).waiting == (await bench.store.applied(JOURNAL))[Lane.JOBS] == 5


async def test_a_call_under_way_is_answered_while_the_store_is_looked_at(bench: StoreBench) -> None:
    """`look` exchanges all connections."""
    store = bench.store
    await store.look(fresh=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.apply_jobs, JOURNAL, 0, 1, [bench.make()])
        await trio.lowlevel.checkpoint()
        await store.look(fresh=False)
    await store.apply_jobs(JOURNAL, 1, 2, [bench.make()])
    assert (await store.stats()).waiting == 2
