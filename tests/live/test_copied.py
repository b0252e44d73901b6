"""docs/use/WORKERS.md begins with workers to copy: each runs as it stands there, and does what the page says."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from jqd.client import Client
from tests.live.harness import ROOT, Daemon

WAIT_S = 30.0  # for a job to end on a busy machine
PAGE = (ROOT / "docs" / "use" / "WORKERS.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = {
    named[1]: code
    for language, code in BLOCKS
    if language != "sh" and (named := re.search(r"^(?:#|//) (\w+\.\w+)", code, re.MULTILINE))
}
CALLS = [code for language, code in BLOCKS if language == "sh" and "/v1/jobs" in code]


@contextmanager
def started(directory: Path, name: str, args: Sequence[str], ready: str) -> Iterator[str]:
    """A file of the page, as a process; what its line says behind `ready`."""
    (directory / name).write_text(EXAMPLES[name])
    env = {**os.environ, "PORT": "0", "PYTHONUNBUFFERED": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        args, cwd=directory, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if ready in line:
                    break
            else:
                raise AssertionError(f"{name} ended: {''.join(said)}")
            yield line.partition(ready)[2].split()[0]
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # curl and what it waits for, too


def follow(calls: str, daemon: Daemon, port: str) -> str:
    """Run the calls of the page, at these addresses; the id of the job that was pushed."""
    here = re.sub(r"127\.0\.0\.1:90\d\d", f"127.0.0.1:{port}", calls.replace("127.0.0.1:7420", daemon.bind))
    told = subprocess.run(["bash", "-c", here], capture_output=True, text=True, timeout=WAIT_S, check=True).stdout
    assert "worker_id" in told, told
    return str(json.loads(told[told.index('{"job_id') :])["job_id"])


def test_the_page_begins_with_three_workers() -> None:
    assert [*EXAMPLES] == ["hook.py", "batches.js", "pull.sh", "verify.py"]
    assert PAGE.index("pull.sh URL") < PAGE.index("## Registering")
    assert len(CALLS) == 2


def test_the_hook_with_flask(tmp_path: Path, shared_daemon: Daemon) -> None:
    args = [sys.executable, "-m", "flask", "--app", "hook", "run", "--port", "0"]
    with (
        started(tmp_path, "hook.py", args, "Running on http://127.0.0.1:") as port,
        Client(shared_daemon.url) as client,
    ):
        job_id = follow(CALLS[0], shared_daemon, port)
        assert client.result(job_id, wait=WAIT_S) == {"sent": "a@example.com"}
        failed = client.get(client.push("mail", {"to": "nobody"}), wait=WAIT_S)
        assert (failed.state, failed.attempts) == ("failed", 1)
        assert failed.message == "the worker answered 422: this is no address"
        broken = client.get(client.push("mail", "no map", max_retry=0), wait=WAIT_S)
        assert (broken.state, "the worker answered 500" in (broken.message or "")) == ("failed", True)


@pytest.mark.skipif(shutil.which("node") is None, reason="node IS NOT INSTALLED: the worker of the page was not run")
def test_the_batches_with_node(tmp_path: Path, shared_daemon: Daemon) -> None:
    with (
        started(tmp_path, "batches.js", ["node", "batches.js"], "on port ") as port,
        Client(shared_daemon.url) as client,
    ):
        job_id = follow(CALLS[1], shared_daemon, port)
        assert client.result(job_id, wait=WAIT_S) == 5
        strange = httpx2.post(f"http://127.0.0.1:{port}/", content=b"{", headers={"content-type": "application/json"})
        assert strange.status_code == 400, "a stranger does not take it down"
        many = client.push_many(
            [{"name": "length", "argument": {"text": "é" * n}, "keep_result": True} for n in range(200)]
        )
        assert [client.result(each, wait=WAIT_S) for each in many] == [*range(200)]
        failed = client.get(client.push("length", {}, max_retry=0), wait=WAIT_S)
        assert (failed.state, "TypeError" in (failed.message or "")) == ("failed", True)
    code = EXAMPLES["batches.js"].splitlines()
    assert len(code) <= 24


def test_pulling_with_curl(tmp_path: Path, shared_daemon: Daemon) -> None:
    args = ["bash", "pull.sh", shared_daemon.url, "size", "wc", "-c"]
    with (
        started(tmp_path, "pull.sh", args, "curl: "),  # it is not registered, and so it registers
        Client(shared_daemon.url) as client,
    ):
        small, large = (client.push("size", text, keep_result=True) for text in ("", "x" * 1_000))
        assert client.result(large, wait=WAIT_S) - client.result(small, wait=WAIT_S) == 1_000
        like_a_lease = client.push("size", {"lease_id": "", "jobs": []}, keep_result=True)
        assert client.result(like_a_lease, wait=WAIT_S) > 1


def test_pulling_with_a_command_whose_result_is_no_json(tmp_path: Path, shared_daemon: Daemon) -> None:
    args = ["bash", "pull.sh", shared_daemon.url, "when", "date"]
    with started(tmp_path, "pull.sh", args, "curl: "), Client(shared_daemon.url) as client:
        jobs = [client.push("when", max_retry=0) for _ in range(2)]
        told = [client.get(job, wait=WAIT_S).message for job in jobs]
    assert told == ["its result was refused with 400: is it JSON?"] * 2, "and it goes on with the next"
