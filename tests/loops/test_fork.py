"""Copies of a journal: how they are told, and what the old id had applied is marked for the new one."""

import copy
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from jqd.domain.errors import JournalForked
from jqd.domain.job import State
from jqd.domain.record import Lane
from jqd.journal import JournalConfig, open_journal
from jqd.loops.systemd import BEAT_S, Manager
from jqd.serve import FORK_RETRY_S, _fork
from jqd.testing.store import FakeStore
from tests.directories import short_directory
from tests.harness.files import MemoryFiles
from tests.loops.barred import push, state
from tests.loops.house import House, TrioClock, house
from tests.store.job_places import places_of


def daemon_of(here: House) -> Any:
    """As much of a daemon as is asked."""
    partitions = [SimpleNamespace(store=here.store, lanes=here.lanes)]
    return SimpleNamespace(journal=here.journal, partitions=partitions, config=SimpleNamespace(manager=Manager()))


async def test_the_new_id_stands_where_the_old_one_did(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.wait_claimable()
        await push(here, 3)
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        new = await _fork(daemon_of(here), trio.Event())
        assert new is not None
        assert new.hex() != here.journal.journal_id
        applied = await here.store.applied(new.hex())
        assert applied == await here.store.applied(here.journal.journal_id)
        assert applied[Lane.JOBS] > 0
        nursery.cancel_scope.cancel()


async def test_lanes_that_never_asked_stand_where_this_life_began_at_most(autojump_clock: None) -> None:
    async with house() as here:
        # The store has applied more of this journal than the directory ever held: an older copy.
        await here.store.look(fresh=True)
        await here.store.skip(here.journal.journal_id, Lane.JOBS, 0, 5_000)
        new = await _fork(daemon_of(here), trio.Event())
        assert new is not None
        assert await here.store.applied(new.hex()) == dict.fromkeys(Lane, here.journal.opened_at)


async def test_a_partition_that_is_away_is_waited_for_under_one_new_id(autojump_clock: None) -> None:
    """A life that was begun meanwhile would push the mark over what it took: those jobs would count as applied."""
    async with house() as here, trio.open_nursery() as nursery:
        other = FakeStore(here.clock)
        both = daemon_of(here)
        both.partitions.append(SimpleNamespace(store=other, lanes=here.lanes))
        await push(here, 3)
        marks = here.journal.opened_at
        for store in (here.store, other):
            await store.look(fresh=True)
            await store.skip(here.journal.journal_id, Lane.JOBS, 0, 5_000)
        other.away = "cable"
        told: list[bytes | None] = []

        async def fork() -> None:
            told.append(await _fork(both, trio.Event()))

        nursery.start_soon(fork)
        await trio.sleep(10 * FORK_RETRY_S)
        assert told == []
        other.away = None
        await trio.sleep(2 * FORK_RETRY_S)
        (new,) = told
        assert new is not None
        for store in (here.store, other):
            assert await store.applied(new.hex()) == dict.fromkeys(Lane, marks)
        assert len(places_of(here.store).journals()) <= 2, "no other id was begun meanwhile"


async def test_whoever_waits_for_a_partition_says_that_it_goes_on(autojump_clock: None) -> None:
    with short_directory() as base, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(base / "notify"))
        async with house() as here, trio.open_nursery() as nursery:
            here.store.away = "cable"
            daemon, stop = daemon_of(here), trio.Event()
            daemon.config.manager = Manager(str(base / "notify"), watchdog_s=30.0)
            nursery.start_soon(_fork, daemon, stop)
            await trio.sleep(3 * BEAT_S)
            stop.set()
        for _ in range(3):
            assert manager.recv(100) == b"EXTEND_TIMEOUT_USEC=30000000\nSTATUS=its journal gets a new id\nWATCHDOG=1"


async def test_who_is_told_to_stop_does_not_wait_for_a_partition(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.store.away = "cable"
        stop = trio.Event()
        told: list[bytes | None] = []

        async def fork() -> None:
            told.append(await _fork(daemon_of(here), stop))

        nursery.start_soon(fork)
        await trio.sleep(3)
        assert told == []
        stop.set()
        await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert told == [None]


# ------------------------------------------------------------ copies of a journal


@asynccontextmanager
async def copied() -> AsyncIterator[tuple[FakeStore, TrioClock, MemoryFiles, MemoryFiles]]:
    """A store, and a journal directory that was copied while its daemon was down."""
    clock, disk = TrioClock(), MemoryFiles()
    store = FakeStore(clock)
    config = JournalConfig(directory=Path("/journal"))
    async with open_journal(config, clock=clock, files=disk) as journal, trio.open_nursery() as nursery:
        here = House(journal, store, clock)
        await push(here, 3)
        await here.join(nursery)
        await here.wait_claimable()
        await here.lanes[Lane.JOBS].wait_caught_up(journal.end)
        nursery.cancel_scope.cancel()
    yield store, clock, disk, copy.deepcopy(disk)


async def forks(*houses: House) -> bool:
    """Whether one of these daemons, joining one after the other, finds that its journal has a double."""
    found = False
    with trio.move_on_after(60):
        try:
            async with trio.open_nursery() as nursery:
                for here in houses:
                    await here.join(nursery)
                    await trio.sleep(5)
                await trio.sleep_forever()
        except* JournalForked:
            found = True
    return found


async def test_a_directory_restored_from_an_older_copy_is_told_by_the_position(autojump_clock: None) -> None:
    config = JournalConfig(directory=Path("/journal"))
    async with copied() as (store, clock, disk, older):
        async with open_journal(config, clock=clock, files=disk) as journal, trio.open_nursery() as nursery:
            here = House(journal, store, clock)
            await push(here, 2)
            await here.join(nursery)
            await here.lanes[Lane.JOBS].wait_caught_up(journal.end)
            nursery.cancel_scope.cancel()
        async with open_journal(config, clock=clock, files=older) as journal:
            here = House(journal, store, clock)
            # Enough pushes to reach beyond what the store has applied: they must not count as applied.
            await push(here, 50)
            assert await forks(here)


async def test_two_living_copies_are_told_by_the_seat_or_the_position(autojump_clock: None) -> None:
    config = JournalConfig(directory=Path("/journal"))
    async with (
        copied() as (store, clock, disk, twin),
        open_journal(config, clock=clock, files=disk) as one,
        open_journal(config, clock=clock, files=twin) as two,
    ):
        first, second = House(one, store, clock), House(two, store.another_client(), clock)
        assert await forks(first, second)


@pytest.mark.parametrize(("jobs", "its_jobs"), [(1, 1), (40, 1), (1, 40)])
async def test_what_a_copy_pushes_first_is_not_taken_for_ours(autojump_clock: None, jobs: int, its_jobs: int) -> None:
    """Its frame is as long as ours, or ends within it, or behind it: ours is not applied, and comes under a new id."""
    config = JournalConfig(directory=Path("/journal"))
    async with copied() as (store, clock, disk, twin):
        async with (
            open_journal(config, clock=clock, files=disk) as one,
            open_journal(config, clock=clock, files=twin) as two,
        ):
            first, second = House(one, store, clock), House(two, store.another_client(), clock)
            pushed = list[str]()
            try:
                async with trio.open_nursery() as nursery:
                    await first.join(nursery)
                    await trio.sleep(20)
                    await second.join(nursery)
                    await trio.sleep(0.3)
                    await push(second, its_jobs)
                    await trio.sleep(0.1)
                    pushed = await push(first, jobs)
                    await trio.sleep(60)
            except* JournalForked:
                pass
            assert pushed
            new = await _fork(daemon_of(first), trio.Event())
        async with (
            open_journal(config, clock=clock, files=disk, journal_id=new) as journal,
            trio.open_nursery() as nursery,
        ):
            here = House(journal, store, clock, "d2")
            await here.join(nursery)
            await here.lanes[Lane.JOBS].wait_caught_up(journal.end)
            assert [await state(here, job_id) for job_id in pushed] == [State.WAITING] * jobs
            nursery.cancel_scope.cancel()
