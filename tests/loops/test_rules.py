"""Registrations through kills, wipes and roll-backs: what was answered holds everywhere, what was deleted stays so."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from jqd.config import Config
from jqd.daemon import Daemon
from jqd.desk import workers as desk_workers
from jqd.journal import JournalConfig, open_journal
from jqd.loops.rules import DELETED_S, carried
from jqd.runner import Card
from jqd.store import StoreConfig
from jqd.testing.files import MemoryFiles
from jqd.testing.sim.mistake import in_scripts
from jqd.testing.store import FakeStore
from jqd.words.errors import NotFound
from jqd.words.lease import LeaseConfig
from jqd.words.rules import NIL, Rule, Rules
from tests.loops.house import TrioClock, until

KNOWN_S = 2.0
SHORT: dict[str, Any] = {"segment_bytes": 512, "segment_age_s": 1.0, "retention_s": 0, "retention_bytes": 0}
LEASE = LeaseConfig(lease_s=2.0, renew_s=0.5, margin_s=0.4)
STEPS = 14


class Place:
    """A daemon's directory, and its lives."""

    def __init__(self, number: int, store: FakeStore, clock: TrioClock, source: random.Random) -> None:
        self.directory = Path(f"/d{number}")
        self.files = MemoryFiles()
        self.store, self.clock, self.source = store, clock, source
        self.scope = trio.CancelScope()
        self.daemon: Any = None

    async def live(self, *, task_status: trio.TaskStatus[None]) -> None:
        """One process, until it is killed."""
        with trio.CancelScope() as self.scope:
            limits = JournalConfig(directory=self.directory, **SHORT)
            async with open_journal(limits, clock=self.clock, files=self.files) as journal:
                config = Config(data_dir=Path("/nowhere"), lease=LEASE, store=StoreConfig(url="fake:"))
                daemon = self.daemon = Daemon(
                    config, journal, [self.store.another_client()], self.clock, random.Random(self.source.random())
                )
                async with trio.open_nursery() as nursery:
                    for loop in (*daemon.partitions[0].loops(), daemon.upkeep.run, daemon.retention.run):
                        await nursery.start(loop)
                    await until(lambda: daemon.partitions[0].membership.settled)
                    await trio.sleep(KNOWN_S)
                    task_status.started()

    def kill(self) -> None:
        """As by a power cut."""
        self.files = self.files.crash(self.source)
        self.scope.cancel()

    def shown(self) -> dict[str, int]:
        return {worker.id: worker.max_jobs for worker in self.daemon.workers.list()}


async def walk(seed: int) -> str | None:
    """A random life of two daemons. What is wrong at its end; None: nothing."""
    source, clock = random.Random(seed), TrioClock()
    store = FakeStore(clock)
    places = [Place(number, store, clock, source) for number in range(2)]
    expected: dict[str, int] = {}
    image = store.image()
    async with trio.open_nursery() as nursery:
        for place in places:
            nursery.start_soon(nursery.start, place.live)
        await trio.sleep(10)
        for _ in range(STEPS):
            place, worker_id = source.choice(places), f"w{source.randrange(3)}"
            match source.choice(("say", "say", "say", "leave", "kill", "wipe", "older", "image")):
                case "say":
                    card = Card(name="w", id=worker_id, max_jobs=source.randint(1, 99))
                    await desk_workers.register(place.daemon.parts.desk, card, peer=None)
                    expected[worker_id] = card.max_jobs
                    if source.random() < 0.3:  # before anybody else heard of it
                        place.kill()
                        await nursery.start(place.live)
                case "leave":
                    try:
                        await desk_workers.unregister(place.daemon.parts.desk, worker_id)
                    except NotFound:
                        if worker_id in expected:
                            return f"lost: {worker_id} is not known in time at {place.directory}"
                    expected.pop(worker_id, None)
                case "kill":
                    place.kill()
                    await nursery.start(place.live)
                case "wipe":
                    store.wipe()
                    await trio.sleep(source.choice((0, 9)))
                case "older":
                    store.restart(image)
                    await trio.sleep(9)
                case "image":
                    image = store.image()
            await trio.sleep(KNOWN_S)
        await trio.sleep(20)
        found = [place.shown() for place in places]
        for place in places:
            place.kill()
        store.wipe()  # with nobody there: all must come from the journals
        async with trio.open_nursery() as starting:
            for place in places:
                starting.start_soon(nursery.start, place.live)
        await trio.sleep(10)
        found += [place.shown() for place in places]
        nursery.cancel_scope.cancel()
    for shown in found:
        if missing := expected.keys() - shown.keys():
            return f"lost: {missing} of {expected} where {shown} is shown"
        if risen := shown.keys() - expected.keys():
            return f"risen: {risen} where {expected} was said"
        if shown != expected:
            return f"older: {shown} where {expected} was said"
    return None


@pytest.mark.parametrize("seed", range(4))
async def test_what_was_answered_holds_everywhere(seed: int, autojump_clock: None) -> None:
    assert await walk(seed) is None


MISTAKES: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], object]]] = {
    "last-come-holds": ("older|risen|lost", lambda patch: _last_come_holds(patch)),
}


def _last_come_holds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rule, "beats", lambda self, other: True)
    owner, name, plant = in_scripts("if tonumber(revision) > (tonumber(known or nil) or 0) then", "if revision then")
    patch.setattr(owner, name, plant(getattr(owner, name)))


@pytest.mark.parametrize("name", MISTAKES)
async def test_each_mistake_is_found(name: str, autojump_clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    finds, plant = MISTAKES[name]
    plant(monkeypatch)
    for seed in range(12):
        found = await walk(seed)
        if found is not None:
            assert found.partition(":")[0] in finds.split("|"), found
            return
    pytest.fail("nobody finds it")


def test_what_holds_is_copied_when_its_segment_goes_and_what_nobody_needs_is_not() -> None:
    rules = Rules()
    older = rules.make({("worker", "a"): b"\x01", ("worker", "b"): b"\x01", ("handler", "h"): NIL}, now_ms=0, origin=1)
    newer = rules.make({("worker", "a"): b"\x02", ("worker", "c"): NIL}, now_ms=0, origin=1)
    rules.take([*older, *newer])
    assert carried(rules, [*older, *newer], 1) == [*older[1:], *newer]
    week_ms = round(DELETED_S * 1000) + 1
    assert carried(rules, [*older, *newer], week_ms) == [*older[1:], newer[0]], "only what says that a worker left goes"
