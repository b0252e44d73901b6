"""Rules between daemons: who asks for them, where they stand, what of them is forgotten. The simulation walks them."""

import io
import random
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio

from jqd.config import Config
from jqd.daemon import Daemon
from jqd.domain.errors import JournalRefused, NotFound, NotYet
from jqd.domain.lease import LeaseConfig
from jqd.domain.record import Lane, encode_rules
from jqd.domain.settings import NIL, Setting, SettingTable
from jqd.journal import JournalConfig, open_journal
from jqd.loops import settings as settings_module
from jqd.loops.settings import (
    BREAK_S,
    DELETED_S,
    ENDED_S,
    FIRED_S,
    SettingsSync,
    carried,
    find_unneeded,
)
from jqd.runner import WorkerRegistry, WorkerSpec
from jqd.runner.handler import Handler
from jqd.runner.worker_health import VIEW
from jqd.service import leases
from jqd.service import settings as service_settings
from jqd.service import workers as service_workers
from jqd.store import StoreConfig
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.journal.conftest import opened
from tests.loops.house import TrioClock, until
from tests.loops.settings_house import House, Member, silent_for_long

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
                    for loop in (*daemon.partitions[0].loops(), daemon.settings_upkeep.run, daemon.retention.run):
                        await nursery.start(loop)
                    await until(lambda: daemon.partitions[0].membership.settled)
                    await trio.sleep(KNOWN_S)
                    task_status.started()

    def kill(self) -> None:
        """As by a power cut."""
        self.files = self.files.crash(self.source)
        self.scope.cancel()

    def shown(self) -> dict[str, int]:
        workers = self.daemon.workers
        registered = {worker.id: worker.max_jobs for worker in workers.list() if not worker.handler}
        return registered | {name: each.versions[-1].options.max_jobs for name, each in workers.handlers().items()}


async def test_what_one_said_stands_in_the_journals_of_all_and_nobody_says_it_anew(autojump_clock: None) -> None:
    source, clock = random.Random(1), TrioClock()
    store = FakeStore(clock)
    one, two = (Place(number, store, clock, source) for number in range(2))
    async with trio.open_nursery() as nursery:
        for place in (one, two):
            await nursery.start(place.live)
        await service_workers.register(one.daemon.parts.services, WorkerSpec(name="w", id="w", max_jobs=7), peer=None)
        await trio.sleep(KNOWN_S)
        setting = two.daemon.workers.settings.get("worker", "w")
        one.kill()
        store.wipe()
        two.kill()
        await nursery.start(two.live)
        assert two.shown() == {"w": 7}, "it stood in the other's journal only"
        end = two.daemon.journal.end
        two.daemon.partitions[0].settings_sync.unknown.add("w")
        await trio.sleep(KNOWN_S)
        assert two.daemon.journal.end > end, "the store was not told again"
        assert two.daemon.workers.settings.get("worker", "w") == setting, "a new revision beats a deletion at the other"
        nursery.cancel_scope.cancel()


async def test_who_stood_still_while_nothing_was_waited_for_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon says by itself what it found out: an error there would end it."""
    services: Any = SimpleNamespace(workers=SimpleNamespace(settings=SettingTable(loading=True)))
    monkeypatch.setattr(service_settings, "LOADED_S", 0.0)
    with pytest.raises(NotYet):
        await service_settings.wait_loaded(services)
    services.workers.settings.synced.set()
    await service_settings.wait_loaded(services)


async def test_a_journal_that_refuses_while_settings_are_tidied_ends_no_daemon(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, tried = TrioClock(), list[float]()
    place = Place(0, FakeStore(clock), clock, random.Random(1))
    monkeypatch.setattr(settings_module, "TIDY_S", 1.0)

    async def tidy() -> None:
        tried.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        raise JournalRefused("the disk is full", full=True)

    async with trio.open_nursery() as nursery:
        await nursery.start(place.live)
        monkeypatch.setattr(place.daemon.settings_upkeep, "tidy", tidy)
        await until(lambda: len(tried) > 1)
        nursery.cancel_scope.cancel()


async def test_a_tidy_that_was_refused_is_tried_again_as_soon_as_the_loop_does(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, tried = TrioClock(), list[float]()
    place = Place(0, FakeStore(clock), clock, random.Random(1))

    async def tidy() -> None:
        tried.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if len(tried) == 1:
            raise JournalRefused("the disk is full", full=True)

    async with trio.open_nursery() as nursery:
        await nursery.start(place.live)
        monkeypatch.setattr(place.daemon.settings_upkeep, "tidy", tidy)
        await trio.sleep(3 * settings_module.TIDY_S)
        nursery.cancel_scope.cancel()
    assert tried[1] - tried[0] < 5
    assert tried[2] - tried[1] >= settings_module.TIDY_S, "one that was done is not done again before its time"


async def test_however_many_ask_for_what_there_is_not_the_store_is_asked_ten_times_a_second(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked, waited_s = TrioClock(), [0.0], list[float]()
    store = FakeStore(clock)
    one, two = (Place(number, store, clock, random.Random(number)) for number in range(2))
    real = SettingsSync._ask

    async def ask(self: SettingsSync) -> bool:
        if self is two.daemon.partitions[0].settings_sync:
            asked.append(trio.current_time())
        return await real(self)

    async def look(worker_id: str) -> None:
        began_s = trio.current_time()
        with pytest.raises(NotFound):
            await leases.pull(two.daemon.parts.services, worker_id, 1, 0.0)
        waited_s.append(trio.current_time() - began_s)

    async with trio.open_nursery() as nursery:
        for place in (one, two):
            await nursery.start(place.live)
        monkeypatch.setattr(SettingsSync, "_ask", ask)
        began_s = trio.current_time()
        async with trio.open_nursery() as lookers:
            for number in range(500):
                lookers.start_soon(look, f"nobody{number}")
                await trio.sleep(0.004)
        assert sum(at_s >= began_s for at_s in asked) <= 10 * (trio.current_time() - began_s) + 2
        assert max(waited_s) < 0.5
        store.away = "cable pulled"
        await look("nobody")
        assert waited_s[-1] <= 1.01
        nursery.cancel_scope.cancel()


async def test_what_another_fired_while_a_schedule_was_deleted_goes_a_week_later() -> None:
    settings, week_ms = SettingTable(), round(FIRED_S * 1000)
    workers = WorkerRegistry(SettingTable(), clock=ManualClock())
    dates = {("fired", "s"): b"\x01", ("fired", "other"): b"\x01", ("schedule", "other"): b"\x01"}
    settings.take(settings.make({("schedule", "s"): NIL, **dates}, now_ms=0, origin=1))
    assert await find_unneeded(settings, workers, week_ms) == []
    assert [setting.key for setting in await find_unneeded(settings, workers, week_ms + 1)] == [("fired", "s")]


async def test_what_is_of_no_use_goes_from_all_partitions_and_from_here_when_it_went_there() -> None:
    clock = ManualClock()
    stores = [FakeStore(clock), FakeStore(clock)]
    house = House(clock, stores)
    await silent_for_long(clock, stores, [house])
    house.follows[1]._life = None  # that partition is away
    await house.upkeep.tidy()
    assert house.workers.settings.get("worker", "w") is not None, "nobody could drop it there any more"
    await house.ask()
    await house.upkeep.tidy()
    assert [(await store.follow_settings(0, 0)).settings for store in stores] == [[], []]
    assert house.workers.settings.get("worker", "w") is None


async def test_what_the_store_keeps_because_its_worker_spoke_elsewhere_stays_here() -> None:
    clock = ManualClock()
    store = FakeStore(clock)
    houses = [House(clock, [store]) for _ in range(2)]
    await silent_for_long(clock, [store], houses)
    await store.follow_settings(0, 0, ["w"])  # it speaks at a third daemon, before the first one hears of that
    await houses[0].upkeep.tidy()
    for house in houses:
        await house.ask()
        assert house.workers.get("w") is not None


async def test_what_others_said_and_said_otherwise_since_is_not_kept_for_ever() -> None:
    """Nothing of it holds any more, so there is nothing to write either: without a journal, that would be an error."""
    clock = ManualClock()
    store = FakeStore(clock)
    house = House(clock, [store])
    await store.look(fresh=True)
    for revision in (1, 2):
        await store.apply_settings("ab" * 16, 5 * revision - 5, 5 * revision, [Setting("worker", "w", revision, 0)])
        await house.ask()
    house.workers.settings.take([Setting("worker", "w", 3, 0)])
    assert len(house.follows[0].learned) == 1
    await house.upkeep._keep()
    assert house.follows[0].learned == {}


def held_items(part: object, seen: set[int]) -> int:
    """How many items are in the containers that a part of the daemon has, and in those of its own parts. A store's and
    a journal's are not counted."""
    if id(part) in seen or isinstance(part, FakeStore | MemoryFiles):
        return 0
    seen.add(id(part))
    if isinstance(part, dict | list | set | deque):
        inner: list[object] = [*part.values()] if isinstance(part, dict) else [*part]
        return len(part) + sum(held_items(each, seen) for each in inner)
    is_ours = type(part).__module__.startswith("jqd.") and hasattr(part, "__dict__")
    return sum(held_items(each, seen) for each in vars(part).values()) if is_ours else 0


@pytest.mark.parametrize("kind", ["worker", "schedule", VIEW])
@pytest.mark.parametrize("refuses", ["journal", "farewells", "reading"])
async def test_settings_that_change_while_the_journal_takes_nothing_take_no_more_memory_with_each_change(
    kind: str, refuses: str
) -> None:
    """Views of other daemons, four a second of 30 KB each, were kept until the disk had room."""
    clock = ManualClock()
    house = House(clock, [store := FakeStore(clock)])
    await store.look(fresh=True)

    def refuse(*_: object) -> Any:
        raise JournalRefused("the disk is full", full=True)

    async def refuse_later(_: object) -> None:
        await trio.lowlevel.checkpoint()
        refuse()

    house.upkeep._journal = SimpleNamespace(write=refuse, wsync=refuse)  # type: ignore[assignment]
    if refuses == "farewells":
        house.upkeep._save = refuse_later
    house.upkeep._tidy_at_s = clock.mono_s() + 1_000
    held = list[int]()
    await store.apply_settings("ab" * 16, 0, 5, [Setting("k", "other", 1, 1, msgspec.Raw(b"\x01"))])
    for revision in range(2, 60):
        setting = Setting(kind, "theirs", revision, 0, msgspec.Raw(NIL))
        if kind == VIEW:
            await store.follow_settings(0, 0, [], [setting])
        else:
            await store.apply_settings("ab" * 16, 5 * revision - 5, 5 * revision, [setting])
        await house.ask()
        if refuses != "reading":  # else `_read_own` waits for the disk, and nothing is kept before
            with suppress(JournalRefused):
                await house.upkeep._keep_up()
        held.append(held_items([house.follows, house.upkeep], set()))
    assert house.workers.settings.get(kind, "theirs") == setting
    assert held[-1] <= held[9]


async def test_what_holds_is_copied_when_its_segment_goes_and_what_nobody_needs_is_not() -> None:
    settings = SettingTable()
    over = bytes(msgspec.msgpack.encode(Handler(3)))
    older = settings.make(
        {("worker", "a"): b"\x01", ("worker", "b"): b"\x01", ("handler", "h"): over}, now_ms=0, origin=1
    )
    newer = settings.make({("worker", "a"): b"\x02", ("worker", "c"): NIL, ("options", "c"): NIL}, now_ms=0, origin=1)
    frame = [*older, *newer]
    settings.take(frame)
    assert carried(settings, frame, 1) == [*older[1:], *newer]
    week_ms = round(DELETED_S * 1000) + 1
    assert carried(settings, frame, week_ms) == [*older[1:], newer[0], newer[2]], (
        "only what says that a worker left goes"
    )
    assert carried(settings, frame, round(ENDED_S * 1000) + 1) == [older[1], newer[0]]
    workers = WorkerRegistry(SettingTable(), clock=ManualClock())
    assert await find_unneeded(settings, workers, week_ms) == [newer[1]]


async def test_of_what_is_over_only_so_many_are_kept_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "DELETED_MAX", 2)
    monkeypatch.setattr(settings_module, "SILENT_MAX", 1)
    clock = ManualClock()
    settings = SettingTable()
    workers = WorkerRegistry(settings, clock=clock)
    settings.take(settings.make({("schedule", "first"): NIL}, now_ms=clock.wall_ms(), origin=1))  # of another kind
    for number in range(4):
        settings.take(settings.make({("worker", f"left{number}"): NIL}, now_ms=clock.wall_ms(), origin=1))
        workers.register(WorkerSpec(name="w", id=f"silent{number}", max_jobs=1, ttl_s=1.0))
        clock.advance(5.0)
    assert workers.list() == []
    assert [setting.name for setting in await find_unneeded(settings, workers, clock.wall_ms())] == [
        *("silent0", "silent1", "silent2"),
        *("left0", "left1"),
    ]


async def test_a_store_is_steady_since_it_answers_without_a_break_in_one_life() -> None:
    clock = ManualClock()
    store = FakeStore(clock)
    await store.look(fresh=True)
    house = House(clock, [store])
    follows: list[Any] = [*house.follows]
    (follow,) = follows
    assert [one.steady_since_s for one in follows] == [None]
    await house.ask()
    first_s = follow.steady_since_s
    for _ in range(20):
        clock.advance(BREAK_S)
        await house.ask()
    assert follow.steady_since_s == first_s == clock.boot_s() - 20 * BREAK_S
    clock.advance(BREAK_S + 1)
    await house.ask()
    assert follow.steady_since_s == clock.boot_s(), "nobody knows what it said meanwhile"
    clock.advance(1)
    follow._membership.life = "a.c"
    await house.ask()
    assert follow.steady_since_s == clock.boot_s(), "it may have lost what was on its way"


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("seen", ["settled", "emptied", "not looked at"])
async def test_settings_that_the_disk_does_not_give_are_waited_for_until_a_store_has_sent_its_own(
    logged: io.StringIO, is_there: bool, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other segments are known: a token may have been revoked there. A store that was emptied sent nothing,
    and that counted as its own; one that nobody had looked at may be another one."""
    monkeypatch.setattr("jqd.journal.journal.RANGE_S", 0.05)
    monkeypatch.setattr(settings_module, "FOLLOW_S", 0.05)
    store, gives = FakeStore(ManualClock()), is_there and seen == "settled"
    house, files = House(ManualClock(), [store.another_client()]), MemoryFiles()
    table, real = house.workers.settings, files.open
    table.tried, table.loaded, table.synced = (trio.Event() for _ in range(3))
    await store.look(fresh=seen == "settled")
    await store.follow_settings(0, 0, [], [Setting("k", "theirs", 1, 1)])
    if seen != "not looked at":
        assert (await house.follows[0]._store.look(fresh=False)).settled == (seen == "settled")
    monkeypatch.setattr(Member, "life", None)  # recovery needs the disk before it joins
    async with opened(files, segment_bytes=50) as journal, trio.open_nursery() as nursery:
        house.upkeep._journal = journal
        for name in "abcd":
            await journal.wsync(journal.write(Lane.RULES, 1, encode_rules([Setting("k", name * 60, 1, 1)])))
        bad = [segment.path for segment in journal.segments[:2]]
        monkeypatch.setattr(files, "open", lambda path: real(Path("/gone") if path in bad else path))
        await nursery.start(house.upkeep.run)
        await nursery.start(house.follows[0].run) if is_there else None
        await until(lambda: table.get("k", "d" * 60) is not None)
        with trio.move_on_after(60 if gives else 0.5):
            await table.loaded.wait()
        assert table.loaded.is_set() == gives
        assert [name for name in "abcd" if table.get("k", name * 60) is not None] == ["c", "d"]
        assert logged.getvalue().count("settings.unreadable") == 1
        assert (table.get("k", "theirs") is not None) == (is_there and seen != "not looked at")
        monkeypatch.undo()
        await table.loaded.wait()
        assert gives or all(table.get("k", name * 60) is not None for name in "abcd")
        await until(table.synced.is_set) if is_there and seen != "not looked at" else None
        nursery.cancel_scope.cancel()
