"""Slots of workers that keep jobs for themselves, and are reported of at another daemon."""

import random

import trio

from jqd.domain.errors import StoreAway
from jqd.loops.worker_slots import LOOK_S, WorkerSlots
from jqd.runner import Capacity, RunnerConfig, WorkerRegistry, WorkerSpec
from tests.loops.house import house
from tests.loops.test_worker_timeouts import lent


async def test_a_slot_is_free_when_the_job_ended_elsewhere(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        stays, ends = held = await lent(here, nursery, 2)
        source = random.Random(1)
        workers = WorkerRegistry(None, clock=here.clock)
        capacity = Capacity(RunnerConfig(), workers, source, here.clock)
        breaker = capacity.breaker(
            workers.register(WorkerSpec(name="w", url="http://127.0.0.1:9/", max_jobs=2, jobs=None))
        )
        breaker.take("mail", [one.job.id for one in held], 0.0)
        for one in held:
            capacity.entrust(breaker, one)
        loop = WorkerSlots(store=here.store, capacity=capacity, mine=lambda job_id: True, source=source)
        await nursery.start(loop.run)
        await trio.sleep(2.5 * LOOK_S)  # from here on always between two looks
        assert breaker.in_flight == 2
        await here.store.release_entrusted([(ends.job.id, ends.fence)])
        freed = capacity.freed
        await trio.sleep(2 * LOOK_S)
        assert breaker.in_flight == 1
        assert freed.is_set(), "the dispatcher is told"

        def away(*_: object, **__: object) -> None:
            raise StoreAway("gone for a moment")

        here.store.touch, touch = away, here.store.touch  # type: ignore[assignment, method-assign]
        await here.store.release_entrusted([(stays.job.id, stays.fence)])
        await trio.sleep(2 * LOOK_S)
        assert (breaker.in_flight, loop.backoff.reason is None) == (1, False)
        here.store.touch = touch  # type: ignore[method-assign]
        await trio.sleep(60)
        assert (breaker.in_flight, loop.backoff.reason) == (0, None)
        nursery.cancel_scope.cancel()
