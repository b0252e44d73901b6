"""A daemon whose wall clock is wrong: the dates that it makes for others are by the store's clock."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from jqd.config import Config
from jqd.daemon import Daemon
from jqd.domain.job import State
from jqd.domain.job_spec import JobSpec
from jqd.domain.settings import SettingTable
from jqd.journal import JournalConfig, open_journal
from jqd.service import edit as service_edit
from jqd.service import push as service_push
from jqd.service.batch import Batch
from jqd.service.edit import Edit
from jqd.store import JobView, StoreConfig
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.loops.house import TrioClock
from tests.simulation.node import without_edge

HOUR_MS = 3_60_000
SLACK_MS = 2  # dates are rounded


class WrongClock(TrioClock):
    """One that is wrong from the start."""

    def __init__(self, wrong_ms: int) -> None:
        super().__init__(wall_ms=TrioClock().wall_ms() + wrong_ms)


class Side:
    """The daemon, its store, and the store's clock."""

    def __init__(self, daemon: Daemon, store: FakeStore, clock: TrioClock) -> None:
        self.daemon, self.store, self.clock = daemon, store, clock
        self.services = daemon.parts.services

    async def push(self, **fields: Any) -> JobView:
        array = msgspec.msgpack.encode([{"name": "mail", "argument": 1, **fields}])
        batch = Batch(single=True, size=1, array=array, jobs=msgspec.msgpack.decode(array, type=list[JobSpec]))
        (job_id,) = (await service_push.push(self.services, batch)).job_ids
        assert job_id is not None
        return await self.view(job_id)

    async def view(self, job_id: str) -> JobView:
        while not isinstance(view := await self.store.get_job(job_id), JobView):
            await trio.sleep(0.01)
        return view


@asynccontextmanager
async def side_of(wrong_ms: int) -> AsyncIterator[Side]:
    clock, own, stop = TrioClock(), WrongClock(wrong_ms), trio.Event()
    store, at = FakeStore(clock), Path("/d")
    with without_edge(0):
        async with open_journal(JournalConfig(directory=at), clock=own, files=MemoryFiles()) as journal:
            config = Config(data_dir=at, store=StoreConfig(url="fake:"))
            daemon = Daemon(config, journal, [store], own, random.Random(1))
            async with trio.open_nursery() as nursery:
                ready = trio.Event()

                async def live() -> None:
                    await daemon.run(stop=stop, listener=None, ready=lambda url: ready.set())

                nursery.start_soon(live)
                await ready.wait()
                await daemon.workers.settings.synced.wait()
                yield Side(daemon, store, clock)
                stop.set()


@pytest.mark.parametrize("wrong_ms", [-HOUR_MS, HOUR_MS])
async def test_what_a_push_says_in_seconds_is_counted_by_the_clock_that_judges_it(
    wrong_ms: int, autojump_clock: None
) -> None:
    async with side_of(wrong_ms) as side:
        now_ms = side.clock.wall_ms()
        soon, later = await side.push(expires_in=60), await side.push(delay=1_800)
        assert abs(soon.expires_at_ms - now_ms - 60_000) < SLACK_MS + 1_000
        assert abs(soon.created_at_ms - now_ms) < SLACK_MS + 1_000
        assert abs(later.eligible_at_ms - now_ms - 1_800_000) < SLACK_MS + 1_000
        await trio.sleep(59)
        assert (await side.view(soon.id)).state is State.WAITING, "it was good for 60 s"
        await trio.sleep(3)
        assert (await side.view(soon.id)).state is not State.WAITING
        edited = await service_edit.edit(side.services, later.id, Edit(delay=20.0))
        assert abs(edited.eligible_at_ms - side.clock.wall_ms() - 20_000) < SLACK_MS + 1_000


@pytest.mark.parametrize("wrong_ms", [-HOUR_MS, HOUR_MS])
async def test_no_part_that_makes_dates_for_others_has_the_machines_clock(wrong_ms: int, autojump_clock: None) -> None:
    """Who signs, who ends attempts and whoever saves dates: within the rounding, they tell the store's time."""
    async with side_of(wrong_ms) as side:
        daemon, (partition,) = side.daemon, side.daemon.partitions
        parts: tuple[Any, ...] = (
            daemon.parts.services, daemon.workers, daemon.worker_views, daemon.joblog, daemon.settings_upkeep,
            daemon.parts.services.tokens, daemon.workers.departures, daemon.capacity,
            partition.runner, partition.reap, partition.worker_timeouts, partition.flows,
        )  # fmt: skip
        for part in parts:
            clock = getattr(part, "clock", None) or part._clock
            assert abs(clock.wall_ms() - side.clock.wall_ms()) <= SLACK_MS, type(part).__name__


def test_time_by_the_store_does_not_run_by_fits() -> None:
    """An answer is late by anything: what was known of the store's clock stays while it may be true."""
    clock, table, source = ManualClock(), SettingTable(), random.Random(1)
    store_ahead_ms, before_ms = 7_000_000, 0
    for _ in range(200):
        clock.advance(1)
        sent_at_s, out_s, back_s = clock.boot_s(), source.random() / 5, source.random() / 5
        clock.advance(out_s)
        told_ms = round(clock.boot_s() * 1000) + store_ahead_ms
        clock.advance(back_s)
        set_ms = table.note_time("store", told_ms, sent_at_s=sent_at_s, received_at_s=clock.boot_s())
        now_ms = table.now_ms(clock)
        assert now_ms > before_ms
        assert 0 <= set_ms <= 200
        assert -400 <= now_ms - round(clock.boot_s() * 1000) - store_ahead_ms <= 1
        before_ms = now_ms
    told_ms -= HOUR_MS
    assert table.note_time("store", told_ms, sent_at_s=sent_at_s, received_at_s=clock.boot_s()) < -HOUR_MS + 1_000
