"""Whatever happens to what only tells, jobs go on: logs on a full disk, of a reader that is gone, or stands."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import Process

JOBS = 5


@pytest.fixture(params=["gone", "stands"])
def stderr(request: pytest.FixtureRequest) -> Iterator[int]:
    """A pipe that takes nothing: its reader has gone, or stands still."""
    fds = [*reversed(os.pipe())]
    if request.param == "gone":
        os.close(fds.pop())
    else:
        os.set_blocking(fds[0], False)
        with suppress(BlockingIOError):
            while True:
                os.write(fds[0], b"x" * 4096)
        os.set_blocking(fds[0], True)
    yield fds[0]
    for fd in fds:
        os.close(fd)


def test_a_log_that_takes_nothing_neither_ends_nor_stops_a_daemon_or_a_worker(stderr: int, tmp_path: Path) -> None:
    settings = {"JQD_LOG__JOB_LOG": "/dev/full", "JQD_LOG__LEVEL": "debug", "JQD_LOG__FORM": "json"}
    with short_directory() as base:
        serve = ("serve", "--bind", "127.0.0.1:0", "--data-dir", str(base / "d"))
        with Process(serve, tmp_path / "d", settings, stderr=stderr) as daemon:
            url = daemon.wait_line("://").split()[-1]
            words = ("worker", "tests.live.talker:app", "-v", "--daemon", url)
            with Process(words, tmp_path / "w", stderr=stderr) as worker, Client(url) as client:
                ids = client.push_many([{"name": "mutter"} for _ in range(JOBS)])
                client.wait(ids, timeout=30)
                found = [client.get(job_id) for job_id in ids]
                assert [(info.state, info.attempts) for info in found] == [("succeeded", 1)] * JOBS
                assert client.stats()["log"]["dropped_lines"] >= 0, "those that wait for a reader are not lost yet"
                assert worker.stop() == 0
            assert daemon.stop() == 0
