"""Jobs in one worker are fair to each other: what is quick opens no door for what is slow."""

import time
from pathlib import Path

from jqd.client import Client
from tests.live.harness import Daemon, Worker, short_directory

WAIT_S = 60.0  # nothing that is waited for comes near
SLOTS = 4


def wait_ended(daemon: Daemon, jobs: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while daemon.get("/v1/stats").json()["store"]["ended"] < jobs:
        assert time.monotonic() < deadline, f"not all of {jobs} jobs ended"
        time.sleep(0.05)  # watches a process of its own


def test_quick_jobs_open_no_door_for_slow_ones(tmp_path: Path) -> None:
    with (
        short_directory() as base,
        Daemon(base / "d") as daemon,
        Worker(tmp_path / "one", daemon.url, concurrency=SLOTS) as one,
        Client(daemon.url) as client,
    ):
        client.push_many([{"name": "noop"} for _ in range(3_000)])
        wait_ended(daemon, 3_000)
        with Worker(tmp_path / "two", daemon.url, concurrency=SLOTS) as two:
            deadline = time.monotonic() + WAIT_S
            while len(daemon.get("/v1/workers").json()["workers"]) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.02)  # watches a process of its own
            slow = client.push_many([{"name": "slow", "argument": 1.0, "priority": 0} for _ in range(100)])
            hands = []
            while len(one.entries()) + len(two.entries()) < SLOTS:
                hands.append([row["in_hand"] for row in daemon.get("/v1/stats").json()["runner"]["workers"]])
            urgent = client.push("slow", 0, priority=-100)
            client.wait([urgent], timeout=WAIT_S)
            started = one.starts() + two.starts()
            hands.append([row["in_hand"] for row in daemon.get("/v1/stats").json()["runner"]["workers"]])
        assert max(max(row) for row in hands) <= SLOTS, "no more than it can run leaves the daemon"
        assert urgent in started
        # Its turn came with the next slot: after those at work when it was pushed, and those that ended beside it.
        assert len(started.keys() & set(slow)) <= 4 * SLOTS
        assert one.starts()
        assert two.starts()
