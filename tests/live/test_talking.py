"""What a job says while it runs, seen by who pushed it: progress, its log, being put off, the jobs that follow."""

import re
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from jqd.client import Client, JobInfo
from tests.live.harness import ROOT, Daemon, Process

WAIT_S = 30.0


def until(client: Client, job_id: str, holds: str) -> JobInfo:
    """The job, once it has what is asked for."""
    deadline_s = time.monotonic() + WAIT_S
    while not getattr(info := client.get(job_id), holds):
        assert time.monotonic() < deadline_s, info
        time.sleep(0.05)  # a worker tells once a second
    return info


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_job_that_talks_is_heard(tmp_path: Path, shared_daemon: Daemon, processes: str) -> None:
    url, log = shared_daemon.url, tmp_path / "worker.log"
    args = ["worker", "tests.live.talker", "--daemon", url, "--processes", processes, "--concurrency", "4"]
    with Process(args, log, cwd=ROOT), Client(url) as client:
        early, far = client.push("early"), client.push("page", {"number": 4})
        seen = until(client, far, "progress")
        assert seen.progress is not None
        assert (seen.state, seen.progress["done"], seen.progress["message"]) == ("running", 0.4, "page 4")
        client.cancel(far)
        assert client.get(far, wait=WAIT_S).state == "cancelled"
        assert (client.get(far).progress or {}).get("message") == "page 4", "how far it came is told of it still"

        off = until(client, early, "snoozes")
        assert (off.attempts, off.message) in [(0, "not yet"), (1, None), (1, "not yet")]
        done = client.get(early, wait=WAIT_S)
        assert (done.state, done.attempts, done.log) == ("succeeded", 1, "attempt 1")
        deadline_s = time.monotonic() + WAIT_S
        while len(followers := [job.job_id for job in client.jobs(name="once") if early in job.job_id]) < 2:
            assert time.monotonic() < deadline_s, "they follow at once"
            time.sleep(0.05)  # some milliseconds
        assert sorted(job_id.startswith(early) for job_id in followers) == [False, True], "once, and not for a snooze"

        hung = client.get(client.push("hang"), wait=WAIT_S)
        assert (hung.state, hung.error) == ("failed", "timeout")
        assert (hung.log or "").startswith("before the end\na word"), "also when its process was killed"
    said = log.read_text()
    for line in ("attempt 1", "before the end", "a word"):
        assert any(line in one and '"name": "' in one for one in said.splitlines()), f"{line} with whose it is"


def test_a_worker_serves_the_jobs_it_is_told_to_and_loads_changed_code(tmp_path: Path, shared_daemon: Daemon) -> None:
    module, log = tmp_path / "changing.py", tmp_path / "worker.log"
    source = "import jqd\napp = jqd.App()\n@app.job(keep_result=True)\ndef {}() -> str: return '{}'\n"
    both = source.format("changing", "old") + "@app.job\ndef other() -> None: ...\n"
    module.write_text(both)
    args = ["worker", "changing", "--daemon", shared_daemon.url, "--reload", "--jobs", "changing", "-q"]
    with Process(args, log, cwd=tmp_path) as worker, Client(shared_daemon.url) as client:
        assert client.result(client.push("changing", keep_result=True), wait=WAIT_S) == "old"
        (known,) = [each for each in client.workers() if "changing" in each["jobs"]]
        assert known["jobs"] == ["changing"]
        module.write_text("no python\n")
        deadline_s = time.monotonic() + WAIT_S
        while "it is tried again when a file has changed" not in log.read_text():
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.05)  # it looks once a second
        module.write_text(both.replace("'old'", "'newer'"))
        assert client.result(client.push("changing", keep_result=True), wait=WAIT_S) == "newer"
        assert worker.stop() == 0
    assert "worker.job_started" not in log.read_text(), "it is quiet"


def test_the_ids_of_followers_are_what_the_page_says(shared_daemon: Daemon) -> None:
    """`<id>.0` of a job that was pushed without an id of its own, else `<id>.<number>.0`; a list finds both."""
    url = shared_daemon.url

    def ask(method: str, path: str, told: Any = None) -> Any:
        answer = httpx2.request(method, f"{url}{path}", json=told, headers={"accept": "application/json"}, timeout=30)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def run(worker_id: str, name: str) -> str:
        """End its job with a follower. Returns the job's own id."""
        lease = ask("POST", "/v1/leases", {"worker_id": worker_id, "max_jobs": 1, "wait": 20})
        (job,) = lease["jobs"]
        outcome = {"job_id": job["job_id"], "lease_id": lease["lease_id"], "type": "success"}
        ask("POST", "/v1/outcomes", [{**outcome, "jobs": [{"name": name}]}])
        return str(job["job_id"])

    def follower_of(job_id: str, name: str) -> str:
        deadline_s = time.monotonic() + WAIT_S
        while not (found := ask("GET", f"/v1/jobs?search={job_id}.&name={name}")["jobs"]):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)  # some milliseconds
        (only,) = found
        assert ask("GET", f"/v1/jobs/{only['job_id']}")["name"] == name
        return str(only["job_id"])

    with Client(url) as client:
        worker = {"name": "parents", "jobs": ["parent", "child"], "max_jobs": 1}
        worker_id = ask("POST", "/v1/workers", worker)["worker_id"]
        plain = client.push("parent")
        assert run(worker_id, "child") == plain
        child = follower_of(plain, "child")
        assert child == f"{plain}.0"
        inner = run(worker_id, "grandchild")
        assert inner == ask("GET", f"/v1/jobs/{child}")["id"] != child
        client.push("parent", job_id="a parent of its own")
        own = run(worker_id, "later")
        assert own == ask("GET", "/v1/jobs/a%20parent%20of%20its%20own")["id"]
        assert follower_of(inner, "grandchild") == f"{inner}.0"
        found = follower_of(own, "later")
        assert re.fullmatch(r"\w{26}\.\d{15,16}\.0", found)
        assert httpx2.get(f"{url}/v1/jobs/{found[:26]}.0", timeout=10).status_code == 404
        ask("DELETE", f"/v1/workers/{worker_id}")
