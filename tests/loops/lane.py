"""One lane from a journal in memory to a store that loses answers."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio
import trio.testing

from jqd.domain.errors import JqdError
from jqd.domain.job import Job
from jqd.domain.record import Head, Lane, encode_jobs
from jqd.journal import Journal, JournalConfig, open_journal
from jqd.loops.ingest import Ingest, LaneRules
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles


class LossyStore(FakeStore):
    """Does what it is asked and then loses the answer, or refuses, for the calls told."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.trouble: list[JqdError | None] = []
        self.skips = 0

    async def apply_jobs(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> int | None:
        is_new = await super().apply_jobs(journal_id, start, end, jobs)
        if self.trouble and (error := self.trouble.pop(0)):
            raise error
        return is_new

    async def skip(self, journal_id: str, lane: Lane, start: int, end: int, *, gone: bool = False) -> int | None:
        self.skips += 1
        return await super().skip(journal_id, lane, start, end, gone=gone)


class Bench:
    def __init__(self, journal: Journal, store: LossyStore, clock: ManualClock) -> None:
        self.journal, self.store, self.clock = journal, store, clock
        self.applied: list[str] = []
        self.answers: list[object] = []
        settings: LaneRules[Job] = LaneRules(self._apply, lambda job: len(job.argument), self._applied)
        self.rolled_back = 0
        self.ingest: Ingest[Any] = Ingest(
            Lane.JOBS, settings, journal=journal, store=store, source=random.Random(1), rolled_back=self._roll_back
        )

    async def _apply(self, journal_id: str, start: int, end: int, jobs: Sequence[Job], /) -> str | None:
        return None if await self.store.apply_jobs(journal_id, start, end, jobs) is None else jobs[0].id

    def _applied(self, jobs: Sequence[Job], answer: object) -> None:
        self.applied.extend(job.id for job in jobs)
        self.answers.append(answer)
        assert answer in (None, jobs[0].id), "each hears what was answered of its own"

    def _roll_back(self) -> None:
        self.rolled_back += 1

    async def push(self, count: int, size: int = 3) -> list[str]:
        ids = self.journal.ids.take(count)
        jobs = msgspec.msgpack.encode([{"name": "t", "argument": b"x" * size} for _ in range(count)])
        await self.journal.wsync(self.journal.write(Lane.JOBS, count, encode_jobs(Head(ids.first, 1), jobs)))
        return ids.ids()

    async def drained(self) -> None:
        await self.ingest.wait_applied(self.journal.end)


@asynccontextmanager
async def bench(store: LossyStore | None = None) -> AsyncIterator[Bench]:
    clock = ManualClock()
    config = JournalConfig(directory=Path("/journal"))
    async with open_journal(config, clock=clock, files=MemoryFiles()) as journal, trio.open_nursery() as nursery:
        made = Bench(journal, store or LossyStore(clock), clock)
        await made.store.look(fresh=True)  # before that no lane may say anything
        yield made
        nursery.cancel_scope.cancel()


async def run(made: Bench, nursery: trio.Nursery) -> None:
    await nursery.start(made.ingest.run)
