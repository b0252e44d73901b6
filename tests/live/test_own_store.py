"""A daemon's own store: it keeps the number of partitions it was begun with, and nobody else has its jobs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jqd.cli import run
from jqd.cli.exits import Exit
from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import LEASE, Daemon, Worker, wait_for
from tests.live.test_crash import wait_all_ended
from tests.live.test_servers import jobs

EIGHT = {"JQD_STORE__PARTITIONS": "8"}
# A daemon as it was when nobody looked at its own store: it is ready, and runs nothing.
UNLOOKED = """
import sys
import jqd.serve
from jqd.cli import run

async def nothing(parts): return [jqd.serve.watch_over(part) for part in parts]

jqd.serve._look_at_all = nothing
sys.exit(run(sys.argv[1:]))
"""


def push_unlooked(data_dir: Path) -> list[str]:
    args = [sys.executable, "-c", UNLOOKED, "serve", "--bind", "127.0.0.1:0", "--data-dir", str(data_dir)]
    with data_dir.with_suffix(".log").open("ab") as log:
        child = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert child.stdout is not None
        with child.stdout as out, Client(out.readline().split()[-1]) as client:
            return client.push_many(jobs("square", 20) + jobs("cube", 20))
    finally:
        child.terminate()
        child.wait(timeout=60)


@pytest.mark.long
def test_another_number_of_partitions_is_refused_and_what_was_taken_so_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with short_directory() as base:
        data_dir = base / "d"
        with Daemon(data_dir, env=EIGHT) as daemon, Client(daemon.url) as client:
            before = client.push_many(jobs("square", 20))
            with Worker(tmp_path / "book", daemon.url) as worker:
                wait_all_ended(daemon.url, before)
                assert worker.stop() == 0
            kept = client.push_many(jobs("square", 5) + jobs("cube", 5))
            assert daemon.stop() == 0

        assert run(["serve", "--bind", "127.0.0.1:0", "--data-dir", str(data_dir)]) == Exit.FAILED
        told = capfd.readouterr()
        assert "jqd: the store cannot be used: store.partitions is 1 here, and the store was begun with 8" in told.err
        assert "set store.partitions = 8, as it was" in told.err
        assert told.out == "", "it never said that it is ready"

        taken = push_unlooked(data_dir)
        with Daemon(data_dir, env=EIGHT) as daemon, Worker(tmp_path / "later", daemon.url) as worker:
            wait_all_ended(daemon.url, [*kept, *taken])
            starts = worker.starts()
            assert starts.keys() >= {*kept, *taken}
            assert set(starts.values()) == {1}
            assert worker.stop() == 0
            assert daemon.stop() == 0


def test_a_job_in_flight_outlives_its_daemons_own_store_that_is_away_for_longer_than_a_lease(tmp_path: Path) -> None:
    """Nobody else can have it: it ran a second time, beside the first."""
    with short_directory() as base, Daemon(base / "d", env=LEASE) as daemon, Client(daemon.url) as client:
        with Worker(tmp_path / "book", daemon.url) as worker:
            job_id = client.push("slow", 8.0)
            wait_for(lambda: worker.starts()[job_id] == 1, "it runs")
            started = [line for line in daemon.log.read_text().splitlines() if '"valkey.started"' in line]
            server = int(json.loads(started[-1])["pid"])
            os.kill(server, signal.SIGSTOP)
            not_run = "has not confirmed this daemon's lease"
            wait_for(lambda: not_run in daemon.get("/readyz/run").text, "the lease is over")
            os.kill(server, signal.SIGKILL)
            assert client.get(job_id, wait=60).state == "succeeded"
            assert worker.starts()[job_id] == 1
            assert worker.stop() == 0
        assert daemon.stop() == 0
