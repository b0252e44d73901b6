"""A worker of some priorities finds its jobs behind any number of better ones, and of types nobody serves."""

from pathlib import Path
from typing import Any

import httpx2

from jqd.client import Client
from tests.directories import short_directory
from tests.live.harness import Daemon, Process

WAIT_S = 60.0  # nothing that is waited for comes near
TYPES = 10_000
OTHERS = 2_000  # better jobs of the very types it serves


def test_a_worker_of_some_priorities_finds_its_jobs(tmp_path: Path) -> None:
    flags = ["--concurrency", "1", "--priority-min", "10"]
    env = {"JQD_TEST_BOOK": str(tmp_path / "book"), "JQD_WORKER_PRIORITY_MAX": "20"}
    with (
        short_directory() as base,
        Daemon(base / "d", env={"JQD_STORE__PARTITIONS": "3"}) as daemon,
        Client(daemon.url) as client,
    ):
        client.push_many([{"name": f"nobody-{number}", "priority": number % 30 - 5} for number in range(TYPES)])
        better = [{"name": name, "argument": 0, "priority": -1} for name in ("slow", "noop")]
        client.push_many(better * (OTHERS // 2))
        (worse,) = client.push_many([{"name": "slow", "argument": 0, "priority": 21}])
        # A worker that takes any type, of priorities beside: nothing of what it may not have comes to it.
        any_type = {
            "name": "any",
            "url": "http://127.0.0.1:9/",
            "jobs": "*",
            "max_jobs": 1,
            "priority_min": 22,
            "priority_max": 23,
        }
        httpx2.post(f"{daemon.url}/v1/workers", json=any_type).raise_for_status()
        mine: list[dict[str, Any]] = [
            {"name": name, "argument": argument, "priority": priority}
            for priority in (20, 15, 10)
            for name, argument in (("slow", 0), ("noop", None), ("square", {"n": 2}))
        ]
        with Process(["worker", "tests.live.recorder:app", "--daemon", daemon.url, *flags], tmp_path / "log", env):
            ids = client.push_many(mine)
            infos = client.wait(ids, timeout=WAIT_S)
            assert [(info.state, info.attempts) for info in infos] == [("succeeded", 1)] * len(mine)
            assert client.get(worse).state == "waiting"
            assert daemon.get("/v1/stats").json()["store"]["ended"] == len(mine)
