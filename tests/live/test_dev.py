"""`jqd dev`: one command is a whole queue, and Ctrl-C stops all of it cleanly."""

import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import Process


def test_dev_works_where_the_user_stands_without_any_option() -> None:
    code = "import sys; from jqd.cli import run; sys.exit(run(['dev', '--bind', '127.0.0.1:0']))"
    with short_directory() as base:
        child = subprocess.Popen(
            [sys.executable, "-c", code], cwd=base, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout is not None
            assert "is ready at" in child.stdout.readline()
            assert (base / ".jqd" / "journal").is_dir()
        finally:
            child.terminate()
            _, told = child.communicate(timeout=60)
        assert child.returncode == 0, told


def test_dev_prints_a_push_line_that_works_and_ctrl_c_stops_everything() -> None:
    with short_directory() as base:
        args = ["dev", "--data-dir", str(base / "d"), "--bind", "127.0.0.1:0"]
        with Process(args, base / "log", {"JQD_LOG__FORM": "json"}) as dev:
            url = dev.wait_line("is ready at").split()[-1]
            line = dev.wait_line("push a job:").split(":", 1)[1].strip()
            told = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=30, check=True)
            found = re.search(r'"job_id": ?"(\w+)"', told.stdout)
            assert found, told.stdout
            with Client(url) as client:
                assert client.result(found.group(1), wait=30) == 42
                slow = client.push("sleep", 1.0)
                while client.get(slow).state != "running":
                    client.get(slow, wait=0.05)
            assert dev.interrupt() == 0
            assert "valkey.died" not in dev.log.read_text()
        left = subprocess.run(["pgrep", "-f", str(base)], capture_output=True, text=True, check=False)
        assert left.stdout == ""
        with Process(args, base / "log") as dev, Client(dev.wait_line("is ready at").split()[-1]) as client:
            assert client.get(slow).state == "succeeded"  # it was drained, and the data survived
            dev.kill()


@pytest.mark.parametrize("form", ["auto", pytest.param("json", marks=pytest.mark.long)])
def test_ctrl_c_in_a_terminal_says_what_is_waited_for_but_not_among_json_lines(form: str) -> None:
    ours, theirs = pty.openpty()
    with short_directory() as base, os.fdopen(ours, "rb", buffering=0) as terminal:
        args = [sys.executable, "-m", "jqd", "dev", "--data-dir", str(base / "d"), "--bind", "127.0.0.1:0"]
        env = {**os.environ, "JQD_LOG__FORM": form}
        child = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=theirs, env=env, text=True)
        try:
            assert child.stdout is not None
            assert "is ready at" in child.stdout.readline()
            os.set_blocking(theirs, False)
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=60) == 0
            os.write(theirs, b"END\n")
            told = b""
            while not told.endswith(b"END\r\n"):
                told += terminal.read(4096) or b""
        finally:
            os.close(theirs)
            child.kill()
            child.communicate(timeout=60)
    line = b"jqd: stopping; waits for 0 jobs in flight, up to 25 s. A second Ctrl-C ends it at once\r\n"
    assert (line in told) == (form == "auto")
