"""Frames whose checksums hold and that cannot be decoded, and a disk that cannot be read: nothing is passed over, and
nobody else is held up."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from jqd.domain.record import Head, Lane, encode_jobs
from jqd.journal import JournalConfig, open_journal
from jqd.loops.retention.retention import EVERY_S
from jqd.store import KeptJob
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.journal.conftest import always
from tests.loops.house import House, TrioClock, until
from tests.loops.segments import finish, push, small

GOOD_JOBS = encode_jobs(Head("0" * 26, 1), msgspec.msgpack.encode([{"name": "t"}]))
BAD_JOBS = msgspec.msgpack.encode([{"first": "0" * 26, "at": 1}, [{"name": "t", "colour": "red"}]])


@asynccontextmanager
async def started_on(*frames: tuple[Lane, bytes]) -> AsyncIterator[tuple[House, FakeStore]]:
    clock, files = TrioClock(), MemoryFiles()
    config = JournalConfig(Path("/journal"), segment_bytes=1)
    async with open_journal(config, clock=clock, files=files) as journal:
        for lane, body in frames:
            await journal.wsync(journal.write(lane, 1, body))
    store = FakeStore(clock)
    async with open_journal(config, clock=clock, files=files) as journal:
        yield House(journal, store, clock), store


async def test_one_of_jobs_stops_its_lane_and_is_said(autojump_clock: None) -> None:
    frames = [(Lane.JOBS, GOOD_JOBS), (Lane.JOBS, BAD_JOBS), (Lane.JOBS, GOOD_JOBS)]
    async with started_on(*frames) as (here, store), trio.open_nursery() as nursery:
        await here.join(nursery)
        lane = here.lanes[Lane.JOBS]
        await until(lambda: lane.backoff.reason is not None)
        assert "colour" in str(lane.backoff.reason)
        assert ".jqd, byte 8192" in str(lane.backoff.reason)
        await trio.sleep(60)
        assert (await store.stats()).waiting == 1, "all before it is there, and nothing behind it"
        assert lane.position == 44 + len(GOOD_JOBS)
        nursery.cancel_scope.cancel()


def disk_of(here: House) -> MemoryFiles:
    disk = here.journal._files
    assert isinstance(disk, MemoryFiles)
    return disk


async def test_a_start_on_a_disk_that_cannot_be_read_says_so_and_goes_on_with_the_disk(autojump_clock: None) -> None:
    """Also where all that cannot be read was applied long ago, or belongs to another lane."""
    async with started_on((Lane.JOBS, GOOD_JOBS)) as (here, _), trio.open_nursery() as nursery:
        disk_of(here).fail = always(errno.EIO, "read")
        await here.join(nursery)
        await until(lambda: here.barrier.backoff.reason is not None)
        assert "cannot be read in /journal" in str(here.barrier.backoff.reason)
        disk_of(here).fail = always(errno.EIO)
        await here.wait_claimable()
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        nursery.cancel_scope.cancel()


async def test_retention_complains_of_a_disk_that_cannot_be_read_and_goes_on_to_tell_the_others(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a daemon that reports nothing for a day the others keep no endings."""
    async with small() as (here, retention), trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        await push(here, 60)
        await finish(here, owner, set())
        reports, real = list[str](), here.store.save_kept

        async def save_kept(*given: Any) -> KeptJob:
            reports.append(given[0])
            return await real(*given)

        monkeypatch.setattr(here.store, "save_kept", save_kept)
        disk_of(here).fail = always(errno.EIO, "read")
        await nursery.start(retention.run)
        await trio.sleep(10 * EVERY_S)
        assert here.journal.start == 0
        assert "cannot be read in /j" in str(retention.standstill.complaint)
        assert len(reports) > 2
        disk_of(here).fail = always(errno.EIO)
        await until(lambda: here.journal.stats().segments == 1)
        assert retention.standstill.complaint is None
        nursery.cancel_scope.cancel()
