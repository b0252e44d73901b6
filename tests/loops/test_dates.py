"""Schedules at real daemons over one store: each date is fired once, whatever dies, and no sooner than it may be.

The steps between two daemons are judged in a model, tests/scheduler/test_firing.py; here the real ones are walked, with
kills, wipes and clocks that differ, and jobs whose ends and names the store soon forgets.
"""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from jqd.config import Config
from jqd.daemon import Daemon
from jqd.desk import schedules
from jqd.desk.cancel import cancel
from jqd.desk.schedules import Plan, Template
from jqd.journal import JournalConfig, open_journal
from jqd.store import StoreConfig
from jqd.testing.files import MemoryFiles
from jqd.testing.store import FakeStore
from jqd.words.dates import iso
from jqd.words.errors import JqdError
from jqd.words.job import State
from jqd.words.lease import LeaseConfig
from jqd.words.schedules import Known
from tests.loops.house import TrioClock, until

LEASE = LeaseConfig(lease_s=2.0, renew_s=0.5, margin_s=0.4)
STORE = StoreConfig(url="redis://fake", ended_keep_s=12.0, name_reserve_s=6.0)
EVERY_S, DATES = 5.0, 16
ALL = Plan(job=Template(name="tick"), every=EVERY_S, missed="all")


class Place:
    """A daemon's directory, and its lives. Its clock is its own."""

    def __init__(self, number: int, store: FakeStore, source: random.Random, skew_s: float = 0.0) -> None:
        self.directory, self.files, self.source, self.store = Path(f"/d{number}"), MemoryFiles(), source, store
        self.clock = TrioClock(wall_ms=1_800_000_000_000 + round(skew_s * 1000))
        self.scope = trio.CancelScope()
        self.daemon: Any = None
        self.is_there = False

    @property
    def desk(self) -> Any:
        return self.daemon.parts.desk

    async def live(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """One process, until it is killed."""
        with trio.CancelScope() as self.scope:
            limits = JournalConfig(directory=self.directory)
            async with open_journal(limits, clock=self.clock, files=self.files) as journal:
                config = Config(data_dir=Path("/nowhere"), lease=LEASE, store=STORE)
                seed = random.Random(self.source.random())
                daemon = self.daemon = Daemon(config, journal, [self.store.another_client()], self.clock, seed)
                async with trio.open_nursery() as nursery:
                    for loop in (*daemon.partitions[0].loops(), daemon.upkeep.run, daemon.dates.run):
                        await nursery.start(loop)
                    await daemon.workers.rules.told.wait()
                    self.is_there = True
                    task_status.started()

    def kill(self) -> None:
        """As by a power cut."""
        self.files = self.files.crash(self.source)
        self.is_there = False
        self.scope.cancel()


class Watch:
    """Sees each job that waits, and ends it: by a cancel, which is known wherever the store forgets it."""

    def __init__(self, places: list[Place], source: random.Random) -> None:
        self.places, self.source = places, source
        self.seen: Counter[str] = Counter()
        self.began_ms: dict[str, int] = {}
        self._ended: set[str] = set()

    async def run(self) -> None:
        while True:
            for place in self.source.sample(self.places, len(self.places)):
                if place.is_there:
                    await self._look(place)
            await trio.sleep(0.3)

    async def _look(self, place: Place) -> None:
        try:
            store, now_ms = place.desk.store, place.store.clock.wall_ms()
            pages = [await store.list_jobs(state, None, None, 100, "") for state in (State.WAITING, State.SCHEDULED)]
            for job in [job for page in pages for job in page.jobs if job.eligible_at_ms <= now_ms]:
                if job.id not in self._ended:
                    self.seen[job.name] += 1
                    self._ended.add(job.id)
                    self.began_ms[job.name] = place.store.clock.wall_ms()
                elif place.daemon.partitions[0].membership.settled:
                    self.seen[job.name] += 1  # it had ended, and may run again
                await cancel(place.desk, job.id)
        except JqdError:
            await trio.sleep(0.1)  # the store is told anew what it forgot


async def walk(seed: int) -> str | None:
    """A random life of two or three daemons. What is wrong at its end; None: nothing."""
    source = random.Random(seed)
    store = FakeStore(TrioClock(), STORE)
    skews = [source.choice((-2.5, -0.7, 0.0, 1.3, 2.5)) for _ in range(source.randint(2, 3))]
    places = [Place(number, store, source, skew_s) for number, skew_s in enumerate(skews)]
    watch = Watch(places, source)
    async with trio.open_nursery() as nursery:
        for place in places:
            await nursery.start(place.live)
        await until(lambda: all(place.daemon.partitions[0].membership.settled for place in places))
        nursery.start_soon(watch.run)
        desk = source.choice(places).desk
        end_ms = desk.clock.wall_ms() + round((DATES + 0.5) * EVERY_S * 1000)
        await schedules.put(desk, "tick", Plan(job=ALL.job, every=EVERY_S, missed="all", until=iso(end_ms)))
        first_ms = desk.schedules.known["tick"].next_ms
        await trio.sleep(2)
        while store.clock.wall_ms() < end_ms:
            await trio.sleep(source.uniform(1, 8))
            match source.choice(("kill", "kill", "both", "wipe", "rest")):
                case "wipe":
                    store.wipe()
                    await until(lambda: all(place.daemon.partitions[0].membership.settled for place in places))
                    await trio.sleep(3)
                case "kill" | "both" as fault:
                    gone = places if fault == "both" else [source.choice(places)]
                    for place in gone:
                        place.kill()
                    await trio.sleep(source.choice((0.5, 6, 20)))
                    for place in gone:
                        await nursery.start(place.live)
        await trio.sleep(40)
        stuck = [place.desk.schedules.complaints() for place in places]
        nursery.cancel_scope.cancel()
    dates = [f"tick@{iso(first_ms + round(n * EVERY_S * 1000))}" for n in range(DATES)]
    if twice := {name: count for name, count in watch.seen.items() if count > 1 or name not in dates}:
        return f"twice: {twice}"
    if lost := [name for name in dates if name not in watch.seen]:
        return f"lost: {lost} {stuck}"
    return None


@pytest.mark.parametrize("seed", range(3))
async def test_each_date_is_fired_once(seed: int, autojump_clock: None) -> None:
    assert await walk(seed) is None


async def test_an_id_of_its_own_for_each_push_is_found(autojump_clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Known, "job_id", lambda self, date_ms: f"{self.name}@{trio.current_time():.3f}")
    found = await walk(0)
    assert found is not None
    assert found.startswith("twice")
