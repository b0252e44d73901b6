"""The examples of web frameworks: real servers of theirs, a real daemon, jobs that are pushed in requests and run."""

import base64
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from jqd.client import Client
from tests.live.harness import ROOT, START_S, Daemon, Process

pytestmark = pytest.mark.long

WAIT_S = 30.0  # for a job to end on a busy machine
SECRET = f"whsec_{base64.b64encode(b'of the tests' * 2).decode()}"
PYTHON = (sys.executable, "-m")
MANAGE = (sys.executable, str(ROOT / "examples" / "mysite" / "manage.py"))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def served(program: tuple[str, ...], args: list[str], log: Path, url: str, env: dict[str, str]) -> Iterator[Process]:
    """A server of somebody else's, once it answers."""
    with Process(args, log, env=env, program=program) as process:
        deadline_s = time.monotonic() + START_S
        while True:
            try:
                httpx2.get(url, timeout=START_S)
                break
            except httpx2.ConnectError:
                assert time.monotonic() < deadline_s, log.read_text()
                assert process.child.poll() is None, log.read_text()
                time.sleep(0.05)  # it says when it listens, each in its own words
        yield process


def test_the_line_of_cron_counts_once_however_many_machines_have_it(shared_daemon: Daemon) -> None:
    page = (ROOT / "docs" / "use" / "FRAMEWORKS.md").read_text()
    (line,) = re.findall(r"^0 3 \* \* \*  (.+)$", page, re.MULTILINE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for _ in range(2):
        told = run("sh", "-c", line.replace(r"\%", "%"), env={"JQD_URL": shared_daemon.url, "PATH": path})
        assert told == ""
    with Client(shared_daemon.url) as client:
        (job,) = (each for each in client.jobs(name="report") if each.job_id.startswith("report-"))  # of this test
        today = run("date", "+%F", env={}).strip()
        assert (job.job_id, job.max_retry, client.get(job.job_id).argument) == (
            f"report-{today}",
            20,
            {"day": "yesterday"},
        )


def run(*args: str, env: dict[str, str]) -> str:
    told = subprocess.run(
        args, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def orders(url: str, daemon: Daemon, number: int) -> None:
    """What a visitor does, and what comes of it."""
    for duplicate in (False, True):
        told = httpx2.post(f"{url}/orders/{number}", timeout=WAIT_S)
        assert (told.status_code, told.json()["duplicate"]) == (202, duplicate)
    with Client(daemon.url) as client:
        info = client.get(told.json()["job_id"], wait=WAIT_S)
        assert (info.state, info.result, info.attempts) == ("succeeded", f"delivered {number}", 2)
        assert info.history[0]["message"] == "nobody is at home"
        assert httpx2.get(f"{url}/orders/{number}", timeout=WAIT_S).json()["state"] == "succeeded"
        thanked = client.push("thank", {"to": "ann@example.org"})
        assert client.result(thanked, wait=WAIT_S) == "thanked ann@example.org at attempt 1"
        failed = client.get(client.push("thank", {"to": "ann"}), wait=WAIT_S)
        assert (failed.state, failed.attempts, failed.message) == ("failed", 1, "ann is no address")
        failed = client.get(client.push("thank", {"whom": "ann"}, max_retry=0), wait=WAIT_S)
        assert "takes (to: str)" in str(failed.message)
    job = {"jobs": [{"name": "thank", "argument": {"to": "eve@example.org"}, "job_id": "1"}]}
    unsigned = httpx2.post(f"{url}/jqd", json=job, timeout=WAIT_S)
    assert (unsigned.status_code, unsigned.json()["title"]) == (503, "Not signed")


def test_flask(tmp_path: Path, shared_daemon: Daemon) -> None:
    port = free_port()
    url, env = f"http://127.0.0.1:{port}", {"JQD_URL": shared_daemon.url, "JOBS_SECRET": SECRET}
    flask = ["flask", "--app", "examples.web.withflask"]
    with served(PYTHON, [*flask, "run", "--port", str(port)], tmp_path / "log", url, env):
        for again in ("", ", as before"):
            told = run(*PYTHON, *flask, "jqd", "register", f"{url}/jqd", env=env)
            assert told == f"thank, deliver at {url}/jqd{again}\n"
        orders(url, shared_daemon, port)
        for forgotten in ("thank\ndeliver\n", ""):
            assert run(*PYTHON, *flask, "jqd", "unregister", env=env) == forgotten


def test_fastapi(tmp_path: Path, shared_daemon: Daemon) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {"JQD_URL": shared_daemon.url, "JOBS_SECRET": SECRET, "JOBS_URL": f"{url}/jqd"}
    args = ["uvicorn", "examples.web.withfastapi:web", "--port", str(port)]
    with served(PYTHON, args, tmp_path / "log", url, env):
        orders(url, shared_daemon, port)


def test_django(tmp_path: Path, shared_daemon: Daemon) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/orders"
    env = {"JQD_URL": shared_daemon.url, "MYSITE_DB": str(tmp_path / "db")}
    run(*MANAGE, "migrate", "-v", "0", env=env)
    with (
        served(MANAGE, ["runserver", "--noreload", str(port)], tmp_path / "log", url, env),
        Client(shared_daemon.url) as client,
    ):
        for number, processes in ((port, "0"), (port + 1, "1")):
            args = ["jqdworker", "--processes", processes]
            with Process(args, tmp_path / "worker", env=env, program=MANAGE) as worker:
                told = httpx2.post(f"{url}/{number}", timeout=WAIT_S)
                assert told.status_code == 202, told.text
                assert httpx2.post(f"{url}/{number}", timeout=WAIT_S).status_code == 500, "the number is taken"
                counted = client.get(told.json()["task"], wait=WAIT_S)
                assert (counted.name, counted.result) == ("slow:examples.mysite.shop.tasks.count", number + 3)
                found = list(client.jobs(name="examples.mysite.shop.tasks.thank"))
                assert len(found) == number - port + 1, "nobody is thanked for what was rolled back"
                client.wait([found[0].job_id], timeout=WAIT_S)
                assert httpx2.get(f"{url}/{number}", timeout=WAIT_S).json() == {"thanked": "at attempt 2"}
                assert worker.stop() == 0
        code = f"from examples.mysite.shop.tasks import thank; r = thank.get_result('{found[0].job_id}'); "
        code += "print(r.status, r.return_value, r.attempts, r.errors[0].exception_class.__name__, r.args)"
        line = run(*MANAGE, "shell", "-v", "0", "-c", code, env=env).splitlines()[-1]
        assert line == f"SUCCESSFUL at attempt 2 2 ConnectionError [{port + 1}]"
