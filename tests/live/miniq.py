"""What miniq's user has: a daemon, a real store, and line runners that answer what a test says, over HTTP."""

import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import httpx2

from jqd.client import Client, JobInfo
from tests.directories import short_directory
from tests.live.harness import LEASE, Daemon
from tests.valkey import Valkey, valkey

WAIT_S = 30.0  # for a job to end on a busy machine
TEXT = {"content-type": "text/plain"}
# What fails is tried again at once.
ENV = {**LEASE, "JQD_RETRY__FIRST_S": "50ms", "JQD_RUNNER__BACKOFF_FIRST_S": "50ms"}
QUICK: Mapping[str, Any] = {"max_retry": 2, "backoff": 0.05}  # options of a handler

Answer = tuple[int, str] | None
"""A status and lines; None: the connection is reset."""


class LineRunner(ThreadingHTTPServer):
    """Answers by `say`, a function of the lines that came; keeps what was posted, by path."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, say: Callable[[list[str]], Answer], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Answering)
        self.say = say
        self.posts: list[tuple[str, list[str]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hears of an answer too late has left: daemons that died, jobs that timed out."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def lines(self, path: str) -> list[str]:
        """All that was posted there, a line for each job."""
        return [line for at, lines in self.posts if at == path for line in lines]


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LineRunner

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        assert body.endswith("\n"), body
        lines = body.removesuffix("\n").split("\n")
        self.server.posts.append((self.path, lines))
        answer = self.server.say(lines)
        if answer is None:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        status, text = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what it needs."""

    def finish(self) -> None:
        if not self.close_connection or self.connection.fileno() >= 0:
            super().finish()


@contextmanager
def line_runner(say: Callable[[list[str]], Answer] = lambda lines: (200, ""), port: int = 0) -> Iterator[LineRunner]:
    with LineRunner(say, port) as runner:
        thread = threading.Thread(target=runner.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield runner
        finally:
            runner.shutdown()
            thread.join()


class Queue(NamedTuple):
    """A daemon, as miniq's user calls it."""

    daemon: Daemon
    store: Valkey

    def add(self, jobtype: str, *lines: str, client: str = "-") -> list[str]:
        body = "".join(f"{line}\n" for line in lines)
        told = httpx2.post(f"{self.daemon.url}/{client}/job/{jobtype}/add", content=body, headers=TEXT)
        assert (told.status_code, told.json()["ok"], told.json()["count"]) == (200, True, len(lines)), told.text
        ids: list[str] = told.json()["ids"]
        return ids

    def handle(self, jobtype: str, url: str, client: str = "-", **options: Any) -> str:
        """Set a handler; what its version is called."""
        path = f"{self.daemon.url}/{client}/handler/add/{jobtype}/add?method=http"
        told = httpx2.post(path, json={"body": url, "options": {**QUICK, **options}})
        assert told.status_code == 200, told.text
        version: str = told.json()["id"]
        return version

    def add_batch(self, jobtype: str, url: str, *lines: str, **options: Any) -> list[str]:
        """Set a handler that takes batches and add lines, so that they are there together before any is begun."""
        self.call("POST", f"/v1/types/{jobtype}/pause")
        self.handle(jobtype, url, **{"batch": True, **options})
        ids = self.add(jobtype, *lines)
        self.call("POST", f"/v1/types/{jobtype}/resume")
        return ids

    def call(self, method: str, path: str, **more: Any) -> httpx2.Response:
        return httpx2.request(method, self.daemon.url + path, timeout=10, **more)

    def ended(self, ids: list[str], tenant: str | None = None) -> list[JobInfo]:
        with Client(self.daemon.url, tenant=tenant) as client:
            return client.wait(ids, WAIT_S)

    def get(self, job_id: str) -> JobInfo:
        with Client(self.daemon.url) as client:
            return client.get(job_id)


@contextmanager
def queue() -> Iterator[Queue]:
    with valkey() as store, short_directory() as base, Daemon(base / "d", "--store", store.url, env=ENV) as daemon:
        yield Queue(daemon, store)
        assert daemon.stop() == 0, daemon.log.read_text()[-4000:]
