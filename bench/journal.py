"""Group commit against a sync per request, below HTTP: 64 writers of single 200-byte jobs on the same disk."""

import os
import tempfile
import time
from pathlib import Path

import trio

from bench.result import Result
from jqd.clock import SystemClock
from jqd.journal import JournalConfig, open_journal
from jqd.record import Lane

WRITERS = 64
BODY = os.urandom(260)  # a 200-byte argument and its envelope
ALONE_JOBS_MAX = 2_000  # a sync per job is slow; its rate does not depend on the number


def run(jobs: int) -> Result:
    """Jobs per second each way, and their ratio."""
    with tempfile.TemporaryDirectory(prefix="jqd-bench-", dir=Path.cwd()) as directory:
        alone = _sync_per_request(Path(directory) / "alone", min(jobs, ALONE_JOBS_MAX))
        shared = trio.run(_group_commit, Path(directory) / "shared", jobs)
    return Result("journal", {"group_per_s": shared, "alone_per_s": alone, "ratio": shared / alone})


def _sync_per_request(path: Path, jobs: int) -> float:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    began = time.perf_counter()
    for _ in range(jobs):
        os.write(fd, BODY)
        os.fdatasync(fd)
    seconds = time.perf_counter() - began
    os.close(fd)
    return jobs / seconds


async def _group_commit(directory: Path, jobs: int) -> float:
    async with open_journal(JournalConfig(directory=directory), clock=SystemClock()) as journal:

        async def writer() -> None:
            for _ in range(jobs // WRITERS):
                await journal.wsync(journal.write(Lane.JOBS, 1, BODY))

        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for _ in range(WRITERS):
                nursery.start_soon(writer)
        return jobs // WRITERS * WRITERS / (time.perf_counter() - began)
