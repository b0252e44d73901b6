"""Results of 16 MiB, by each way that a worker has to say them, while others are served; and what is larger."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import redis

from jqd.client import Client, JobFailed, NoResult
from jqd.domain.results import RESULT_BYTES_MAX
from tests.live.harness import LEASE, Daemon, Pair, Process, pair, wait_for
from tests.live.puller import Puller
from tests.live.test_hooks import registered
from tests.stalls import unstalled

WAIT_S = 60.0
LARGEST = RESULT_BYTES_MAX
MSGPACK = "application/msgpack"
PING_S = 2.0  # of a small request beside them, on a busy machine: it takes a few milliseconds
LONG_LEASE = {"JQD_LEASE__LEASE_S": "30", "JQD_LEASE__RENEW_S": "3", "JQD_LEASE__MARGIN_S": "3"}


def value(size: int) -> bytes:
    """A value that has so many bytes as MessagePack."""
    return b"\xff" * (size - 5)


class Large(BaseHTTPRequestHandler):
    """Answers with as much as the job's argument asks for: as a hook with bytes or JSON, or as a native worker."""

    protocol_version = "HTTP/1.1"
    asked: threading.Event = threading.Event()
    go: threading.Event = threading.Event()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/native":
            jobs = msgspec.msgpack.decode(body)["jobs"]
            told = [{"job_id": one["job_id"], "type": "success", "result": value(one["argument"])} for one in jobs]
            self._say(MSGPACK, b"".join(map(msgspec.msgpack.encode, told)))
        elif self.path == "/json":
            size = msgspec.json.decode(body)
            self._say("application/json", msgspec.json.encode(["x" * 1_000] * (size // 1_003)))
        else:
            if self.path == "/late":
                self.asked.set()
                assert self.go.wait(WAIT_S)
            self._say("application/octet-stream", value(msgspec.json.decode(body)))

    def _say(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - so it is called
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Large) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()


@pytest.fixture(scope="module")
def here() -> Iterator[Pair]:
    with pair(LEASE, guarded=True) as both:
        yield both
        assert (both.one.stop(), both.two.stop()) == (0, 0)


@contextmanager
def served(daemon: Daemon) -> Iterator[None]:
    """Within, another client's small requests are answered, and no step of the daemon's loop is long."""
    over, longest = threading.Event(), [0.0]

    def ping() -> None:
        with Client(daemon.url) as client:
            while not over.is_set():
                began_s = time.monotonic()
                client.push("nobody takes it")
                longest[0] = max(longest[0], time.monotonic() - began_s)
                over.wait(0.01)

    pinging = threading.Thread(target=ping, daemon=True)
    with unstalled(daemon.steps):
        pinging.start()
        try:
            yield
        finally:
            over.set()
            pinging.join(WAIT_S)
    assert longest[0] < PING_S, f"a small push took {longest[0]:.1f} s"


def push(client: Client, jobtype: str, size: int, **options: Any) -> str:
    return client.push(jobtype, size, **{"keep_result": True, "timeout": 60, **options})


def check(client: Client, run: Callable[..., str]) -> None:
    """The largest comes back whole, one more byte is refused by name."""
    job_id = run(LARGEST)
    info = client.get(job_id, WAIT_S)
    assert (info.state, info.result, info.result_bytes) == ("succeeded", None, LARGEST), info.message
    assert client.result(job_id) == value(LARGEST)
    dropped = rf"RESULT_DROPPED: the result has {LARGEST + 1} bytes, {LARGEST} can be kept"
    with pytest.raises(NoResult, match=dropped):
        client.result(run(LARGEST + 1), WAIT_S)
    with pytest.raises(JobFailed, match=dropped):
        client.result(run(LARGEST + 1, keep_result="required"), WAIT_S)


@pytest.mark.parametrize(("style", "path"), [("webhook", "/hook"), ("native", "/native")])
def test_of_a_worker_that_is_posted_to(here: Pair, server: str, style: str, path: str) -> None:
    jobtype = f"large {style}"
    with registered(here.one, server + path, jobtype, style=style), Client(here.one.url) as client, served(here.one):
        check(client, lambda size, **options: push(client, jobtype, size, **options))


def test_of_a_hook_that_says_it_as_json(here: Pair, server: str) -> None:
    hooked = registered(here.one, server + "/json", "large json", style="webhook")
    with hooked, Client(here.one.url) as client, served(here.one), unstalled(here.two.steps):
        job_id = push(client, "large json", LARGEST - 1_000)
        assert client.result(job_id, WAIT_S) == ["x" * 1_000] * ((LARGEST - 1_000) // 1_003)
        told = httpx2.get(f"{here.two.url}/v1/jobs/{job_id}/result", headers={"accept": "application/json"})
        assert told.json() == {"result": ["x" * 1_000] * ((LARGEST - 1_000) // 1_003)}, "at any daemon"
        head = httpx2.head(f"{here.two.url}/v1/jobs/{job_id}/result", headers={"accept": MSGPACK})
        assert int(head.headers["content-length"]) > LARGEST - 40_000


def test_of_a_worker_that_pulls(here: Pair) -> None:
    def run(size: int, **options: Any) -> str:
        job_id = push(client, "large pulled", size, **options)
        lease = worker.lease(1)
        (job,) = lease["jobs"]
        told = {"job_id": job["job_id"], "type": "success", "result": value(size), "lease_id": lease["lease_id"]}
        body, headers = msgspec.msgpack.encode([told]), {"content-type": MSGPACK}
        answer = httpx2.post(here.one.url + "/v1/outcomes", content=body, headers=headers, timeout=WAIT_S)
        assert answer.status_code == 200, answer.text
        return job_id

    with Client(here.one.url) as client, Puller(here.one.url, "large pulled") as worker, served(here.one):
        check(client, run)


def test_of_the_python_sdk(here: Pair, tmp_path: Path) -> None:
    flags = ["worker", "tests.live.large:app", "--daemon", here.one.url, "--concurrency", "2"]
    with Process(flags, tmp_path / "worker.log") as worker, Client(here.one.url) as client:
        here.one.wait_worker("sdk large")
        with served(here.one):
            check(client, lambda size, **options: push(client, "sdk large", size, **options))
        assert worker.stop() == 0


def pieces(server: Any) -> int:
    """Keys in the store that hold pieces."""
    with redis.Redis.from_url(server.url) as store:
        return sum(1 for _ in store.scan_iter("*:pieces:*"))


def test_what_is_consumed_leaves_nothing(here: Pair, server: str) -> None:
    with registered(here.one, server + "/hook", "large taken", style="webhook"), Client(here.one.url) as client:
        before = pieces(here.server)
        job_id = push(client, "large taken", LARGEST)
        assert client.result(job_id, WAIT_S, consume=True) == value(LARGEST)
        assert client.result(job_id) is None
        wait_for(lambda: pieces(here.server) == before, "its pieces stay")


def test_a_full_store_refuses_it_by_name(here: Pair, server: str) -> None:
    hooked = registered(here.one, server + "/hook", "large full", style="webhook")
    with hooked, Client(here.one.url) as client, redis.Redis.from_url(here.server.url) as store:
        memory: Any = store.info("memory")
        store.config_set("maxmemory", memory["used_memory"] + (8 << 20))
        try:
            with pytest.raises(NoResult, match="RESULT_DROPPED: the store is full, and the result has 16777216 b"):
                client.result(push(client, "large full", LARGEST), WAIT_S)
            with pytest.raises(JobFailed, match=r"the store is full, .*; this job requires its result"):
                client.result(push(client, "large full", LARGEST, keep_result="required"), WAIT_S)
        finally:
            store.config_set("maxmemory", 0)


@pytest.mark.long
def test_a_daemon_killed_between_journal_and_store_keeps_it(server: str) -> None:
    with pair(LONG_LEASE | {"JQD_LOG__LEVEL": "debug"}) as here:
        here.two.kill()
        card = {"name": "late", "url": server + "/late", "jobs": ["large late"], "max_jobs": 1, "style": "webhook"}
        assert httpx2.post(here.one.url + "/v1/workers", json=card).status_code == 201
        with Client(here.one.url) as client:
            job_id = push(client, "large late", LARGEST)
        assert Large.asked.wait(WAIT_S)
        os.kill(here.server.pid, signal.SIGSTOP)
        try:
            Large.go.set()
            wait_for(lambda: "outcomes.batch" in here.one.log.read_text(), "the outcome is not in the journal")
            here.one.kill()
        finally:
            os.kill(here.server.pid, signal.SIGCONT)
        assert pieces(here.server) <= 1
        with Daemon(here.base / "one", "--store", here.server.url, env=LONG_LEASE) as again:
            with Client(again.url) as client:
                wait_for(lambda: client.get(job_id).ended, "its end is not told")
                assert client.result(job_id) == value(LARGEST)
            with redis.Redis.from_url(here.server.url) as store:
                assert not store.exists("{jqd:0}:spare"), "nothing waits to be named"
