"""`jqd dev`: one command is a whole queue, and Ctrl-C stops all of it cleanly."""

import re
import subprocess
import sys

from jqd.client import Client
from tests.live.harness import Process, short_directory


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
