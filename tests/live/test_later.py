"""Jobs that run later, or another time: dates, delays, Retry-After, changes and retries, with what is told of them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import msgpack
import pytest

from jqd.client import Client, Conflict
from tests.live.harness import Daemon, Worker, ingested

WAIT_S = 30.0  # no answer comes near
HOUR_S = 3_600


class Stubborn(ThreadingHTTPServer):
    """A worker that is busy first, then asks for an hour, then succeeds."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[float, dict[str, Any]]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/run"

    @contextmanager
    def serving(self) -> Iterator["Stubborn"]:
        thread = threading.Thread(target=self.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One batch of one job after another."""

    server: Stubborn

    def do_POST(self) -> None:
        (job,) = msgpack.unpackb(self.rfile.read(int(self.headers["content-length"])))["jobs"]
        self.server.asked.append((time.monotonic(), job))
        match len(self.server.asked):
            case 1:
                self._answer(503, b"", ("Retry-After", "1"))
            case 2:
                told = {"type": "failure", "should_retry": True, "message": "come back", "retry_after": HOUR_S}
                self._answer(200, msgpack.packb(told), ("Content-Type", "application/msgpack"))
            case _:
                self._answer(200, b"")

    def _answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what it needs."""


def test_a_worker_says_when_it_wants_a_job_again(shared_daemon: Daemon) -> None:
    with Stubborn().serving() as worker, Client(shared_daemon.url) as client:
        card = {"name": "stubborn", "url": worker.url, "max_jobs": 2, "batch": 1, "jobs": ["stubborn"]}
        assert httpx2.post(f"{shared_daemon.url}/v1/workers", json=card).status_code == 201
        job_id = client.push("stubborn", max_retry=1)
        deadline = time.monotonic() + WAIT_S
        while (info := client.get(job_id)).state != "retrying":
            assert time.monotonic() < deadline, info
            time.sleep(0.05)  # watches a process of its own
        (first_s, busy), (second_s, tried) = worker.asked
        assert second_s - first_s >= 1.0, "it asked to be left alone for a second"
        assert (busy["attempt"], tried["attempt"]) == (1, 1), "to be busy is no attempt"
        (attempt,) = info.history
        assert (attempt["attempt"], attempt["message"], attempt["status"]) == (1, "come back", 500)
        assert info.eligible_at is not None
        assert info.started_at is not None
        assert HOUR_S <= (info.eligible_at - info.started_at).total_seconds() < HOUR_S + WAIT_S
        client.run_now(job_id)
        info = client.get(job_id, wait=WAIT_S)
        assert (info.state, info.attempts, len(info.history)) == ("succeeded", 2, 1)


def test_what_waits_is_changed_and_what_failed_is_tried_anew(tmp_path: Path, shared_daemon: Daemon) -> None:
    with Client(shared_daemon.url) as client:
        late = client.push("square", {"n": 2}, run_at="2099-01-31T08:00:00+09:00", keep_result=True, job_id="late/2")
        info = ingested(client, late)
        assert (info.job_id, info.state) == ("late/2", "scheduled")
        assert info.eligible_at is not None
        assert info.eligible_at.isoformat() == "2099-01-30T23:00:00+00:00"
        delayed = ingested(client, client.push("square", {"n": 1}, delay=3_600))
        assert delayed.eligible_at is not None
        assert delayed.created_at is not None
        assert (delayed.eligible_at - delayed.created_at).total_seconds() == 3_600
        assert [job.job_id for job in client.jobs(state="scheduled", limit=2)] == [delayed.job_id, "late/2"]
        failing = client.push("moody", "fail")
        with Worker(tmp_path / "book", shared_daemon.url) as worker:
            assert client.get(failing, wait=WAIT_S).state == "failed"
            assert client.change(late, argument={"n": 7}).state == "scheduled"
            assert client.run_now(late).state == "waiting"
            assert client.result(late, wait=WAIT_S) == {"n": 7, "square": 49}
            assert client.retry(failing).attempts == 0
            info = client.get(failing, wait=WAIT_S)
            assert (info.state, info.attempts) == ("failed", 1)
            moody = client.push("moody", "later", keep_result=True)
            told = client.get(moody, wait=WAIT_S)
            assert [(a["attempt"], a["message"], a["reason"]) for a in told.history] == [
                (1, "not yet", "other"),
                (2, "not yet", "other"),
            ]
            assert worker.stop() == 0
        client.delete(failing)
        assert client.cancel_many(job_ids=[delayed.job_id]).changed == 1
        with pytest.raises(Conflict, match="cancelled"):
            client.run_now(delayed.job_id)
