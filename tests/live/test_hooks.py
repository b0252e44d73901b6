"""Web hooks and line runners: real processes over TCP, with a real daemon and store."""

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx2
import msgpack
import pytest

from jqd.client import Client, JobInfo
from tests.live.harness import ROOT, START_S, Daemon, ingested, wait_for
from tests.live.test_copied import EXAMPLES

WAIT_S = 30.0  # for a job to end on a busy machine
OLD, NEW, OTHER = (f"whsec_{base64.b64encode(word * 8).decode()}" for word in (b"old!", b"new!", b"what"))


class Hook:
    """`tests/live/hooked.py`, and what it was asked."""

    def __init__(self, url: str, book: Path) -> None:
        self.url, self._book = url, book

    def asked(self, job_id: str) -> list[dict[str, Any]]:
        """Requests with a job, in order."""
        rows = [json.loads(line) for line in self._book.read_text().splitlines()]
        return [row for row in rows if row["headers"].get("jqd-job-id") == job_id]


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    book = tmp_path_factory.mktemp("hook") / "book"
    args = [sys.executable, str(ROOT / "tests" / "live" / "hooked.py"), str(book)]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Hook(process.stdout.readline().strip(), book)
        finally:
            process.kill()


@contextmanager
def registered(daemon: Daemon, url: str, jobtype: str, **said: Any) -> Iterator[dict[str, Any]]:
    """A worker for one jobtype; what is told of it."""
    card = {"name": jobtype, "url": url, "jobs": [jobtype], "max_jobs": 8, **said}
    told = httpx2.post(daemon.url + "/v1/workers", json=card)
    assert told.status_code == 201, told.text
    worker_id = told.json()["worker_id"]
    (row,) = (each for each in daemon.get("/v1/workers").json()["workers"] if each["worker_id"] == worker_id)
    yield row
    httpx2.delete(daemon.url + f"/v1/workers/{worker_id}")


def run(client: Client, jobtype: str, argument: Any, **options: Any) -> JobInfo:
    return client.get(client.push(jobtype, argument, **options), wait=WAIT_S)


def say(*answers: tuple[int, dict[str, str], str]) -> dict[str, Any]:
    return {"say": answers}


def test_a_hook_gets_its_argument_and_its_answer_is_the_result(shared_daemon: Daemon, hook: Hook) -> None:
    with registered(shared_daemon, hook.url + "/in", "plain", style="webhook"), Client(shared_daemon.url) as client:
        odd = {"bytes": b"\xff", "to": "é", "keys": {"1": "x"}}
        job_id = client.push("plain", odd, max_retry=3, timeout=20)
        assert client.get(job_id, wait=WAIT_S).state == "succeeded"
        (asked,) = hook.asked(job_id)
        assert (asked["method"], asked["path"]) == ("POST", "/in")
        assert json.loads(asked["body"].encode("latin-1")) == {
            "bytes": {"$bytes": "/w=="}, "to": "é", "keys": {"1": "x"}
        }  # fmt: skip
        headers = asked["headers"]
        told = {name: headers[name] for name in ("content-type", "jqd-job-type", "jqd-attempt", "jqd-max-retry")}
        assert told == {
            "content-type": "application/json", "jqd-job-type": "plain", "jqd-attempt": "1", "jqd-max-retry": "3"
        }  # fmt: skip
        assert headers["traceparent"].startswith("00-")
        assert headers["jqd-deadline"].endswith("Z")
        for kind, text, result in [
            ("application/json; charset=utf-8", '{"n": [1, 2.5, null]}', {"n": [1, 2.5, None]}),
            ("application/msgpack", msgpack.packb([1, b"x"]).decode("latin-1"), [1, b"x"]),
            ("text/html", "<p>done</p>", "<p>done</p>"),
            ("image/png", "\x89PNG", b"\x89PNG"),
            ("application/json", "{not json", "{not json"),
        ]:
            argument = say((202, {"Content-Type": kind}, text))
            assert client.result(client.push("plain", argument, keep_result=True), wait=WAIT_S) == result


def test_what_the_statuses_of_a_hook_mean(shared_daemon: Daemon, hook: Hook) -> None:
    with registered(shared_daemon, hook.url, "statuses", style="webhook"), Client(shared_daemon.url) as client:
        for status in (400, 409, 422, 418):
            info = run(client, "statuses", say((status, {}, "no such address")))
            assert (info.state, info.attempts) == ("failed", 1)
            assert info.message == f"the worker answered {status}: no such address"
        again = {s: client.push("statuses", say((s, {}, "wait"), (200, {}, ""))) for s in (404, 405, 415, 500, 302)}
        for job_id in again.values():
            assert client.get(job_id, wait=WAIT_S).state == "succeeded"
            first, second = (each["headers"] for each in hook.asked(job_id))
            assert (first["jqd-attempt"], second["jqd-attempt"]) == ("1", "2")
            assert first["traceparent"].split("-")[1] == second["traceparent"].split("-")[1], "one trace"
            assert first["traceparent"] != second["traceparent"]


def test_a_hook_that_is_busy_costs_no_attempt(shared_daemon: Daemon, hook: Hook) -> None:
    with ExitStack() as stack, Client(shared_daemon.url) as client:
        pushed = []
        for status in (408, 425, 429, 503):
            name = f"busy {status}"  # a hook that is busy gets nothing, and so would the others
            stack.enter_context(registered(shared_daemon, hook.url, name, style="webhook"))
            argument = say((status, {"Retry-After": "0.2"}, ""), (status, {"Retry-After": "1"}, ""), (200, {}, ""))
            pushed.append(client.push(name, argument, max_retry=0))
        for job_id in pushed:
            assert client.get(job_id, wait=WAIT_S).state == "succeeded"
            asked = hook.asked(job_id)
            assert [each["headers"]["jqd-attempt"] for each in asked] == ["1", "1", "1"]
            first_s, second_s, third_s = (each["at_s"] for each in asked)
            assert (second_s - first_s >= 0.2, third_s - second_s >= 1.0) == (True, True), "as long as it asked for"


def test_a_date_that_a_hook_says_holds_at_both_daemons(shared_daemons: tuple[Daemon, Daemon], hook: Hook) -> None:
    one, two = shared_daemons
    with registered(one, hook.url, "dated", style="webhook"), Client(one.url) as client, Client(two.url) as other:
        until_s = int(time.time()) + 3
        argument = say((503, {"Retry-After": formatdate(until_s, usegmt=True)}, ""), (204, {}, ""))
        job_id = client.push("dated", argument, max_retry=0)
        others = [other.push("dated", None), client.push("dated", None)]  # on their way, or later
        assert client.get(job_id, wait=WAIT_S).state == "succeeded"
        first, second = (each["at_s"] for each in hook.asked(job_id))
        assert first < until_s <= second
        assert all(client.get(one_id, wait=WAIT_S).state == "succeeded" for one_id in others)


def test_both_daemons_tell_why_a_job_waits_for_a_hook_that_wants_a_pause(
    shared_daemons: tuple[Daemon, Daemon], hook: Hook
) -> None:
    one, two = shared_daemons
    with ExitStack() as stack:
        client, other = (stack.enter_context(Client(daemon.url)) for daemon in shared_daemons)
        with registered(one, hook.url, "tired", style="webhook"):
            job_id = client.push("tired", say((429, {"Retry-After": "600"}, ""), (204, {}, "")), max_retry=0)
            told = [_until(daemon, job_id) for daemon in shared_daemons]
            assert all(abs(told_s - time.time() - 600) < WAIT_S for told_s in told), told
            late = other.push("tired", None)
            assert abs(_until(two, late) - told[0]) < 1
            assert (len(hook.asked(job_id)), len(hook.asked(late))) == (1, 0)
        with registered(one, hook.url, "tired", style="webhook"):  # afresh: what it said before holds no more
            assert all(other.get(each, wait=WAIT_S).state == "succeeded" for each in (job_id, late))


def _until(daemon: Daemon, job_id: str) -> float:
    """Until when no worker gets that job, as a daemon tells it, once it has heard of that."""
    deadline_s = time.monotonic() + START_S
    while (told := daemon.get(f"/v1/jobs/{job_id}/why").json())["reason"] != "workers_down" or not told.get("until"):
        assert time.monotonic() < deadline_s, told
        time.sleep(0.02)
    return datetime.fromisoformat(told["until"]).timestamp()


def test_a_hook_that_is_not_there_is_said_loudly(shared_daemons: tuple[Daemon, Daemon], hook: Hook) -> None:
    one, _ = shared_daemons
    with registered(one, hook.url, "away", style="webhook") as row, Client(one.url) as client:
        info = run(client, "away", say((404, {}, "card-4929")), max_retry=0)
        assert (info.state, info.attempts) == ("failed", 1)
        assert info.message == (
            "MISPLACED: nothing is at its URL; deploy what should be there, or register the right URL;"
            " the worker answered 404: card-4929"
        )
        complaints = {
            each["complaint"]: daemon
            for daemon in shared_daemons
            for each in daemon.get("/v1/stats").json()["runner"]["workers"]
            if each["id"] == row["worker_id"]
        }
        ((complaint, asker),) = ((text, daemon) for text, daemon in complaints.items() if text)
        assert complaint.startswith("answers 404: nothing is at its URL")
        ready = asker.get("/readyz").json()
        assert (ready["status"], ready["warnings"]) == ("degraded", [f"worker away ({hook.url}) {complaint}"])
        deadline_s = time.monotonic() + START_S
        while asker.get("/readyz").json()["status"] != "ready":  # until it gave that daemon a good answer
            assert time.monotonic() < deadline_s, asker.get("/readyz").text
            assert run(client, "away", None).state == "succeeded"
        logged = [json.loads(line) for line in asker.log.read_text().splitlines() if "misplaced" in line]
        assert [each["level"] for each in logged if each["worker"] == row["worker_id"]] == ["error"]
        assert "card-4929" not in logs(shared_daemons), "what it answered is its job's business"


def test_a_hook_that_is_gone_gets_nothing_more(shared_daemons: tuple[Daemon, Daemon], hook: Hook) -> None:
    shared_daemon, other = shared_daemons
    with registered(shared_daemon, hook.url, "gone", style="webhook") as row, Client(shared_daemon.url) as client:
        job_id = client.push("gone", say((410, {}, ""), (200, {}, "")), max_retry=0)
        deadline_s = time.monotonic() + START_S
        while any(
            row["worker_id"] in {found["worker_id"] for found in each.get("/v1/workers").json()["workers"]}
            for each in (shared_daemon, other)
        ):
            assert time.monotonic() < deadline_s, "it is registered still"
            time.sleep(0.02)
        assert len(hook.asked(job_id)) == 1, "nor by the other daemon, which had not heard that it is gone"
        with registered(shared_daemon, hook.url, "gone", style="webhook"):
            assert client.get(job_id, wait=WAIT_S).state == "succeeded", "it went back untried"


def logs(daemons: tuple[Daemon, Daemon]) -> str:
    return "".join(daemon.log.read_text() for daemon in daemons)


def test_a_hook_is_asked_as_it_registered_and_its_secrets_stay_secret(
    shared_daemons: tuple[Daemon, Daemon], hook: Hook
) -> None:
    shared_daemon, _ = shared_daemons
    url = hook.url + "/mail/{name}/{job_id}"
    headers = {"Authorization": "Bearer card-7777", "X-Tenant": "a"}
    said = {"style": "webhook", "method": "PUT", "headers": headers, "secrets": [NEW, OLD]}
    with registered(shared_daemon, url, "a/b c", **said) as row, Client(shared_daemon.url) as client:
        assert (row["headers"], row["signed"], row["method"]) == (["Authorization", "X-Tenant"], True, "PUT")
        job_id = client.push("a/b c", [1])
        assert client.get(job_id, wait=WAIT_S).state == "succeeded"
        (asked,) = hook.asked(job_id)
        assert (asked["method"], asked["path"]) == ("PUT", f"/mail/a%2Fb%20c/{job_id}")
        heard = asked["headers"]
        assert {name: heard[name] for name in ("authorization", "x-tenant", "webhook-id")} == {
            "authorization": "Bearer card-7777", "x-tenant": "a", "webhook-id": job_id
        }  # fmt: skip
        verify: dict[str, Any] = {}
        exec(EXAMPLES["verify.py"], verify)  # noqa: S102 - our own page
        for secret, ours in ((NEW, True), (OLD, True), (OTHER, False)):
            assert verify["is_ours"](secret, heard, asked["body"].encode()) is ours
        assert not verify["is_ours"](NEW, heard, asked["body"].encode() + b" ")
        assert not verify["is_ours"](NEW, heard | {"webhook-signature": "v1,\u00fc"}, asked["body"].encode())
        for place in (shared_daemon.get("/v1/workers").text, logs(shared_daemons)):
            assert not any(secret in place for secret in (NEW, OLD, "card-7777"))


def test_lines_alone_and_in_batches(shared_daemons: tuple[Daemon, Daemon], hook: Hook) -> None:
    shared_daemon, _ = shared_daemons
    url = hook.url + "/lines"
    with registered(shared_daemon, url, "line", style="lines"), Client(shared_daemon.url) as client:
        assert client.result(client.push("line", "hello", keep_result=True), wait=WAIT_S) == "hello"
        assert run(client, "line", "404 no such").state == "failed"
        again = run(client, "line", "500 broken", max_retry=1)
        assert (again.state, again.attempts) == ("failed", 2)
        parent = client.push("line", "#J: then|later", keep_result=True)
        assert client.result(parent, wait=WAIT_S) is None
        wait_for(lambda: any(client.jobs(name="then")), "the job of that line did not come")
        assert ingested(client, f"{parent}.0").argument == "later"
    jobs = [{"name": "batched", "argument": text, "max_retry": 0, "keep_result": True}
            for text in ("200 one", "422 two", "7 three", "what?", "200 five")]  # fmt: skip
    with Client(shared_daemon.url) as client:
        ids = client.push_many(jobs)
        with registered(shared_daemon, url, "batched", style="lines", batch=10, max_jobs=10):
            infos = [client.get(job_id, wait=WAIT_S) for job_id in ids]
    assert [info.state for info in infos] == ["succeeded", *["failed"] * 4]
    assert [(info.message or "").partition(":")[0] for info in infos] == [
        "", "two", "three", "INVALID_RESPONSE", "INVALID_RESPONSE"
    ]  # fmt: skip
