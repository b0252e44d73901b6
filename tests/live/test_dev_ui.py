"""`jqd dev` starts the web UI beside its daemon; one that dies is started again and takes nobody along."""

import os
import signal
import subprocess

import httpx2
import pytest

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import Process, wait_for


def uis(url: str) -> list[int]:
    """The processes that serve the UI of that daemon."""
    told = subprocess.run(["pgrep", "-f", f"jqd ui --url {url} "], capture_output=True, text=True, check=False)
    return [int(line) for line in told.stdout.split()]


@pytest.mark.long
def test_dev_has_a_web_ui_that_may_die() -> None:
    with short_directory() as base:
        args = ["dev", "--data-dir", str(base / "d"), "--bind", "127.0.0.1:0"]
        with Process(args, base / "log") as dev:
            url = dev.wait_line("jqd is ready at").split()[-1]
            page = dev.wait_line("jqd ui is ready at").split()[-1]
            assert httpx2.get(page, timeout=20).status_code == 200
            (ui,) = uis(url)
            os.kill(ui, signal.SIGKILL)
            again = dev.wait_line("jqd ui is ready at").split()[-1]
            assert httpx2.get(again, timeout=20).status_code == 200
            with Client(url) as client:
                assert client.ready()["ready"]
            assert dev.interrupt() == 0
        wait_for(lambda: uis(url) == [], "the web UI outlives what started it")
