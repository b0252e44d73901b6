"""Frames whose checksums hold and that cannot be decoded: nothing is passed over, and nobody else is held up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from jqd.domain.record import Head, Lane, encode_jobs
from jqd.journal import JournalConfig, open_journal
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.loops.house import House, TrioClock, until

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
