"""What a job says while it runs, seen by who pushed it: progress, its log, being put off, the jobs that follow."""

import time
from pathlib import Path

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
        assert client.get(far).progress is None

        off = until(client, early, "snoozes")
        assert (off.attempts, off.message) in [(0, "not yet"), (1, None), (1, "not yet")]
        done = client.get(early, wait=WAIT_S)
        assert (done.state, done.attempts, done.log) == ("succeeded", 1, None)
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
