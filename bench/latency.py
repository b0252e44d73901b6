"""From the push of a job to its start, 100 jobs a second: at a worker that asks for jobs, and one they are posted to.

Pusher and worker are threads of one process, so both read the same clock; the daemon and its store are processes.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from bench.processes import daemon
from bench.puller import Puller
from bench.result import Result, percentile

RATE = 100
POLLS = 8  # at once: a worker that reports one job has asked for the next already

Began = Callable[[int], None]


def run(jobs: int) -> Result:
    """Milliseconds."""
    figures: dict[str, float] = {}
    missing = 0
    with daemon() as url:
        bind = url.removeprefix("http://")
        for name, worker in (("pull", _pulling), ("push", _posted)):
            pushed_s, took_ms = dict[int, float](), dict[int, float]()

            def began(number: int, at: dict[int, float] = pushed_s, took: dict[int, float] = took_ms) -> None:
                took[number] = (time.perf_counter() - at[number]) * 1e3

            with worker(bind, name, began):
                pusher = Puller(bind, "")
                for number in range(jobs):
                    due_s = time.perf_counter() + 1 / RATE
                    pushed_s[number] = time.perf_counter()
                    pusher.call("/v1/jobs", {"name": name, "argument": number})
                    time.sleep(max(0.0, due_s - time.perf_counter()))
                time.sleep(1.0)
            missing += jobs - len(took_ms)
            figures[f"{name}_p50_ms"] = percentile([*took_ms.values()], 0.5)
            figures[f"{name}_p99_ms"] = percentile([*took_ms.values()], 0.99)
    return Result("latency", figures, ok=not missing)


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
