"""Workers that report as soon as they have answered 202, at either of two daemons: each report counts, and is shown."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from queue import SimpleQueue
from typing import Any

import httpx2
import pytest
from msgspec.msgpack import decode, encode

from tests.live.harness import WAIT_S, Cluster, cluster

JOBS = 40  # of each style; at the daemon that had not sent them one of ten was refused once
MSGPACK = {"content-type": "application/msgpack"}


class Hasty(ThreadingHTTPServer):
    """Reports each job at the next of its daemons in the moment after its 202, and looks at what it said there."""

    daemon_threads, request_queue_size = True, 128

    def __init__(self, here: Cluster) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.worker_id = ""
        self.answers: Counter[int] = Counter()
        self.seen: Counter[str] = Counter()
        self.tries: Counter[str] = Counter()
        self.all_said = threading.Event()
        self.daemons = [here.one.url, here.two.url]
        self.slow: SimpleQueue[list[int]] | None = None
        """Where it puts what it was told of each job, if it tells both daemons twice before its 202 ends, and after."""
        self._daemons, self._lock = cycle(self.daemons), threading.Lock()
        self._http = httpx2.Client(timeout=WAIT_S)

    def server_close(self) -> None:
        super().server_close()
        self._http.close()

    def tell(self, url: str, job_id: str) -> int:
        told = encode({"job_id": job_id, "type": "success", "result": 1})
        headers = {**MSGPACK, "worker-id": self.worker_id}
        return self._http.post(f"{url}/done", content=told, headers=headers).status_code

    def work(self, job_id: str) -> None:
        with self._lock:
            self.tries[job_id] += 1
            url = next(self._daemons)
        status = self.tell(url, job_id)
        state = self._http.get(f"{url}/v1/jobs/{job_id}").json()["state"]
        with self._lock:
            self.answers[status] += 1
            self.seen[state] += 1
            if self.answers.total() == JOBS:
                self.all_said.set()


class _Handler(BaseHTTPRequestHandler):
    server: Hasty
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        told: dict[str, Any] = decode(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(202)
        self.send_header("Content-Length", "0" if self.server.slow is None else "1")
        self.end_headers()
        self.wfile.flush()
        if self.server.slow is not None:
            daemons = self.server.daemons * 2
            said = [self.server.tell(url, told["job_id"]) for url in daemons]
            self.wfile.write(b" ")  # and only now the answer is whole
            self.server.slow.put(said + [self.server.tell(url, told["job_id"]) for url in daemons])
            return
        for job in told.get("jobs", [told]):
            threading.Thread(target=self.server.work, args=[job["job_id"]], daemon=True).start()

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what it needs."""


@contextmanager
def hasty(here: Cluster, style: str) -> Iterator[Hasty]:
    """One of that style, for jobs named after it."""
    server = Hasty(here)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        card = {"name": style, "url": url, "max_jobs": 8, "jobs": [style], "style": style}
        answer = httpx2.post(f"{here.one.url}/v1/workers", json=card)
        assert answer.status_code == 201, answer.text
        server.worker_id = answer.json()["worker_id"]
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.long  # the simulation has such workers with each change
def test_no_report_is_refused_for_having_come_early() -> None:
    with cluster() as here, hasty(here, "lightjq") as lightjq, hasty(here, "native") as native:
        told_of_one_that_is_slow(here, lightjq)
        jobs = [{"name": style, "max_retry": 0} for style in ("lightjq", "native") for _ in range(JOBS // 2)]
        for daemon in (here.one, here.two):
            assert httpx2.post(f"{daemon.url}/v1/jobs", json=jobs).status_code == 201
        for worker in (lightjq, native):
            assert worker.all_said.wait(WAIT_S), worker.answers
            assert worker.answers == {204: JOBS}
            assert worker.seen == {"succeeded": JOBS}, "what was acknowledged is shown where it was"
            assert set(worker.tries.values()) == {1}, "none ran twice"


def told_of_one_that_is_slow(here: Cluster, worker: Hasty) -> None:
    """With its 202 on its way the daemon that sent the job takes its report, the other one may not know yet."""
    worker.slow = SimpleQueue()
    for daemon in (here.one, here.two):
        job = {"name": "lightjq", "max_retry": 0}
        job_id = httpx2.post(f"{daemon.url}/v1/jobs", json=job).json()["job_id"]
        early, late = (said := worker.slow.get(timeout=WAIT_S))[:4], said[4:]
        assert set(early) <= {204, 503}, early
        assert early[2:] + late == [204] * 6, (early, late)
        assert httpx2.get(f"{daemon.url}/v1/jobs/{job_id}").json()["attempts"] == 1
    worker.slow = None
