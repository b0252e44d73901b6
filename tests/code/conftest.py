"""Real contexts in real processes, without a daemon."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import trio
from msgspec import Raw

from jqd.code.batch import Batch, LeasedJob
from jqd.code.config import CodeConfig, Limits
from jqd.code.definition import Definition, Options
from jqd.code.pool import Pool
from jqd.domain.media import MSGPACK
from jqd.worker.lease import Outcome


def job(argument: Any = None, *, job_id: str = "j", timeout: float = 20.0) -> LeasedJob:
    return LeasedJob(job_id, "m", Raw(msgspec.msgpack.encode(argument)), 1, 5, timeout)


def handler(lang: str, body: str, *, batch: int | None = None, **fields: Any) -> Definition:
    told: dict[str, Any] = {"name": "m", "version": 1} | fields
    return Definition(lang=lang, body=body, options=Options(batch), **told)


class Bench:
    """A pool, and what became of the jobs that it ran."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.unwanted: dict[str, bool] = {}
        self.batch: Batch | None = None

    async def run(self, definition: Definition, *jobs: LeasedJob) -> dict[str, Outcome]:
        ended: list[Outcome] = []
        self.batch = Batch(definition, jobs or [job()], ended.append, self.unwanted)
        await self.pool.run(self.batch)
        return {one.job_id: one for one in ended}

    async def one(self, definition: Definition, argument: Any = None, **fields: Any) -> Outcome:
        (outcome,) = (await self.run(definition, job(argument, **fields))).values()
        return outcome


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Any]:
    """Opens one; `said`: of CodeConfig. All that it started is gone with it."""

    @asynccontextmanager
    async def open_bench(limits: Limits = Limits(), **said: Any) -> AsyncIterator[Bench]:  # noqa: B008 - it is frozen
        async with trio.open_nursery() as nursery:
            pool = Pool(CodeConfig(daemons=[], limits=limits, **said), tmp_path, nursery, adopts=False)
            yield Bench(pool)
            pool.stop()
            nursery.cancel_scope.cancel()
        assert os.listdir(tmp_path) == [], "each home is deleted with its context"

    return open_bench


def value(outcome: Outcome) -> Any:
    assert outcome.status == 200, outcome
    return msgspec.msgpack.decode(outcome.result) if isinstance(outcome.result, Raw) else outcome.result


URL = "http://daemon"


class FakeDaemon:
    """Answers with what `answers` says, else 200, and notes what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[Any], tuple[int, Any]]] = {}
        self.asked: list[tuple[str, Any]] = []
        self.http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        body = msgspec.msgpack.decode(request.content) if request.content else dict(request.url.params)
        path = request.url.path
        self.asked.append((path, body))
        status, told = self.answers.get(path, lambda body: (200, {}))(body)
        if status == 0:
            raise httpx2.ConnectError("away")
        return httpx2.Response(status, content=msgspec.msgpack.encode(told), headers={"content-type": MSGPACK})

    def reported(self) -> list[dict[str, Any]]:
        return [one for path, body in self.asked if path == "/v1/outcomes" for one in body]


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()
