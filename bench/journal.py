"""Group commit against a sync per request, below HTTP: 64 writers of single 200-byte jobs on the same disk.

Both go through the journal itself. *Alone*: one frame per commit, each synced before the next one's write begins, as a
server with one writer and a sync per request does it. *Shared*: all who wait share one sync. How much sharing gains
depends on what a sync costs, so the same is said of a disk whose sync takes a millisecond more. And: what appending
costs in an empty journal and in one of so many jobs.
"""

import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import trio

from bench.result import Result
from jqd.domain.clock import SystemClock
from jqd.domain.record import Lane
from jqd.journal import Files, Journal, JournalConfig, open_journal

WRITERS = 64
BODY = os.urandom(260)  # a 200-byte argument and its envelope
ALONE_JOBS_MAX = 4_096  # a sync per job is slow; its rate does not depend on the number
SLOW_SYNC_S = 0.001  # a disk without a cache that survives a power cut: a fast SSD
APPENDS = 2_000  # timed at once, with one sync behind them
ROUNDS = 9  # of which the median counts


class SlowFiles(Files):
    """A disk whose sync takes a millisecond more."""

    def sync(self, fd: int) -> None:
        """See Files."""
        super().sync(fd)
        time.sleep(SLOW_SYNC_S)


def run(jobs: int) -> Result:
    """Jobs per second each way, their ratios, and the cost of an append before and after `jobs` jobs."""
    few = min(jobs, ALONE_JOBS_MAX)
    with tempfile.TemporaryDirectory(prefix=".jqd-bench-", dir=Path.cwd()) as name:
        directory = Path(name)
        sync_us = _sync_us(directory / "sync")
        alone = trio.run(_push, directory / "alone", few, True, Files())
        shared = trio.run(_push, directory / "shared", jobs, False, Files())
        slow_alone = trio.run(_push, directory / "slow-alone", few // 4, True, SlowFiles())
        slow_shared = trio.run(_push, directory / "slow-shared", jobs, False, SlowFiles())
        empty_us, full_us = trio.run(_appends, directory / "long", jobs)
    return Result(
        "journal",
        {
            "group_per_s": shared,
            "alone_per_s": alone,
            "ratio": shared / alone,
            "sync_us": sync_us,
            "group_per_s_at_1ms": slow_shared,
            "alone_per_s_at_1ms": slow_alone,
            "ratio_at_1ms": slow_shared / slow_alone,
            "append_us_empty": empty_us,
            f"append_us_after_{jobs}": full_us,
        },
    )


def _sync_us(path: Path) -> float:
    """What one write and sync of a single job costs on this disk, with nothing around it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    began = time.perf_counter()
    for _ in range(500):
        os.write(fd, BODY)
        os.fdatasync(fd)
    seconds = time.perf_counter() - began
    os.close(fd)
    return seconds / 500 * 1e6


async def _push(directory: Path, jobs: int, alone: bool, files: Files) -> float:
    # A commit takes one frame at least, and no second one beyond its bytes.
    config = JournalConfig(directory=directory)
    if alone:
        config = replace(config, commit_bytes_max=1)
    async with open_journal(config, clock=SystemClock(), files=files) as journal:

        async def writer() -> None:
            for _ in range(jobs // WRITERS):
                await journal.wsync(journal.write(Lane.JOBS, 1, BODY))

        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(WRITERS):
                nursery.start_soon(writer)
        seconds = time.perf_counter() - began
        assert not alone or journal.stats().commits == jobs // WRITERS * WRITERS
        return jobs // WRITERS * WRITERS / seconds


async def _appends(directory: Path, jobs: int) -> tuple[float, float]:
    async with open_journal(JournalConfig(directory=directory), clock=SystemClock()) as journal:
        await _append_us(journal)  # the first one warms up
        empty = statistics.median([await _append_us(journal) for _ in range(ROUNDS)])
        for number in range(jobs):
            journal.write(Lane.JOBS, 1, BODY)
            if number % 10_000 == 0:
                await journal.wsync()
        await journal.wsync()
        return empty, statistics.median([await _append_us(journal) for _ in range(ROUNDS)])


async def _append_us(journal: Journal) -> float:
    began = time.perf_counter()
    for _ in range(APPENDS):
        journal.write(Lane.JOBS, 1, BODY)
    await journal.wsync()
    return (time.perf_counter() - began) / APPENDS * 1e6
