"""PYTHON.md is true: its modules, as they stand in the page, are served by real workers and do what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import anyio
import pytest

from jqd.client import AsyncClient, Client
from tests.live.harness import ROOT, Daemon, Process

ACKS: tuple[Literal["fsync", "store"], ...] = (
    "fsync",
    "fsync",
    "store",
)  # when the store has the last, it has those before it, too
WAIT_S = 30.0  # for a job to end on a busy machine
PAGE = (ROOT / "docs" / "use" / "PYTHON.md").read_text()
MODULES = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.parametrize("processes", ["0", "1"])
def test_the_examples_of_the_page_run_as_they_stand(tmp_path: Path, shared_daemon: Daemon, processes: str) -> None:
    assert sorted(MODULES) == ["mixed", "pages", "rows", "shop", "test_shop", "test_whole", "till"]
    assert PAGE.count("```python") == len(MODULES)
    for name, code in MODULES.items():  # those of tests run in test_plugin.py
        (tmp_path / f"{name}.py").write_text(code)
    (tmp_path / "all.py").write_text(
        "import mixed, pages, shop\napp = shop.app\napp._jobs.update(mixed.app._jobs | pages.app._jobs)\n"
    )
    args = ["worker", "all", "--daemon", shared_daemon.url, "--processes", processes]
    with (
        Process(args, tmp_path / "log", cwd=tmp_path) as worker,
        Client(shared_daemon.url) as client,
    ):
        # Pushed without options: those of the declaration hold, for they came with the registration.
        shared_daemon.wait_worker("price")
        priced = client.get(client.push("price", {"item": "tea", "count": 2}), wait=WAIT_S)
        assert (priced.result, priced.max_retry) == (7.0, 3)
        assert client.get(client.push("price", {"item": "tea"}, max_retry=1), wait=WAIT_S).max_retry == 1
        failed = client.get(client.push("price", {"item": "rum"}), wait=WAIT_S)
        assert (failed.state, failed.attempts, failed.message) == ("failed", 1, "there is no rum")
        failed = client.get(client.push("price", {"itme": "tea"}), wait=WAIT_S)
        assert (failed.state, failed.attempts) == ("failed", 1)
        assert "takes (item: str, count: int = 1): Object contains unknown field" in str(failed.message)
        bill = client.get(client.push("bill", {"item": "cake"}), wait=WAIT_S)
        assert (bill.state, bill.attempts, bill.priority) == ("succeeded", 2, -5)
        assert bill.history[0]["message"] == "the printer is busy"
        for name, given, result in [
            ("fetch", {"url": "a"}, "A"),
            ("relay", {"text": "B"}, "b"),
            ("crunch", {"number": 10}, 45),
        ]:
            assert client.result(client.push(name, given), wait=WAIT_S) == result
        resized = client.push("resize", {"pages": ["a", "b"]}, keep_result=True)
        assert client.result(resized, wait=WAIT_S) == 2
        first = not list(client.jobs(tag="till"))  # of two processes that share these tests each has a daemon
        # Who pushes needs the module and the daemon's URL, and no trio.
        told = subprocess.run(
            [sys.executable, "-c", "import sys; sys.modules['trio'] = None; import till, rows"],
            cwd=tmp_path,
            env=os.environ | {"JQD_URL": shared_daemon.url},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        printed = ["7.0", str(not first), "True", "[3.5, 4.0]", "12.0", "1050.0"]
        assert (told.stdout.split("\n"), told.stderr) == ([*printed, ""], "")
        assert worker.stop() == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_async_client_runs_under_both_loops(shared_daemon: Daemon, backend: str) -> None:
    async def main() -> None:
        name = f"async-{backend}"
        async with AsyncClient(shared_daemon.url) as client:
            job_ids = [await client.push(name, number, ack=ack, delay="1h") for number, ack in enumerate(ACKS)]
            assert [job.job_id async for job in client.jobs(name=name, state="scheduled")] == job_ids[::-1]
            assert await client.cancel(job_ids[0])
            assert [info.state for info in await client.wait(job_ids[:1], timeout=WAIT_S)] == ["cancelled"]

    anyio.run(main, backend=backend)
