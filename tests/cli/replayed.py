"""A journal of a machine that is gone, and what is in the store when it was brought there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
import trio

from jqd.cli import run
from jqd.domain.job import Fate, State
from jqd.domain.jobid import ALPHABET
from jqd.store import JobView, StoreConfig, open_store
from tests.cli.books import AT_MS, Batch, Ids, cancels, outcome, outcomes, write

FAILED: dict[str, Any] = {"error": msgspec.msgpack.encode("boom"), "message": "boom", "status": 500}


class Told:
    """A journal of a machine that is gone, and what became of its jobs."""

    def __init__(self, data_dir: Path, homes: str = ALPHABET[0]) -> None:
        ids = Ids(homes=homes)
        self.jobs = ids.jobs(*[{"name": "t", "argument": number} for number in range(8)])
        self.waits, self.done, self.failed, self.dead, self.again, self.twice, self.cancelled, self.late = self.jobs.ids
        self.stranger = Ids(number=9).jobs({"name": "t"})  # another machine's job, that failed here
        later = AT_MS + 10 * 365 * 86_400_000
        self.dated = ids.jobs({"name": "u", "priority": 4}, eligible={0: later}, copied=(0, 0))
        self.batches: list[Batch] = [
            self.jobs,
            cancels(self.cancelled, self.late),
            outcomes(
                outcome(self.done, Fate.SUCCEEDED, keep_result=True, result=msgspec.msgpack.encode(42)),
                outcome(self.failed, Fate.FAILED, **FAILED),
                outcome(self.again, Fate.RETRY, delay_ms=3_600_000, **FAILED),
                outcome(self.twice, Fate.RETRY, **FAILED),
                outcome(self.stranger.ids[0], Fate.RETRY, **FAILED),
            ),
            outcomes(
                outcome(self.dead, Fate.RETRY, **FAILED),
                outcome(self.dead, Fate.DEAD, attempt=2, fence=2, **FAILED),
                outcome(self.twice, Fate.RETRY, attempt=2, fence=2, **FAILED),
                outcome(self.late, Fate.SUCCEEDED),
            ),
            self.dated,
        ]
        self.directory = write(data_dir, *self.batches, segment_bytes=600)

    def states(self, url: str) -> dict[str, State | None]:
        """Where each job stands in the store."""
        found = views(url, [*self.jobs.ids, *self.dated.ids])
        return {job_id: None if view is None else view.state for job_id, view in found.items()}

    def expected(self) -> dict[str, State | None]:
        """Where it should."""
        return {
            self.waits: State.WAITING,
            self.done: State.SUCCEEDED,
            self.failed: State.FAILED,
            self.dead: State.FAILED,
            self.again: State.RETRYING,
            self.twice: State.RETRYING,
            self.cancelled: State.CANCELLED,
            self.late: State.SUCCEEDED,
            self.dated.ids[0]: State.SCHEDULED,
        }


def views(config: StoreConfig | str, job_ids: list[str]) -> dict[str, JobView | None]:
    async def ask() -> dict[str, JobView | None]:
        async with open_store(StoreConfig(url=config) if isinstance(config, str) else config) as store:
            found = {job_id: await store.get_job(job_id) for job_id in job_ids}
            return {job_id: view if isinstance(view, JobView) else None for job_id, view in found.items()}

    return trio.run(ask)


def contents(url: str) -> dict[bytes, Any]:
    """All keys but the positions, which name the journals that were made up."""
    with redis.Redis.from_url(url) as client:
        found: dict[bytes, Any] = {}
        for key in client.scan_iter():
            if not key.endswith((b":applied", b":life")):
                read: dict[bytes, Callable[[bytes], Any]] = {
                    b"hash": client.hgetall,
                    b"string": client.get,
                    b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
                }
                found[key] = read[client.type(key)](key)
        return found


def replayed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    """What the command says it did."""
    assert run(["journal", "replay", "-o", "json", *words]) == code
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


class Watched:
    """A store whose calls are noted."""

    def __init__(self, store: Any, calls: list[tuple[str, int, int]]) -> None:
        self._store, self._calls = store, calls

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **options: Any) -> Any:
            if name.startswith("apply_"):
                self._calls.append((name, len(arguments[3]), arguments[1]))
            return await getattr(self._store, name)(*arguments, **options)

        return call


def into(url: str, work: Callable[[Any], Any]) -> Any:
    """Do something with a store."""

    async def run_it() -> Any:
        async with open_store(StoreConfig(url=url)) as store:
            return await work(store)

    return trio.run(run_it)


def watched(store: Any, calls: list[tuple[str, int, int]]) -> list[Any]:
    """The only partition, its calls noted."""
    return [Watched(store, calls)]
