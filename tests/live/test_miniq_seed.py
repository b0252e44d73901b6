"""What the seed miniq-queue says a queue does, by its sentences: real daemons, a real store, line runners over HTTP.

The parts within have tests of their own: Journal (readReserve, read, rsync) tests/journal, Store tests/contract,
Scheduler tests/scheduler, Runner (getRunningJobs, getStoppedJobs) tests/runner. Here is what a user sees of them.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import ROOT, Daemon, ingested
from tests.live.miniq import ENV, TEXT, WAIT_S, Answer, Queue, line_runner, queue


@pytest.fixture(scope="module")
def miniq() -> Iterator[Queue]:
    with queue() as miniq:
        yield miniq


def ok(lines: list[str]) -> Answer:
    return 200, "200\n" * len(lines)


# ------------------------------------------------ Queue


def test_insert_jobs_into_the_queue_return_the_created_job_ids(miniq: Queue) -> None:
    one = miniq.add("inserted", "a", "b")
    body = "# a comment\nc\n\nd\n"
    told = miniq.call("POST", "/add?jobtype=inserted&client=-", content=body, headers=TEXT).json()
    assert (told["ok"], told["count"]) == (True, 2)
    with Client(miniq.daemon.url) as client:
        arguments = [ingested(client, job_id).argument for job_id in (*one, *told["ids"])]
    assert arguments == ["a", "b", "c", "d"]


def test_insert_delete_and_return_the_handler_of_a_job_type(miniq: Queue) -> None:
    path = "/-/handler/{}/handled"
    told = miniq.call("POST", path.format("add") + "/add?method=http", content="http://127.0.0.1:9/x\n", headers=TEXT)
    assert told.json() == {"ok": True, "id": "handled@1"}
    found = miniq.call("GET", path.format("get")).json()
    assert (found["type"], found["data"]["lang"], found["data"]["body"]) == ("handled", "http", "http://127.0.0.1:9/x")
    assert miniq.call("POST", path.format("del") + "/delete").json() == {"ok": True}
    assert miniq.call("GET", path.format("get")).status_code == 404


def test_the_daemon_answers_ok(miniq: Queue) -> None:
    assert miniq.call("GET", "/").text == "OK\n"


# ------------------------------------------------ Core concepts


def test_jobs_are_segregated_by_client_and_the_jobtype_is_combined_with_it(miniq: Queue) -> None:
    with line_runner(ok) as runner:
        for client in ("acme", "other"):
            miniq.handle("shared", f"{runner.url}/{client}", client=client)
        ids = {client: miniq.add("shared", f"of {client}", client=client) for client in ("acme", "other")}
        for client, pushed in ids.items():
            assert [one.state for one in miniq.ended(pushed, tenant=client)] == ["succeeded"]
            assert runner.lines(f"/{client}") == [f"of {client}"]
        assert miniq.call("GET", "/other/handler/get/shared").json()["client"] == "other"
        assert miniq.call("GET", "/-/handler/get/shared").status_code == 404


def test_a_job_may_run_if_and_only_if_its_date_has_come(miniq: Queue) -> None:
    with line_runner(ok) as runner, Client(miniq.daemon.url) as client:
        miniq.handle("dated", runner.url)
        job_id = client.push("dated", "later", run_at="2999-01-01T00:00:00Z")
        assert ingested(client, job_id).state == "scheduled"
        assert [one.state for one in miniq.ended(miniq.add("dated", "now"))] == ["succeeded"]
        assert runner.lines("/") == ["now"]
        client.run_now(job_id)
        miniq.ended([job_id])
        assert runner.lines("/") == ["now", "later"]


def test_versioning_is_done_by_embedding_the_version_number_into_the_task_name(miniq: Queue) -> None:
    with line_runner(ok) as runner:
        for number in (1, 2):
            assert miniq.handle("versioned", f"{runner.url}/{number}") == f"versioned@{number}"
        miniq.ended(miniq.add("versioned@1", "old") + miniq.add("versioned", "new"))
        assert (runner.lines("/1"), runner.lines("/2")) == (["old"], ["new"])
        told = miniq.call("POST", "/-/job/versioned@3/add", content="x\n", headers=TEXT)
        assert (told.status_code, "never had a version 3" in told.text) == (400, True)


def test_while_it_runs_the_daemon_owns_it_and_once_done_it_is_kept_and_not_run_again(miniq: Queue) -> None:
    begun, end = threading.Event(), threading.Event()

    def hold(lines: list[str]) -> Answer:
        begun.set()
        assert end.wait(WAIT_S)
        return ok(lines)

    (sysid,) = [row["daemon"] for row in miniq.call("GET", "/v1/daemons").json()["daemons"]]
    with line_runner(hold) as runner, Client(miniq.daemon.url) as client:
        miniq.handle("locked", runner.url)
        (job_id,) = miniq.add("locked", "x")
        assert begun.wait(WAIT_S)
        row = client.get(job_id)
        assert (row.state, row.daemon) == ("running", sysid)
        end.set()
        (done,) = miniq.ended([job_id])
        assert (done.state, done.finished_at is not None) == ("succeeded", True)
        assert (miniq.get(job_id).argument, runner.lines("/")) == ("x", ["x"])


# ------------------------------------------------ Flow and Journal


def test_what_is_added_is_in_the_durable_journal_as_id_jobtype_payload(miniq: Queue) -> None:
    ids = miniq.add("journaled", "pay | load", "two")
    directory = miniq.daemon.log.with_suffix("")
    args = [sys.executable, "-m", "jqd", "journal", "cat", "--lines", "--type", "journaled"]
    told = subprocess.run([*args, "--data-dir", str(directory)], capture_output=True, text=True, cwd=ROOT, check=True)
    assert told.stdout.splitlines() == [f"{ids[0]}|journaled|pay | load", f"{ids[1]}|journaled|two"]


def test_retry_ok_failed_and_error_are_told_apart_and_retry_and_error_are_tried_again(miniq: Queue) -> None:
    with line_runner(lambda lines: (200, "".join(f"{line}\n" for line in lines))) as runner:
        ids = miniq.add_batch("classes", runner.url, "100 wait", "200 fine", "404 no such", "500 broken", max_retry=1)
        ended = miniq.ended(ids)
        assert [(one.state, one.exitcode, one.attempts) for one in ended] == [
            ("failed", 100, 2), ("succeeded", 200, 1), ("failed", 404, 1), ("failed", 500, 2),
        ]  # fmt: skip
        assert runner.lines("/").count("404 no such") == 1, "FAILED ran ok, and is done"


# ------------------------------------------------ Store


def test_get_waiting_jobtypes_are_those_ready_to_run_with_their_counts(miniq: Queue) -> None:
    miniq.add("waiting", "a", "b")
    deadline_s = time.monotonic() + WAIT_S
    while "waiting" not in (rows := _types(miniq)) or rows["waiting"] != (2, "no worker takes these jobs"):
        assert time.monotonic() < deadline_s, rows


def _types(miniq: Queue) -> dict[str, tuple[int, str]]:
    rows = miniq.call("GET", "/v1/types").json()["types"]
    return {row["name"]: (row["waiting"], row["note"]) for row in rows}


def test_jobs_without_a_task_wait_for_one(miniq: Queue) -> None:
    """The seed has them time out: `job.expires_in_s` says when (test_miniq.py)."""
    (job_id,) = miniq.add("untasked", "x")
    with line_runner(ok) as runner:
        miniq.handle("untasked", runner.url)
        assert [one.state for one in miniq.ended([job_id])] == ["succeeded"]


def test_unget_is_again_as_soon_as_possible_and_costs_no_attempt(miniq: Queue) -> None:
    answers = iter([(503, "busy"), (429, "busy"), (200, "")])
    with line_runner(lambda lines: next(answers)) as runner:
        miniq.handle("ungot", runner.url, max_retry=0)
        (info,) = miniq.ended(miniq.add("ungot", "x"))
        assert (info.state, info.attempts, len(runner.posts)) == ("succeeded", 1, 3)


# ------------------------------------------------ Scheduler


def test_every_waiting_jobtype_is_chosen_some_time_whatever_the_counts(miniq: Queue) -> None:
    counts = {"many": 400, "some": 40, "few": 4}
    with line_runner(ok) as runner:
        miniq.call("POST", "/stop")
        for name in counts:
            miniq.handle(name, f"{runner.url}/{name}", batch=True, batchSize=10)
        ids = {name: miniq.add(name, *map(str, range(count))) for name, count in counts.items()}
        miniq.call("POST", "/start")
        miniq.ended([job_id for some in ids.values() for job_id in some])
        order = [path.strip("/") for path, _ in runner.posts]
        last = {name: len(order) - order[::-1].index(name) for name in counts}
        assert last["few"] < last["some"] < last["many"], "nobody waits behind all jobs of another type"


# ------------------------------------------------ Results


def test_the_scoreboard_maps_ids_to_exit_codes(miniq: Queue) -> None:
    with line_runner(lambda lines: (int(lines[0]), "")) as runner:
        miniq.handle("scored", runner.url)
        ids = miniq.add("scored", "204", "409")
        miniq.ended(ids)
        rows = miniq.call("GET", "/v1/jobs?name=scored").json()["jobs"]
        assert {row["job_id"]: row["exitcode"] for row in rows} == dict(zip(ids, (204, 409), strict=True))
        assert {row["job_id"]: row["code"] for row in rows} == dict(zip(ids, ("ok", "failed"), strict=True))
        (failed,) = miniq.call("GET", "/v1/jobs?name=scored&code=failed").json()["jobs"]
        assert failed["job_id"] == ids[1]
        (done,) = miniq.call("GET", "/v1/jobs?name=scored&exitcode=204").json()["jobs"]
        assert done["job_id"] == ids[0]


def test_a_follow_on_job_is_queued_with_the_returned_results_of_the_completed_one(miniq: Queue) -> None:
    with line_runner(lambda lines: (200, "what it returned\n")) as runner:
        for name in ("completed", "follow-on"):
            miniq.handle(name, f"{runner.url}/{name}")
        job = {"name": "completed", "argument": "x", "then": {"name": "follow-on"}}
        parent = miniq.call("POST", "/v1/jobs", json=job).json()["job_id"]
        assert [one.state for one in miniq.ended([parent])] == ["succeeded"]
        assert [one.argument for one in miniq.ended([f"{parent}.0"])] == ["what it returned"]
        assert runner.lines("/follow-on") == ["what it returned"]


# ------------------------------------------------ /start and /stop, and what happens when a daemon dies


def test_a_stopped_daemon_takes_jobs_and_begins_none_until_it_is_started(miniq: Queue) -> None:
    with line_runner(ok) as runner:
        miniq.handle("stopped", runner.url)
        assert miniq.call("GET", "/stop").text == "OK\n"
        (job_id,) = miniq.add("stopped", "x")
        with Client(miniq.daemon.url) as client:
            ingested(client, job_id)
        why = miniq.call("GET", f"/v1/jobs/{job_id}/why").json()
        assert (why["reason"], "drained" in why["text"]) == ("not_ready", True), why
        (row,) = miniq.call("GET", "/v1/daemons").json()["daemons"]
        assert row["drained_at"]
        assert miniq.call("GET", "/readyz/push").json()["ready"] is True
        assert runner.posts == []
        assert miniq.call("GET", "/start").text == "OK\n"
        assert [one.state for one in miniq.ended([job_id])] == ["succeeded"]


def test_jobs_of_a_daemon_that_died_are_run_again_by_another_and_its_journal_is_read_when_it_returns(
    miniq: Queue,
) -> None:
    """Sysids are distinct; a lock that expires is reset by the other daemons; what was acknowledged is on disk; task
    definitions persist."""
    begun, held = threading.Event(), threading.Event()

    def die(lines: list[str]) -> Answer:
        if not begun.is_set():
            begun.set()
            held.wait(WAIT_S)
        return ok(lines)

    with line_runner(die) as runner, short_directory() as base:
        with Daemon(base / "two", "--store", miniq.store.url, env=ENV) as two:
            other = Queue(two, miniq.store)
            other.handle("orphaned", runner.url)
            miniq.call("POST", "/stop")
            (orphan,) = other.add("orphaned", "x")
            assert begun.wait(WAIT_S)
            daemons = other.call("GET", "/v1/daemons").json()["daemons"]
            assert len({row["daemon"] for row in daemons}) == 2
            (late,) = other.add("orphaned", "late")
            two.kill()
        miniq.call("POST", "/start")
        (info,) = miniq.ended([orphan])
        assert (info.state, runner.lines("/").count("x")) == ("succeeded", 2)
        held.set()
        with Daemon(base / "two", "--store", miniq.store.url, env=ENV) as two:
            assert json.loads(two.get("/-/handler/get/orphaned").text)["data"]["body"] == runner.url
            assert [one.state for one in miniq.ended([late])] == ["succeeded"]
            assert two.stop() == 0
