"""A store whose server counts what it does in each call."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from jqd.domain.jobid import IdSource
from jqd.store import CALL_JOBS_MAX, StoreConfig, open_store
from jqd.testing.clock import ManualClock
from tests.contract.bench import StoreBench
from tests.valkey import Valkey

FEW, MANY = 200, 5_000  # jobs
COMMANDS_PER_JOB = 16  # inside a script; giving one back takes 13


class Count:
    """Commands that the server did since the last look."""

    def __init__(self, client: "redis.Redis") -> None:
        self._client = client
        self._before: dict[str, int] = {}
        self.scripts = self.inside = 0
        self.look()

    def look(self) -> "Count":
        """Count again."""
        stats = {name: row["calls"] for name, row in self._client.info("commandstats").items()}
        done = {name: calls - self._before.get(name, 0) for name, calls in stats.items()}
        self._before = stats
        self.scripts = done.get("cmdstat_fcall", 0)
        ours = ("cmdstat_fcall", "cmdstat_info", "cmdstat_function|load")
        self.inside = sum(calls for name, calls in done.items() if name not in ours)
        return self


@pytest.fixture
async def bench(fresh_valkey: Valkey) -> AsyncIterator[StoreBench]:
    """The real store on a clock that the test moves."""
    clock = ManualClock()
    config = StoreConfig(url=fresh_valkey.url, ended_keep_jobs=0, ended_keep_s=1)
    async with open_store(config, now_ms=clock.wall_ms) as store:
        await store.look(fresh=True)
        bench = StoreBench(store, clock)
        bench.ids = IdSource(journal=bench.ids.journal, salt=7, clock=clock)
        yield bench


@pytest.fixture
def count(bench: StoreBench, client: "redis.Redis") -> Count:
    """Of all that follows."""
    return Count(client)


async def fill(bench: StoreBench, jobs: int, **fields: Any) -> None:
    """So many jobs, as few calls as are allowed."""
    for start in range(0, jobs, CALL_JOBS_MAX):
        await bench.add(*(bench.make(**fields) for _ in range(min(CALL_JOBS_MAX, jobs - start))))
