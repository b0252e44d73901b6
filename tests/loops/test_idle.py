"""What a daemon costs that has nothing to do: calls of its store, and moments in which it wakes."""

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from jqd.config import Config
from jqd.daemon import Daemon
from jqd.domain.beat import SLACK, next_beat_s, rest
from jqd.domain.process import ALONE, Process
from jqd.journal import JournalConfig, open_journal
from jqd.loops.claims import IDLE_S
from jqd.runner import WorkerSpec
from jqd.service import workers as service_workers
from jqd.store import StoreConfig
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.loops.house import TrioClock
from tests.simulation.node import without_edge

CALLS = 425  # a minute: at 7 a second, of some 50 us each, a daemon and its store need 0.5 % of a core
MOMENTS = 130  # a minute in which timers end: two a second, and a few of dates of their own
BEGUN = (0.0, 0.5), (0.123, 0.5), (0.499_999_9, 0.5), (7.3, 0.25), (33.3, 3.0), (0.2, 0.1)  # when, and the period
AMONG_OTHERS = 1_660  # calls a minute where other daemons push jobs of which nothing tells: 20 looks a second


class Counted:
    """Counts calls, and the moments in which they are made."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self.calls = Counter[str]()
        self.moments = set[float]()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def call(*args: Any, **named: Any) -> Any:
            self.calls[name] += 1
            self.moments.add(round(trio.current_time(), 3))
            return method(*args, **named)

        return call

    def forget(self) -> None:
        self.calls.clear()
        self.moments.clear()


@pytest.fixture(autouse=True)
def no_edge() -> Iterator[None]:
    with without_edge(0):
        yield


@asynccontextmanager
async def daemon_of(name: str, store: FakeStore, process: Process = ALONE) -> AsyncIterator[tuple[Daemon, Counted]]:
    """A daemon with all its loops and a worker, a minute after its start."""
    clock, stop = TrioClock(), trio.Event()
    at = Path(f"/{name}")
    async with open_journal(JournalConfig(directory=at), clock=clock, files=MemoryFiles()) as journal:
        counted: Any = Counted(store)
        config = Config(data_dir=at, store=StoreConfig(url="fake:"), process=process)
        daemon = Daemon(config, journal, [counted], clock, random.Random(1))
        async with trio.open_nursery() as nursery:
            ready = trio.Event()

            async def live() -> None:
                await daemon.run(stop=stop, listener=None, ready=lambda url: ready.set())

            nursery.start_soon(live)
            await ready.wait()
            spec = WorkerSpec(name="w", id="w", url="http://w/run", max_jobs=7)
            await service_workers.register(daemon.parts.services, spec, peer=None)
            await trio.sleep(60)
            counted.forget()
            yield daemon, counted
            stop.set()


async def test_an_idle_daemon_asks_its_store_seldom_and_all_in_two_moments_a_second(autojump_clock: None) -> None:
    async with daemon_of("alone", FakeStore(TrioClock())) as (_, store):
        await trio.sleep(60)
        assert store.calls.total() <= CALLS, store.calls.most_common()
        assert len(store.moments) <= MOMENTS, sorted(store.moments)


async def test_beside_another_daemon_it_looks_for_jobs_that_the_other_got(autojump_clock: None) -> None:
    store = FakeStore(TrioClock())
    async with daemon_of("one", store) as (_, one), daemon_of("two", store.another_client()) as (_, two):
        await trio.sleep(1)
        one.forget()
        await trio.sleep(60)
        for each in (one, two):
            assert each.calls["get_waiting_jobtypes"] + each.calls["promote"] >= 60 / (2 * IDLE_S)
            assert each.calls["find_silent"] >= 118, "another daemon may give a lease whose worker falls silent at once"
            assert each.calls.total() <= AMONG_OTHERS, each.calls.most_common()


async def test_loops_with_one_period_wake_in_one_moment_and_none_sleeps_longer(autojump_clock: None) -> None:
    moments: list[float] = []

    async def loop(begins_s: float, period_s: float) -> None:
        await trio.sleep(begins_s)
        while True:
            began_s = trio.current_time()
            await rest(period_s)
            assert 0 < trio.current_time() - began_s <= period_s * (1 + SLACK)
            moments.append(trio.current_time())

    with trio.move_on_after(100.01):
        async with trio.open_nursery() as nursery:
            for begins_s, period_s in BEGUN:
                nursery.start_soon(loop, begins_s, period_s)
    assert len({round(at_s, 3) for at_s in moments}) <= 1_000 + 200, "tenths, and quarters between them"
    assert 0.2 < next_beat_s(0.1, 0.2) <= 0.3 + 1e-9
