"""Workers that ask for their jobs and report them later, to whatever daemon, whatever becomes of it."""

import queue
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import msgpack
import pytest

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import LEASE, Daemon, pair
from tests.live.puller import WAIT_S, Puller
from tests.valkey import Valkey, valkey


def test_jobs_are_asked_for_and_reported(shared_daemon: Daemon) -> None:
    with Puller(shared_daemon.url, "fetch") as worker:
        assert worker.lease(wait=0) == {"lease_id": None, "jobs": []}
        with Client(shared_daemon.url) as client:
            pushed = [client.push("fetch", {"n": n}, keep_result=True, max_retry=1, priority=n) for n in range(4)]
            got = {job["job_id"]: lease for lease in (worker.lease(), worker.lease(wait=0.2)) for job in lease["jobs"]}
            assert sorted(got) == sorted(pushed)
            lease = got[pushed[0]]
            lease_id, first = lease["lease_id"], lease["jobs"][0]
            assert (first["argument"], first["attempt"], first["timeout"]) == ({"n": 0}, 1, 30)
            assert lease["heartbeat"] == 31, "no longer than its timeout and a moment"
            told = worker.beat(pushed[0], lease_id, progress=0.5, message="page 1 of 2", extend=120).json()
            assert told == {"cancelled": False, "heartbeat": 120}
            info = worker.job(pushed[0])
            assert (info["state"], info["worker"], info["daemon"]) == ("running", worker.worker_id, None)
            assert (info["progress"]["done"], info["progress"]["message"]) == (0.5, "page 1 of 2")

            success = {"job_id": pushed[0], "type": "success", "result": [1]}
            failure = {"job_id": pushed[0], "type": "failure", "message": "no"}
            assert worker.report("17", success) == [409], "another lease"
            odd = {"job_id": "nonsense", "type": "success"}, {"job_id": pushed[0]}
            assert worker.report(lease_id, success, *odd) == [200, 404, 422]
            assert worker.report(lease_id, success) == [200], "its answer may have been lost"
            assert worker.report(lease_id, failure) == [409]
            assert client.result(pushed[0], wait=WAIT_S) == [1]
            assert "progress" not in worker.job(pushed[0])
            assert worker.report(lease_id, success) == [200]
            assert worker.report(lease_id, failure) == [409]
            assert worker.beat(pushed[0], lease_id).status_code == 409

            back = {"job_id": pushed[1], "type": "refused"}
            assert worker.report(got[pushed[1]]["lease_id"], back) == [200]
            again = worker.lease()
            assert [(job["job_id"], job["attempt"]) for job in again["jobs"]] == [(pushed[1], 1)], "untried"
            assert worker.report(got[pushed[1]]["lease_id"], {"job_id": pushed[1], "status": 500}) == [409], (
                "a stale lease"
            )
            assert worker.report(again["lease_id"], {"job_id": pushed[1], "status": 422, "message": "bad"}) == [200]
            assert client.get(pushed[1], wait=WAIT_S).message == "bad"

            client.cancel(pushed[2])
            assert worker.beat(pushed[2], got[pushed[2]]["lease_id"]).json()["cancelled"]
            retried = {"job_id": pushed[3], "type": "failure", "message": "once more", "retry_after": 0}
            assert worker.report(got[pushed[2]]["lease_id"], {"job_id": pushed[2], "type": "failure"}) == [200]
            assert worker.report(got[pushed[3]]["lease_id"], retried) == [200]
            assert client.get(pushed[2], wait=WAIT_S).state == "cancelled"
            assert [job["attempt"] for job in worker.lease()["jobs"]] == [2]


def test_whoever_stops_listening_keeps_no_jobs(shared_daemon: Daemon) -> None:
    """Of two polls that wait, one whose client has gone and one whose client only listens on, neither takes a lease."""
    with Puller(shared_daemon.url, "gone") as worker:
        host, _, port = shared_daemon.bind.partition(":")
        body = f'{{"worker_id": "{worker.worker_id}", "max_jobs": 5, "wait": 30}}'.encode()
        head = f"POST /v1/leases HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\n"
        for half in (True, False):
            with socket.create_connection((host, int(port))) as sock:
                sock.sendall(head.encode() + b"\r\n" + body)
                time.sleep(0.2)  # it waits
                if half:
                    sock.shutdown(socket.SHUT_WR)
                    assert b'"jobs":[]' in sock.recv(65_536)
        with Client(shared_daemon.url) as client:
            job_id = client.push("gone")
            (job,) = worker.lease()["jobs"]
            assert (job["job_id"], job["attempt"]) == (job_id, 1)
            assert shared_daemon.get("/v1/stats").json()["runner"]["in_flight"] == 0


def test_the_most_urgent_goes_first_and_only_what_the_worker_takes(shared_daemon: Daemon) -> None:
    taken = {"priority_min": 0, "priority_max": 9}
    with Client(shared_daemon.url) as client, Puller(shared_daemon.url, "rank-a", "rank-b", **taken) as worker:
        ids = {n: client.push(f"rank-{'ab'[n % 2]}", priority=n) for n in (-5, 7, 3, 4, 12, 0)}
        time.sleep(0.5)  # all are in the store
        order = [job["job_id"] for _ in range(4) for job in worker.lease(1)["jobs"]]
        assert order == [ids[n] for n in (0, 3, 4, 7)]
        assert worker.lease(wait=0.3)["jobs"] == []


class Later(ThreadingHTTPServer):
    """A worker that takes all it is given, to report it later."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.taken: queue.Queue[tuple[str, str, dict[str, Any]]] = queue.Queue()
        """Path, lease and body of each request."""

    @contextmanager
    def serving(self) -> Iterator[str]:
        thread = threading.Thread(target=self.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{self.server_port}"
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class Taking(BaseHTTPRequestHandler):
    """Says 202 to everything."""

    server: Later

    def do_POST(self) -> None:
        body = msgpack.unpackb(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.taken.put((self.path, self.headers["jqd-lease-id"], body))

    def log_message(self, *_: object) -> None:
        """Nothing: the test says what it needs."""


def test_what_is_taken_with_a_202_is_reported_at_any_daemon() -> None:
    """Of one slot: the next job comes when the one before was reported, wherever that was."""
    later = Later()
    with pair() as (_, one, two, _), later.serving() as url, Client(one.url) as client:
        with Puller(one.url, "later", url=url + "/run", max_jobs=1, batch=1) as worker:
            pushed = [client.push("later", n, keep_result=True, timeout=600) for n in range(3)]
            for number, home in enumerate((two, one, two)):
                path, lease_id, body = later.taken.get(timeout=WAIT_S)
                (job,) = body["jobs"]
                assert (path, job["job_id"]) == ("/run", pushed[number])
                outcome = {"job_id": job["job_id"], "type": "success", "result": number}
                assert worker.report(lease_id, outcome, url=home.url) == [200]
                assert client.result(job["job_id"], wait=WAIT_S) == number
            told = worker.call("DELETE", f"/v1/workers/{worker.worker_id}")
            assert told.status_code == 204
        light = {"name": "light", "url": url, "max_jobs": 1, "jobs": ["light"]}
        with httpx2.Client(timeout=WAIT_S) as http:
            worker_id = http.post(two.url + "/worker", json=light).json()["worker_id"]
            job_id = client.push("light", {"n": 1}, keep_result=True, max_retry=0)
            path, _, body = later.taken.get(timeout=WAIT_S)
            assert (path, body["id"], body["job_id"], body["timeout"]) == ("/worker-job", job_id, job_id, 30)
            done = {"job_id": job_id, "type": "success", "result": [1]}
            answers = [
                http.post(daemon.url + "/done", json=told, headers={"worker-id": who}).status_code
                for daemon, told, who in (
                    (one, done, "somebody"),
                    (one, done, worker_id),
                    (two, done, worker_id),
                    (
                        two,
                        {**done, "type": "failure", "reason": "other", "should_retry": True, "message": ""},
                        worker_id,
                    ),
                )
            ]
            assert answers == [404, 204, 204, 404]
        assert client.result(job_id, wait=WAIT_S) == [1]


@pytest.mark.long
def test_a_job_of_a_day_runs_once_through_five_restarts_of_every_daemon() -> None:
    with valkey() as server, short_directory() as base:
        daemons = [Daemon(base / name, "--store", server.url, env=LEASE) for name in ("one", "two")]
        try:
            with Puller(daemons[0].url, "day") as worker:
                with Client(daemons[1].url) as client:
                    job_id = client.push("day", timeout=86_400, keep_result=True)
                lease = worker.lease()
                assert [job["job_id"] for job in lease["jobs"]] == [job_id]
                for number in range(5):
                    again = partial(_restarted, base, server, killed=bool(number % 2))
                    with ThreadPoolExecutor() as both:
                        daemons = list(both.map(again, ("one", "two"), daemons))
                    for daemon in daemons:
                        told = worker.beat(job_id, lease["lease_id"], url=daemon.url, progress=number / 5)
                        assert told.json()["cancelled"] is False, told.text
                        assert worker.job(job_id, url=daemon.url)["attempts"] == 1
                    assert worker.lease(wait=0)["jobs"] == [], "it is in a hand"
                outcome = {"job_id": job_id, "type": "success", "result": "at last"}
                assert worker.report(lease["lease_id"], outcome, url=daemons[1].url) == [200]
                info = worker.job(job_id, url=daemons[0].url, wait=WAIT_S)
                assert (info["state"], info["attempts"], info["result"]) == ("succeeded", 1, "at last")
        finally:
            for daemon in daemons:
                daemon.__exit__()


def _restarted(base: Path, server: Valkey, name: str, before: Daemon, *, killed: bool) -> Daemon:
    (before.kill if killed else before.stop)()
    before.__exit__()
    return Daemon(base / name, "--store", server.url, bind=before.bind, env=LEASE)


def test_a_silent_worker_gives_its_jobs_back_and_a_store_that_forgot_is_told() -> None:
    with pair() as (server, one, two, _), Client(one.url) as client, Puller(two.url, "quiet") as worker:
        worker.register(one.url)
        kept = client.push("quiet", timeout=600, keep_result=True)
        lease = worker.lease()
        server.kill()
        shutil.rmtree(server.directory / "appendonlydir")
        server.start()
        assert _until_held(worker, kept, lease["lease_id"]), "the journals tell it who has the job"
        assert worker.lease(wait=0.5, url=one.url)["jobs"] == [], "and nobody else gets it"
        assert worker.report(lease["lease_id"], {"job_id": kept, "type": "success", "result": 1}, url=one.url) == [200]
        assert client.result(kept, wait=WAIT_S) == 1

        job_id = client.push("quiet", timeout=600, max_retry=1)
        began = time.monotonic()
        lease = worker.lease(heartbeat=2)
        assert lease["heartbeat"] == 2
        given = worker.lease(url=one.url)
        silent_s = time.monotonic() - began
        assert [(job["job_id"], job["attempt"]) for job in given["jobs"]] == [(job_id, 2)]
        assert silent_s >= 2, "its heartbeat"
        assert worker.report(lease["lease_id"], {"job_id": job_id, "status": 500}) == [409]
        assert worker.beat(job_id, lease["lease_id"]).status_code == 409
        late = {"job_id": job_id, "type": "success"}
        assert worker.report(lease["lease_id"], late, url=two.url) == [200], "it did run"
        assert client.get(job_id, wait=WAIT_S).state == "succeeded"
        (attempt,) = worker.job(job_id)["history"]
        assert (attempt["reason"], attempt["message"][:12]) == ("timeout", "NO_HEARTBEAT")


def _until_held(worker: Puller, job_id: str, lease_id: str) -> bool:
    """Whether the lease stands, as soon as the daemons have told the store all they know."""
    deadline = time.monotonic() + WAIT_S
    while (told := worker.beat(job_id, lease_id)).status_code == 503:
        assert time.monotonic() < deadline, told.text
        time.sleep(0.05)  # watches processes of their own
    return told.status_code == 200
