"""Asks a daemon, over TCP, for all that it can be asked for, and keeps which statuses each call has answered with."""

import json
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from subprocess import Popen
from typing import Any

import httpx2
import msgspec
import trio
import trio.testing

from jqd.domain.media import JSON, MSGPACK
from tests.wire.attack import Answer

KEY = "the master key"  # that its daemon has
WAIT_S = 60.0  # no answer comes near
SOON_S = 0.05
JOB_BYTES_MAX = 1 << 20


class Stub(ThreadingHTTPServer):
    """A worker of LightJQ that takes every job, and leaves it to the test what becomes of it.

    It says nothing to a job of the type `last`: that one stays in its daemon's hand.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.url = f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def serving(self) -> Iterator["Stub"]:
        thread = threading.Thread(target=self.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        if b"last" in self.rfile.read(int(self.headers["content-length"])):
            self.rfile.read(1)  # until the daemon closes
            return
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what it needs."""


class Surface:
    """Asks one daemon."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.asked: dict[tuple[str, str], set[int]] = {}
        """The statuses that each call of the table has answered with."""

    async def ask(
        self,
        call: str,
        status: int,
        body: Any = None,
        *,
        into: str = "",
        query: str = "",
        kind: str = JSON,
        accept: str = "",
        fields: Mapping[str, str] | None = None,
    ) -> Any:
        """`call`: a method and a path of the table. `into`: what stands for its id. Returns the value, if it has one.

        `fields`: further headers.
        """
        method, pattern = call.split()
        target = re.sub("<.*?>", into, pattern) + query
        data = body if isinstance(body, bytes) else None if body is None else _encoded(body, kind)
        sent = {**(fields or {}), **({"accept": accept} if accept else {})}
        if data is not None:
            sent.setdefault("content-type", kind)
        answer = await self._request(method, target, data, sent)
        assert answer.status == status, (call, target, answer)
        self.asked.setdefault((method, pattern), set()).add(status)
        return answer.value() if answer.body else None

    async def _request(self, method: str, target: str, content: bytes | None, headers: dict[str, str]) -> Answer:
        told = await self.client.request(method, target, content=content, headers=headers)
        return Answer(told.status_code, {name.lower(): value for name, value in told.headers.raw}, told.content)

    async def runs(self, job_id: str) -> None:
        """Until a worker has it in flight."""
        while not re.search(rb"running.*[0-9a-f]{16}", (await self._request("GET", f"/job/{job_id}", None, {})).body):
            await trio.sleep(SOON_S)  # watches a process of its own

    async def keeps(self, job_id: str) -> None:
        """Until the store says that its worker has it in its own hand, and no daemon any more."""
        shown = await self._look(job_id)
        while shown["state"] != "running" or shown["daemon"] or not shown["worker"]:
            await trio.sleep(SOON_S)  # watches a process of its own
            shown = await self._look(job_id)

    async def _look(self, job_id: str) -> Any:
        return (await self._request("GET", f"/v1/jobs/{job_id}", None, {"accept": JSON})).value()


def _encoded(body: Any, kind: str) -> bytes:
    return msgspec.msgpack.encode(body) if kind == MSGPACK else json.dumps(body).encode()


async def leave(surface: Surface, child: Popen[str], store: int, worker_url: str) -> None:
    """SIGTERM, with requests under way. The process ends behind it."""
    ask = surface.ask
    card = {"name": "l", "url": worker_url, "max_jobs": 1, "jobs": ["last"]}
    mine = {"worker-id": (await ask("POST /worker", 201, card))["worker_id"]}
    job_id = (await ask("POST /job", 201, {"name": "last", "argument": 1}))["job_id"]
    await surface.runs(job_id)
    answered: list[str] = []

    async def wait(call: str, status: int, *told: Any, **named: Any) -> None:
        await ask(call, status, *told, **named)
        answered.append(call)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(wait, "GET /v1/jobs/<job_id>", 200, into=job_id, query=f"?wait={WAIT_S:g}"))
        os.kill(store, signal.SIGSTOP)
        try:
            nursery.start_soon(partial(wait, "POST /v1/jobs", 201, {"name": "a"}, query="?ack=store"))
            await trio.testing.wait_all_tasks_blocked(SOON_S)  # until both are sent, over connections of their own
            await ask("POST /v1/jobs", 201, {"name": "a"})  # behind them on the same loop: both are waited for
            assert not answered
            child.send_signal(signal.SIGTERM)
            while (await surface.client.get("/readyz/push")).status_code == 200:
                await trio.sleep(SOON_S)  # watches a process of its own
            await ask("POST /v1/jobs", 503, {"name": "a"})
            await ask("POST /job", 503, {"name": "a", "argument": 1})
            await ask("GET /readyz/push", 503)
            await ask("GET /livez", 200)
        finally:
            os.kill(store, signal.SIGCONT)
        await ask("POST /done", 204, {"type": "success", "job_id": job_id}, fields=mine)
    assert sorted(answered) == ["GET /v1/jobs/<job_id>", "POST /v1/jobs"]
