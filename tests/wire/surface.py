"""Asks a daemon in one version of HTTP or the other: no answer may hang on how a request came.

The ids, dates and numbers that are new each time are masked; all else is compared to the byte.
"""

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
from typing import Any, NamedTuple, Protocol

import httpx2
import msgspec
import trio
import trio.testing

from jqd.words.media import JSON, MSGPACK
from tests.wire.attack import Answer

NEW_EACH_TIME = re.compile(
    rb'[0-9A-HJKMNP-TV-Z]{26}|jqd_[0-9a-f]{16}_[\w-]+|[0-9a-f]{16,32}|(?<=["\xaa])[0-9a-f]{10}(?![0-9a-f])|\d{4}-\d\d-\d\dT[\d:.]+Z'
    rb'|"cursor":"[^"]+"'
)
ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{32}-[0-9a-f]{16}")
NUMBER = re.compile(
    # What a page ends with is new each time; as a number it has an exponent, or a letter, or neither.
    r"(?<='cursor': ')[^']+|[0-9a-f]{32}-[0-9a-f]{16}|\d{4}-\d\d-\d\dT[\d:.]+Z|\b\d+(\.\d+)?(e-?\d+)?\b|[0-9a-f]{8,}"
)  # or a daemon's id
OF_CONNECTIONS = frozenset({b"date", b"connection", b"transfer-encoding"})
KEY = "the master key"  # that its daemon has
WAIT_S = 20.0  # no answer comes near
SOON_S = 0.05
JOB_BYTES_MAX = 1 << 20


class Told(NamedTuple):
    """One answer, masked."""

    asked: str
    status: int
    headers: dict[bytes, bytes]
    body: bytes


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


class Client(Protocol):
    """Speaks one version of HTTP."""

    async def request(self, method: str, target: str, content: bytes | None, headers: dict[str, str]) -> Answer:
        """Ask, and hear the whole answer."""
        ...


class Plain:
    """A client of HTTP/1."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def request(self, method: str, target: str, content: bytes | None, headers: dict[str, str]) -> Answer:
        """See Client."""
        told = await self._client.request(method, target, content=content, headers=headers)
        return Answer(told.status_code, {name.lower(): value for name, value in told.headers.raw}, told.content)


class Surface:
    """Asks one daemon in one version of HTTP, and keeps what it was told."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.told: list[Told] = []
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
        numbers: bool = True,
        accept: str = "",
        fields: Mapping[str, str] | None = None,
    ) -> Any:
        """`call`: a method and a path of the table. `into`: what stands for its id. Returns the value, if it has one.

        `numbers`: whether those of the answer are always the same. `fields`: further headers.
        """
        method, pattern = call.split()
        target = re.sub("<.*?>", into, pattern) + query
        data = body if isinstance(body, bytes) else None if body is None else _encoded(body, kind)
        sent = {**(fields or {}), **({"accept": accept} if accept else {})}
        if data is not None:
            sent.setdefault("content-type", kind)
        answer = await self.client.request(method, target, data, sent)
        assert answer.status == status, (call, target, answer)
        self.asked.setdefault((method, pattern), set()).add(status)
        told = {name: value for name, value in answer.headers.items() if name not in OF_CONNECTIONS}
        shown, value = answer.body, answer.value() if answer.body else None
        if not numbers:
            told.pop(b"content-length")
            shown = unnumbered(value)
        told = {name: NEW_EACH_TIME.sub(b"*", value) for name, value in told.items()}
        name = NEW_EACH_TIME.sub(b"*", f"{method} {target[:100]}".encode()).decode()
        self.told.append(Told(name, status, told, NEW_EACH_TIME.sub(b"*", shown)))
        return value

    async def runs(self, job_id: str) -> None:
        """Until a worker has it in hand."""
        while not re.search(
            rb"running.*[0-9a-f]{16}", (await self.client.request("GET", f"/job/{job_id}", None, {})).body
        ):
            await trio.sleep(SOON_S)  # watches a process of its own

    async def keeps(self, job_id: str) -> None:
        """Until the store says that its worker has it in its own hand, and no daemon any more."""
        shown = await self._look(job_id)
        while shown["state"] != "running" or shown["daemon"] or not shown["worker"]:
            await trio.sleep(SOON_S)  # watches a process of its own
            shown = await self._look(job_id)

    async def _look(self, job_id: str) -> Any:
        return (await self.client.request("GET", f"/v1/jobs/{job_id}", None, {"accept": JSON})).value()


def unnumbered(value: Any) -> bytes:
    """An answer without ids and numbers."""
    return NUMBER.sub("0", ID.sub("*", repr(value))).encode()


def _encoded(body: Any, kind: str) -> bytes:
    return msgspec.msgpack.encode(body) if kind == MSGPACK else json.dumps(body).encode()


async def leave(surface: Surface, child: Popen[str], store: int, worker_url: str) -> None:
    """SIGTERM, with requests under way. The process ends behind it."""
    ask = surface.ask
    card = {"name": "l", "url": worker_url, "max_jobs": 1, "jobs": ["last"]}
    mine = {"worker-id": (await ask("POST /worker", 201, card))["worker_id"]}
    job_id = (await ask("POST /job", 201, {"name": "last", "argument": 1}))["job_id"]
    await surface.runs(job_id)
    waiting: list[Told] = []

    async def wait(call: str, status: int, *told: Any, **named: Any) -> None:
        own = Surface(surface.client)
        await own.ask(call, status, *told, **named)
        waiting.extend(own.told)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(wait, "GET /v1/jobs/<job_id>", 200, into=job_id, query=f"?wait={WAIT_S:g}"))
        os.kill(store, signal.SIGSTOP)
        try:
            nursery.start_soon(partial(wait, "POST /v1/jobs", 201, {"name": "a"}, query="?ack=store"))
            await trio.testing.wait_all_tasks_blocked(SOON_S)  # until both are sent, over connections of their own
            await ask("POST /v1/jobs", 201, {"name": "a"})  # behind them on the same loop: both are waited for
            assert not waiting
            child.send_signal(signal.SIGTERM)
            while (await surface.client.request("GET", "/readyz/push", None, {})).status == 200:
                await trio.sleep(SOON_S)  # watches a process of its own
            await ask("POST /v1/jobs", 503, {"name": "a"})
            await ask("POST /job", 503, {"name": "a", "argument": 1})
            await ask("GET /readyz/push", 503)
            await ask("GET /livez", 200)
        finally:
            os.kill(store, signal.SIGCONT)
        await ask("POST /done", 204, {"type": "success", "job_id": job_id}, fields=mine)
    surface.told += sorted(waiting, key=str)
