"""What the journal takes on a real disk when its jobs are done, and what a copy of its directory does."""

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import LEASE, Daemon, Worker
from tests.live.test_crash import wait_all_ended
from tests.valkey import valkey

SEGMENT_BYTES = 64 << 10
SMALL = {"JQD_JOURNAL__SEGMENT_BYTES": str(SEGMENT_BYTES)}


def segments_bytes(data_dir: Path) -> int:
    """What `ls` would add up. A file that retention takes between the list and the look counts as nothing."""
    total = 0
    for path in (data_dir / "journal").iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)  # watches files of a process of its own


@pytest.mark.long
@pytest.mark.parametrize("keep", [0, pytest.param(4 * SEGMENT_BYTES, marks=pytest.mark.long)])
def test_finished_jobs_give_the_disk_back_and_a_far_job_pins_nothing(tmp_path: Path, keep: int) -> None:
    retention = {"JQD_JOURNAL__RETENTION_BYTES": str(keep), "JQD_JOURNAL__RETENTION_S": "0" if not keep else "86400"}
    with (
        short_directory() as base,
        Daemon(base / "d", env={**SMALL, **retention}) as daemon,
        Worker(tmp_path / "book", daemon.url) as worker,
        Client(daemon.url) as client,
    ):
        far = client.push("square", {"n": 0}, delay=86_400)
        ids: list[str] = []
        for _ in range(4):
            ids += client.push_many([{"name": "square", "argument": {"n": 1, "pad": "x" * 200}} for _ in range(1_000)])
        wait_all_ended(daemon.url, ids[-10:])
        limit = keep + 2 * SEGMENT_BYTES
        wait_for(lambda: segments_bytes(base / "d") <= limit, f"the journal stays above {limit} bytes")
        assert client.get(far).state == "scheduled"
        assert worker.stop() == 0
        assert daemon.stop() == 0
        kept = list((base / "d" / "journal").glob("*"))
        assert any(far.encode() in path.read_bytes() for path in kept), "it is still in the journal"


@pytest.mark.long
def test_a_copied_directory_goes_on_under_an_id_of_its_own_and_loses_nothing(tmp_path: Path) -> None:
    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)
        with Daemon(base / "d", *flags, env=LEASE) as daemon, Client(daemon.url) as client:
            first = client.push_many([{"name": "square", "argument": {"n": n}} for n in range(20)])
            assert daemon.stop() == 0
        shutil.copytree(base / "d", base / "copy")
        with Daemon(base / "d", *flags, env=LEASE) as daemon, Client(daemon.url) as client:
            second = client.push_many([{"name": "square", "argument": {"n": n}} for n in range(20)])
            wait_for(lambda: client.stats()["store"]["waiting"] == 40, "not ingested")
            # The copy is older than what the store has applied, and it is in use at the same time.
            with Daemon(base / "copy", *flags, env=LEASE) as twin, Client(twin.url) as other:
                third = other.push_many([{"name": "square", "argument": {"n": n}} for n in range(50)])
                fourth = client.push_many([{"name": "square", "argument": {"n": n}} for n in range(50)])
                wait_for(lambda: client.stats()["store"]["waiting"] == 140, "jobs of one of the copies were lost")
                numbers = {client.stats()["daemon"], other.stats()["daemon"]}
                assert len(numbers) == 2, "each has a seat of its own"
                with Worker(tmp_path / "book", daemon.url, twin.url) as worker:
                    wait_all_ended(daemon.url, first + second + third + fourth)
                    assert worker.stop() == 0
                    assert set(worker.starts()) == {*first, *second, *third, *fourth}
                assert twin.stop() == 0
            assert daemon.stop() == 0
        # Both start again from what they wrote.
        for name in ("d", "copy"):
            with Daemon(base / name, *flags, env=LEASE) as again:
                assert again.stop() == 0
