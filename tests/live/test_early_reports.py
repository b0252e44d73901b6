"""Workers that report as soon as they have answered 202, at either of two daemons: each report counts, and is shown."""

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from typing import Any

import httpx2
import pytest
from msgspec.msgpack import decode, encode

from tests.live.harness import WAIT_S, Cluster, cluster

JOBS = 200
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
        self._daemons, self._lock = cycle([here.one.url, here.two.url]), threading.Lock()
        self._http = httpx2.Client(timeout=WAIT_S)

    def server_close(self) -> None:
        super().server_close()
        self._http.close()

    def work(self, job_id: str) -> None:
        with self._lock:
            self.tries[job_id] += 1
            url = next(self._daemons)
        told = encode({"job_id": job_id, "type": "success", "result": 1})
        status = self._http.post(
            f"{url}/done", content=told, headers={**MSGPACK, "worker-id": self.worker_id}
        ).status_code
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
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.wfile.flush()
        for job in told.get("jobs", [told]):
            threading.Thread(target=self.server.work, args=[job["job_id"]], daemon=True).start()

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what it needs."""


@pytest.mark.parametrize("style", ["lightjq", "native"])
def test_no_report_is_refused_for_having_come_early(style: str) -> None:
    with cluster() as here:
        hasty = Hasty(here)
        thread = threading.Thread(target=hasty.serve_forever, daemon=True)
        thread.start()
        try:
            url = f"http://127.0.0.1:{hasty.server_port}"
            card = {"name": "hasty", "url": url, "max_jobs": 8, "jobs": ["hasty"], "style": style}
            answer = httpx2.post(f"{here.one.url}/v1/workers", json=card)
            assert answer.status_code == 201, answer.text
            hasty.worker_id = answer.json()["worker_id"]
            jobs = [{"name": "hasty", "max_retry": 0} for _ in range(JOBS // 2)]
            for daemon in (here.one, here.two):
                assert httpx2.post(f"{daemon.url}/v1/jobs", json=jobs).status_code == 201
            assert hasty.all_said.wait(WAIT_S), hasty.answers
        finally:
            hasty.shutdown()
            thread.join()
            hasty.server_close()
        assert hasty.answers == {204: JOBS}
        assert hasty.seen == {"succeeded": JOBS}, "what was acknowledged is shown where it was"
        assert set(hasty.tries.values()) == {1}, "none ran twice"
