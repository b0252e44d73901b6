"""What a waiting job costs the store's memory over its argument: the most at any number of them, for several sizes.

The server's tables double when they are full, so the cost swings with the number of jobs: it is looked at after every
five hundred. Not counted is what the server keeps for its connections, for its scripts, and for writes on their way to
the disk.
"""

import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import redis
import trio

from bench.result import Result
from jqd.domain.clock import SystemClock
from jqd.domain.job import Job
from jqd.domain.jobid import IdSource, journal_number
from jqd.store import RedisStore, StoreConfig, open_embedded, open_store

SIZES = (64, 200, 220, 1_000)  # bytes of an argument: the server rounds what it allocates
SMALL_JOBS = 100_000  # with the longest arguments, whose number is the same story
FIRST_JOBS = 5_000  # with fewer, what the store has for all of them counts
CHUNK = 500
JOBTYPE = "send-email"
JOURNALS = ("0123456789abcdef0123456789abcdef", "f" * 32)


def run(jobs: int) -> Result:
    """The most over 5,000 to `jobs` jobs, pushed by one daemon, and by two that tell the store of theirs in turns."""
    return trio.run(_run, jobs)


async def _run(jobs: int) -> Result:
    figures: dict[str, float] = {}
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix=".jqd-bench-", dir=Path.cwd()))
        url = await stack.enter_async_context(open_embedded(Path(directory)))
        client = stack.enter_context(redis.Redis.from_url(url))
        for size in SIZES:
            store = await stack.enter_async_context(open_store(StoreConfig(url, f"size-{size}")))
            count = jobs if size < SIZES[-1] else min(jobs, SMALL_JOBS)
            worst_bytes, worst_jobs, last_bytes = await _most(store, client, size, count, JOURNALS[:1])
            client.execute_command("FLUSHALL", "SYNC")
            figures |= {f"b{size}_most": worst_bytes, f"b{size}_most_at_jobs": worst_jobs, f"b{size}_last": last_bytes}
        store = await stack.enter_async_context(open_store(StoreConfig(url, "two")))
        figures["two_daemons_most"] = (await _most(store, client, SIZES[1], jobs, JOURNALS))[0]
    return Result("memory", figures)


async def _most(
    store: RedisStore, client: "redis.Redis", size: int, jobs: int, journals: tuple[str, ...]
) -> tuple[float, int, float]:
    """Bytes a job over its argument: the most, with how many jobs that was, and with all of them."""
    await store.look(fresh=True)
    await store.apply_jobs(journals[0], 0, 0, [])  # the server compiles a script when it is first called, and keeps it
    clock = SystemClock()
    sources = [IdSource(journal=journal_number(journal), salt=7, clock=clock) for journal in journals]
    argument = (b"\xc4" + bytes([size - 2]) if size < 256 else b"\xc5" + (size - 3).to_bytes(2, "big")).ljust(
        size, b"x"
    )
    assert len(argument) == size
    before = await trio.to_thread.run_sync(used_bytes, client)
    worst_bytes, worst_jobs, over_bytes = 0.0, 0, 0.0
    at = dict.fromkeys(journals, 0)
    for count in range(CHUNK * len(journals), jobs + 1, CHUNK * len(journals)):
        # All take their ids at the same time, and one after the other comes to the store with them.
        taken = [source.take(CHUNK).ids() for source in sources]
        for journal, ids in zip(journals, taken, strict=True):
            made = [Job(job_id, JOBTYPE, argument=argument, created_at_ms=clock.wall_ms()) for job_id in ids]
            await store.apply_jobs(journal, at[journal], at[journal] + CHUNK, made)
            at[journal] += CHUNK
        over_bytes = (await trio.to_thread.run_sync(used_bytes, client) - before) / count - size
        if count >= FIRST_JOBS and over_bytes > worst_bytes:
            worst_bytes, worst_jobs = over_bytes, count
    return worst_bytes, worst_jobs, over_bytes


def used_bytes(client: "redis.Redis") -> int:
    """What the server has in use for what it stores."""
    memory = client.info("memory")
    return int(memory["used_memory"]) - int(memory["mem_clients_normal"]) - int(memory["mem_aof_buffer"])
