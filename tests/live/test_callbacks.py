"""Callbacks: a URL is told how a job ended, by a real daemon, over TCP, signed."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import msgpack
import pytest

from jqd.client import Client, Conflict, Invalid
from jqd.domain.signature import key_of
from jqd.runner.callbacks import secret_of
from jqd.worker.signed import is_ours
from tests.live.harness import LEASE, ROOT, Daemon, Process, pair, wait_for
from tests.live.test_hooks import NEW
from tests.valkey import valkey


class Receiver:
    """Notes what it is told, and answers as it is told to; 204 else."""

    def __init__(self, port: int = 0) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.says: list[int] = []
        self.breaks = False
        """Its answers are cut off in their bodies."""
        receiver = self

        class Told(BaseHTTPRequestHandler):
            """One message a request."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(receiver.says.pop(0) if receiver.says else 204)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "10" if receiver.breaks else "0")
                self.end_headers()
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Not to stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Told)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/told"

    def __enter__(self) -> "Receiver":
        """Serve."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Be gone."""
        self._server.shutdown()
        self._server.server_close()

    def messages(self, count: int, secret: str = NEW) -> list[dict[str, Any]]:
        """So many, once they came; each with a good signature."""
        wait_for(lambda: len(self.got) >= count, f"{count} messages")
        for headers, body in self.got:
            assert is_ours([key_of(secret)], headers, body, float(headers["webhook-timestamp"])), headers
        return [json.loads(body) for _, body in self.got]


ENV = LEASE | {"JQD_RUNNER__CALLBACK_NETWORKS": "127.0.0.0/8", "JQD_RUNNER__CALLBACK_SECRET": NEW}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """One of two: whatever is pushed there, either may tell. A worker of `flowing.py` is there, too."""
    with pair(ENV) as both:
        args = ["worker", "tests.live.flowing", "--daemon", both.one.url]
        with Process(args, both.base / "worker.log", cwd=ROOT):
            both.one.wait_worker("show")
            yield both.one


def test_it_is_told_how_a_job_ended(daemon: Daemon) -> None:
    with Receiver() as receiver, Client(daemon.url) as client:
        cancelled = client.push("double", {"number": 0}, delay=3600, callback=receiver.url)
        client.cancel(cancelled)
        (told,) = receiver.messages(1)
        assert (told["type"], told["data"]["job_id"]) == ("job.cancelled", cancelled)
        good = client.push("double", {"number": 4}, keep_result=True, callback=receiver.url)
        (_, told) = receiver.messages(2)
        assert told["type"] == "job.succeeded"
        assert told["data"] == {
            "job_id": good,
            "name": "double",
            "state": "succeeded",
            "attempts": 1,
            "finished_at": told["timestamp"],
            "result": 8,
        }
        bad = client.push("fragile", {"good": False}, callback=receiver.url, job_id="bad one")
        (*_, told) = receiver.messages(3)
        assert (told["type"], told["data"]["job_id"], bad) == ("job.failed", "bad one", "bad one")
        assert "told to fail" in told["data"]["message"]


def test_it_tells_of_each_job_of_an_array_once(daemon: Daemon) -> None:
    with Receiver() as receiver, Client(daemon.url) as client:
        jobs = [{"name": "nobody runs it", "argument": n, "delay": 3600, "callback": receiver.url} for n in range(5)]
        named = [{**job, "job_id": f"array {n}"} for n, job in enumerate(jobs)]
        plain = {"name": "nobody runs it", "delay": 3600}
        given = client.push_many([*jobs, plain, *named])
        assert client.push_many([*named]) == given[6:], "a repeated push"
        for job_id in given:
            client.cancel(job_id)
        told = [one["data"]["job_id"] for one in receiver.messages(10)]
        assert sorted(told) == sorted([*given[:5], *given[6:]])
        assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 10
        wait_for(lambda: not list(client.jobs(state="blocked", limit=100)), "a callback waits on")
        assert len(receiver.got) == 10


def test_it_is_tried_until_the_receiver_takes_it(daemon: Daemon) -> None:
    with Client(daemon.url) as client:
        with Receiver() as receiver:
            receiver.says = [500]
            client.cancel(client.push("nobody runs it", callback=receiver.url))
            receiver.messages(1)
            job = callback_of(receiver)
        wait_for(lambda: client.get(job).attempts == 2 and client.get(job).state == "retrying", "it is tried again")
        assert "UNREACHABLE" in str(client.get(job).message)
        with Receiver(receiver.port) as again:
            again.says = [302]
            client.run_now(job)
            again.messages(1)
            wait_for(lambda: "not followed" in str(client.get(job).message), "a redirect is no success")
            client.run_now(job)
            again.messages(2)
            assert client.get(job, wait=30).state == "succeeded"
            assert len({headers["webhook-id"] for headers, _ in [*receiver.got, *again.got]}) == 1, "the same message"


def callback_of(receiver: Receiver) -> str:
    """The callback that came there last."""
    return receiver.got[-1][0]["jqd-job-id"]


def test_a_receiver_that_is_gone_ends_it(daemon: Daemon) -> None:
    with Receiver() as receiver, Client(daemon.url) as client:
        receiver.says = [410]
        client.cancel(client.push("nobody runs it", callback=receiver.url))
        receiver.messages(1)
        info = client.get(callback_of(receiver), wait=30)
        assert (info.name, info.state, info.attempts) == ("jqd.callback", "failed", 1)


def test_a_good_status_is_enough(daemon: Daemon) -> None:
    with Receiver() as receiver, Client(daemon.url) as client:
        receiver.says, receiver.breaks = [200], True
        client.cancel(client.push("nobody runs it", callback=receiver.url))
        receiver.messages(1)
        info = client.get(callback_of(receiver), wait=30)
        assert (info.state, info.attempts) == ("succeeded", 1)


def test_it_says_what_may_not_be(daemon: Daemon) -> None:
    with Client(daemon.url) as client:
        for url in ("ftp://example.org", "http://me:pw@example.org/", "http://169.254.169.254/", "http://10.0.0.1/x"):
            with pytest.raises(Invalid, match="callback"):
                client.push("a", callback=url)
        with pytest.raises(Invalid, match=r"jqd\.callback"):
            client.push("jqd.callback")
        with pytest.raises(Invalid, match=r"jqd\.callback"):
            client.push("a", then={"name": "jqd.callback"})
        with pytest.raises(Invalid, match=r"jqd\.callback"):
            client.set_handler("jqd.callback", "http://127.0.0.1:1/", {})
        parent = client.push("nobody runs it", callback="http://127.0.0.1:1/")
        wait_for(lambda: bool(list(client.jobs(name="jqd.callback", state="blocked"))), "it waits")
        (job,) = client.jobs(name="jqd.callback", state="blocked")
        for forge in (
            partial(client.change, job.job_id, argument={"type": "job.succeeded"}),
            partial(client.run_now, job.job_id),
        ):
            with pytest.raises(Conflict, match="is a callback"):
                forge()
        client.cancel(job.job_id)
        client.cancel(parent)


def test_a_tenants_are_its_own(tmp_path: Path, daemon: Daemon) -> None:
    with Receiver() as receiver, Client(daemon.url, tenant="acme") as acme, Client(daemon.url, tenant="other") as ours:
        for own in (None, "own"):
            acme.cancel(acme.push("nobody runs it", callback=receiver.url, job_id=own))
        receiver.messages(2, secret_of("acme", NEW))
        job = callback_of(receiver)
        assert acme.get(job, wait=30).state == "succeeded"
        assert job not in {one.job_id for one in ours.jobs(name="jqd.callback")}


@pytest.mark.long  # tests/chaining/test_outbox_crash.py cuts each step
def test_a_kill_between_end_and_callback_loses_none(tmp_path: Path) -> None:
    with Receiver() as receiver, valkey() as server:
        at = ["--store", server.url]
        with Daemon(tmp_path / "data", *at, env=ENV) as first, Client(first.url) as client:
            jobs = [client.push("nobody runs it", callback=receiver.url) for _ in range(20)]
            for job in jobs:
                client.cancel(job)
            first.kill()
        with Daemon(tmp_path / "data", *at, env=ENV) as second, Client(second.url) as client:
            wait_for(lambda: {one["data"]["job_id"] for one in receiver.messages(1)} == set(jobs), "some are lost")


def test_what_follows_has_callbacks_too(daemon: Daemon) -> None:
    with Receiver() as receiver, Client(daemon.url) as client:
        first = client.push("double", {"number": 1}, then={"name": "show", "callback": receiver.url})
        (told,) = receiver.messages(1)
        assert (told["type"], told["data"]["job_id"]) == ("job.succeeded", f"{first}.0")


def test_without_networks_only_public_addresses_are_told(tmp_path: Path) -> None:
    with valkey() as server, Daemon(tmp_path / "data", "--store", server.url) as daemon, Client(daemon.url) as client:
        for host in ("127.0.0.1", "localhost", "[::1]", "192.168.1.1", "[::ffff:127.0.0.1]", "0.0.0.0"):
            with pytest.raises(Invalid, match="callback"):
                client.push("a", callback=f"http://{host}:8080/")


def test_it_tells_of_a_group_once_all_have_ended(daemon: Daemon) -> None:
    with Receiver() as receiver, Client(daemon.url) as client:
        jobs = client.push_many([{"name": "nobody runs it", "group": "told of"} for _ in range(3)])
        for group in ("told of", "told of", "without members"):
            answer = httpx2.post(f"{daemon.url}/v1/groups/{group}/close", json={"callback": receiver.url})
            assert answer.status_code == 200, answer.text
        for job in jobs:
            client.cancel(job)
        empty, told = receiver.messages(2)
        assert (empty["type"], empty["data"]) == ("group.ended", {"group": "without members", "counts": {}})
        assert (told["type"], told["data"]) == ("group.ended", {"group": "told of", "counts": {"cancelled": 3}})
        bad = httpx2.post(f"{daemon.url}/v1/groups/bad/close", json={"callback": "http://10.0.0.1/"})
        assert (bad.status_code, bad.json()["errors"][0]["pointer"]) == (422, "/callback")


def test_nobody_else_runs_callbacks_or_pushes_them(daemon: Daemon) -> None:
    with Receiver() as receiver, Client(daemon.url) as client:
        for card in ({"jobs": ["jqd.callback"]}, {"jobs": ["a"], "worker_id": "jqd.callback"}):
            taken = httpx2.post(f"{daemon.url}/v1/workers", json={"name": "thief", "max_jobs": 1, **card})
            assert taken.status_code == 422, taken.text
        every = {"name": "thief", "max_jobs": 1, "jobs": "*"}
        thief = httpx2.post(f"{daemon.url}/v1/workers", json=every).json()["worker_id"]
        client.cancel(client.push("nobody runs it", callback=receiver.url))
        leased = httpx2.post(f"{daemon.url}/v1/leases", json={"worker_id": thief, "max_jobs": 9, "wait": 1})
        assert "jqd.callback" not in leased.text
        receiver.messages(1)
        for path, content, kind in (
            ("job", msgpack.packb({"name": "jqd.callback", "argument": 1}), "application/msgpack"),
            ("acme/job/jqd.callback/add", b"x\n", "text/plain"),
        ):
            sent = httpx2.post(f"{daemon.url}/{path}", content=content, headers={"content-type": kind})
            assert (sent.status_code >= 400, "jqd.callback" in sent.text) == (True, True), (path, sent.text)
        schedule = {"every": 60, "job": {"name": "jqd.callback"}}
        assert httpx2.put(f"{daemon.url}/v1/schedules/forged", json=schedule).status_code == 422
        httpx2.delete(f"{daemon.url}/v1/workers/{thief}")
