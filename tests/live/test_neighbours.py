"""Jobs in one worker are fair: what is quick opens no door for what is slow, and none pays for another."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import Daemon, Process, Worker, pair

WAIT_S = 60.0  # nothing that is waited for comes near
SLOTS = 4


def wait_ended(daemon: Daemon, jobs: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while daemon.get("/v1/stats").json()["store"]["ended"] < jobs:
        assert time.monotonic() < deadline, f"not all of {jobs} jobs ended"
        time.sleep(0.05)  # watches a process of its own


def in_flight(daemon: Daemon) -> list[int]:
    """Of each worker."""
    return [row["in_flight"] for row in daemon.get("/v1/stats").json()["runner"]["workers"]]


def test_quick_jobs_open_no_door_for_slow_ones(tmp_path: Path) -> None:
    with (
        pair() as (_, first, second, _),
        Worker(tmp_path / "one", first.url, second.url, concurrency=SLOTS) as one,
        Client(first.url) as client,
    ):
        client.push_many([{"name": "noop"} for _ in range(3_000)])
        wait_ended(first, 3_000)
        with Worker(tmp_path / "two", first.url, second.url, concurrency=SLOTS) as two:
            deadline = time.monotonic() + WAIT_S
            while any(len(daemon.get("/v1/workers").json()["workers"]) < 2 for daemon in (first, second)):
                assert time.monotonic() < deadline
                time.sleep(0.02)  # watches a process of its own
            slow = client.push_many([{"name": "slow", "argument": 1.0, "priority": 0} for _ in range(100)])
            hands = []
            while len(one.entries()) + len(two.entries()) < SLOTS:
                hands += [in_flight(daemon) for daemon in (first, second)]
            urgent = client.push("slow", 0, priority=-100)
            client.wait([urgent], timeout=WAIT_S)
            started = one.starts() + two.starts()
            hands += [in_flight(daemon) for daemon in (first, second)]
        assert max(max(row) for row in hands) <= SLOTS, "no more than it can run leaves the daemon"
        assert urgent in started
        # Its turn came with the next slot: after those at work when it was pushed, and those that ended beside it.
        assert len(started.keys() & set(slow)) <= 4 * SLOTS
        assert one.starts()
        assert two.starts()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def supervised(book: Path, daemon: Daemon) -> Iterator[list[int]]:
    """A worker that is started again whenever it ends; its exit codes."""
    args = ["worker", "tests.live.recorder:app", "--daemon", daemon.url, "--bind", f"127.0.0.1:{free_port()}"]
    codes: list[int] = []
    over = threading.Event()

    def supervise() -> None:
        while not over.is_set():
            with Process(args, book.with_suffix(".log"), {"JQD_TEST_BOOK": str(book)}) as process:
                while process.child.poll() is None and not over.wait(0.01):
                    continue  # watches a process of its own
                if not over.is_set():
                    codes.append(process.child.returncode)

    thread = threading.Thread(target=supervise)
    thread.start()
    try:
        yield codes
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(
    ("poisons", "retries", "rounds"),
    [(2, 0, 1), pytest.param(1, 1, 8, marks=pytest.mark.long), pytest.param(4, 2, 1, marks=pytest.mark.long)],
)
def test_a_job_that_takes_its_process_down_spends_no_attempt_of_its_neighbours(
    tmp_path: Path, poisons: int, retries: int, rounds: int
) -> None:
    """With one daemon: what another one's suspects do to a worker is not known here (adr/0011, costs)."""
    env = {"JQD_RETRY__FIRST_S": "0.2", "JQD_RUNNER__BACKOFF_FIRST_S": "0.1", "JQD_RUNNER__BACKOFF_CAP_S": "0.5"}
    book = tmp_path / "book"
    with (
        short_directory() as base,
        Daemon(base / "d", env=env) as daemon,
        Client(daemon.url) as client,
        supervised(book, daemon) as codes,
    ):
        for _ in range(rounds):
            warm = client.push_many([{"name": "noop"} for _ in range(100)])  # on connections that are kept
            client.wait(warm, timeout=WAIT_S)
            codes.clear()
            jobs = [{"name": "neighbour", "argument": 0.01, "max_retry": 0} for _ in range(50)]
            for number in range(poisons):
                jobs[7 + 11 * number] |= {"argument": "exit", "max_retry": retries}
            ids = client.push_many(jobs)
            infos = dict(zip(ids, client.wait(ids, timeout=WAIT_S), strict=True))
            for job_id, job in zip(ids, jobs, strict=True):
                expected = ("failed", retries + 1) if job["argument"] == "exit" else ("succeeded", 1)
                assert (infos[job_id].state, infos[job_id].attempts) == expected
            assert set(codes) == {7}
            # Each of them: once with the whole request, once with an eighth of that, then by itself as often as it is
            # tried, and nobody is sent beside it then: a death in company would be one more. Two in one request share.
            assert (retries + 1) * poisons < len(codes) <= (retries + 3) * poisons, f"{len(codes)} deaths"
