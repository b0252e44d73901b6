"""From the push of a job to its start, at 100, 1,000 and 5,000 single pushes a second: at a worker that asks for jobs,
and one they are posted to.

A job's argument is the moment when its push was due. Pusher, daemon and its store are processes; the worker is threads
of this one, and all of them read the same monotonic clock.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from bench.processes import QUIET, daemon
from bench.puller import Puller
from bench.result import Result, percentile

RATES = (100, 1_000, 5_000)
POLLS = 8  # at once: a worker that reports one job has asked for the next already
LAST_S = 30.0  # after the last push, until the last job has begun

Began = Callable[[float], None]


def run(jobs: int) -> Result:
    """Milliseconds. `jobs`: how many are pushed at the lowest rate; at the others it lasts as long."""
    figures: dict[str, float] = {}
    missing = 0
    with daemon() as url:
        bind = url.removeprefix("http://")
        for name, worker in (("pull", _pulling), ("push", _posted)):
            took_ms: list[float] = []

            def began(due_s: float, took: list[float] = took_ms) -> None:
                took.append((time.monotonic() - due_s) * 1e3)

            with worker(bind, name, began):
                for rate in RATES:
                    took_ms.clear()
                    missing += _push(bind, name, rate, jobs * rate // RATES[0], took_ms)
                    figures[f"{name}_{rate}_p50_ms"] = percentile(took_ms, 0.5)
                    figures[f"{name}_{rate}_p99_ms"] = percentile(took_ms, 0.99)
            figures[f"{name}_p99_1000_over_100"] = figures[f"{name}_1000_p99_ms"] / figures[f"{name}_100_p99_ms"]
    return Result("latency", figures, ok=not missing)


def _push(bind: str, name: str, rate: int, jobs: int, took_ms: list[float]) -> int:
    """Push so many jobs. Returns how many did not begin."""
    args = [sys.executable, "-m", "bench.pacer", bind, name, str(rate), str(jobs)]
    refused = int(subprocess.run(args, stdout=subprocess.PIPE, env=QUIET, timeout=300, check=True).stdout)
    deadline_s = time.monotonic() + LAST_S
    while len(took_ms) < jobs - refused and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return jobs - len(took_ms)


@contextmanager
def _pulling(bind: str, name: str, began: Began) -> Iterator[None]:
    card = {"name": "bench", "jobs": [name], "max_jobs": 100}
    worker_id = Puller(bind, "").call("/v1/workers", card)["worker_id"]
    over = threading.Event()

    def work() -> None:
        puller = Puller(bind, worker_id)
        while not over.is_set():
            lease = puller.lease(wait_s=0.5)
            for job in lease["jobs"]:
                began(job["argument"])
            if lease["jobs"]:
                puller.succeed(lease)

    threads = [threading.Thread(target=work) for _ in range(POLLS)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@contextmanager
def _posted(bind: str, name: str, began: Began) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            for job in msgspec.msgpack.decode(self.rfile.read(int(self.headers["content-length"])))["jobs"]:
                began(job["argument"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        card = {"name": "bench", "url": f"http://127.0.0.1:{server.server_port}/", "jobs": [name], "max_jobs": 100}
        Puller(bind, "").call("/v1/workers", card)
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
