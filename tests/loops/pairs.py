"""One daemon over two partitions, without a runner that works."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from jqd.config import Config
from jqd.daemon import Daemon
from jqd.domain.jobid import homes_of, partition_of_name
from jqd.domain.lease import LeaseConfig
from jqd.domain.record import Head, Lane, encode_cancels, encode_jobs
from jqd.journal import Journal, JournalConfig, open_journal
from jqd.store import StoreConfig
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.loops.house import TrioClock, until

HERE, THERE = "cube", "square"  # jobtypes of partition 0 and of partition 1


BOTH = frozenset((0, 1))


class Pair:
    """The daemon, its journal, and the two stores."""

    def __init__(self, journal: Journal, clock: TrioClock) -> None:
        assert [partition_of_name(name, 2) for name in (HERE, THERE)] == [0, 1]
        self.journal = journal
        self.stores = [FakeStore(clock), FakeStore(clock)]
        config = Config(data_dir=Path("/nowhere"), lease=LeaseConfig(), store=StoreConfig(url="fake:", partitions=2))
        self.daemon = Daemon(config, journal, self.stores, clock, random.Random(1))
        self.control = self.daemon.control

    async def push(self, *names: str, **fields: Any) -> list[str]:
        """One frame. `fields`: what else each job has."""
        ids = self.journal.ids.take(len(names), homes_of(names))
        body = msgspec.msgpack.encode([{"name": name, "argument": "x" * 200, **fields} for name in names])
        head = Head(ids.first, 1, homes=ids.homes)
        await self.journal.wsync(self.journal.write(Lane.JOBS, len(names), encode_jobs(head, body)))
        return ids.ids()

    async def cancel(self, *job_ids: str) -> None:
        await self.journal.wsync(self.journal.write(Lane.CANCELS, len(job_ids), encode_cancels(job_ids)))

    async def start(self, nursery: trio.Nursery) -> None:
        for partition in self.daemon.partitions:
            await partition.start(nursery, partition.loops())
        await nursery.start(self.daemon.dispatch.run)
        await nursery.start(self.daemon.settings_upkeep.run)
        await until(lambda: self.control.settled(BOTH))


@asynccontextmanager
async def pair(**limits: Any) -> AsyncIterator[Pair]:
    clock = TrioClock()
    config = JournalConfig(directory=Path("/j"), **limits)
    async with open_journal(config, clock=clock, files=MemoryFiles()) as journal:
        yield Pair(journal, clock)
