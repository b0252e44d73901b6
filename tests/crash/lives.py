"""Lives of a daemon that dies between two calls to its store, and what it wrote to its journal."""

import random

import msgspec
import trio

from jqd.domain.job import Job
from jqd.domain.record import Head, Lane, encode_jobs
from jqd.journal import Journal
from jqd.loops.ingest import Ingest, LaneRules
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.journal.conftest import opened


class Died(Exception):
    """The process ends here."""


class MortalStore(FakeStore):
    """The daemon dies after so many calls; the store lives on."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.calls_left = 1_000
        call = self.client.call

        async def call_alive(name: str, *arguments: object) -> object:
            if not self.calls_left:
                raise Died
            self.calls_left -= 1
            return await call(name, *arguments)

        self.client.call = call_alive  # type: ignore[method-assign]


async def ingest_until(files: MemoryFiles, store: MortalStore, calls: int) -> None:
    """One life of the lane of jobs, ended before that call or when all is applied."""
    store.calls_left = calls
    settings: LaneRules[Job] = LaneRules(store.apply_jobs, lambda _: 1, lambda *_: None)
    async with opened(files) as journal:
        lane: Ingest[Job] = Ingest(Lane.JOBS, settings, journal=journal, store=store, source=random.Random(1))
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(lane.run)
                await lane.wait_applied(journal.end)
                nursery.cancel_scope.cancel()
        except* Died:
            assert calls < 1_000


async def write_jobs(journal: Journal, count: int) -> list[str]:
    ids = journal.ids.take(count)
    jobs = msgspec.msgpack.encode([{"name": "a"}] * count)
    await push_frame(journal, Lane.JOBS, count, encode_jobs(Head(ids.first, 1), jobs))
    return ids.ids()


async def push_frame(journal: Journal, lane: Lane, records: int, body: bytes) -> None:
    await journal.wsync(journal.write(lane, records, body))
