"""A job goes all the way: pushed, journaled, stored, scheduled, run by a worker process, its result fetched."""

import random
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jqd.client import Client
from tests.live.harness import Daemon, Worker, cluster

CLIENTS = 4
TAKEN_BACK = ("runner.stop_work", "runner.lost", "reap.jobs", "reconcile.released", "dispatch.void_claim")


def push_share(url: str, numbers: list[int], out: list[str], seed: int) -> None:
    source = random.Random(seed)
    with Client(url) as client:
        for start in range(0, len(numbers), 250):
            jobs = [
                {
                    "name": "square",
                    "argument": {"n": n, "pad": "x" * 180},
                    "priority": source.randint(-3, 3),
                    "keep_result": True,
                }
                for n in numbers[start : start + 250]
            ]
            out.extend(client.push_many(jobs))


def wait_results(url: str, expected: dict[str, int], wrong: list[str]) -> None:
    with Client(url) as client:
        for job_id, n in expected.items():
            if client.result(job_id, wait=60) != {"n": n, "square": n * n}:
                wrong.append(job_id)


def wait_ended(daemon: Daemon, jobs: int) -> None:
    deadline = time.monotonic() + 100
    while daemon.get("/v1/stats").json()["store"]["ended"] < jobs:
        assert time.monotonic() < deadline, f"not all of {jobs} jobs ended"
        time.sleep(0.1)  # watches a process of its own


def taken_back(*daemons: Daemon) -> str:
    """What their logs say of jobs that were given to workers more than once."""
    lines = [line for daemon in daemons for line in daemon.log.read_text().splitlines()]
    return "\n".join(line for line in lines if any(event in line for event in TAKEN_BACK))


def in_threads(target: object, shares: list[tuple[object, ...]]) -> None:
    threads = [threading.Thread(target=target, args=share) for share in shares]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=110)
        assert not thread.is_alive()


@pytest.mark.parametrize(("jobs", "every"), [(2_000, 4), pytest.param(10_000, 1, marks=pytest.mark.long)])
def test_jobs_of_four_clients_run_exactly_once_with_right_results(jobs: int, every: int) -> None:
    """`every` so many results are fetched: one request each takes longer than all the rest."""
    with cluster() as (_, one, two, worker, _):
        shares = [list(range(k, jobs, CLIENTS)) for k in range(CLIENTS)]
        ids: list[list[str]] = [[] for _ in shares]
        in_threads(push_share, [((one, two)[k % 2].url, shares[k], ids[k], k) for k in range(CLIENTS)])
        pushed = {job_id: n for k in range(CLIENTS) for job_id, n in zip(ids[k], shares[k], strict=True)}
        assert len(pushed) == jobs

        wrong: list[str] = []
        wait_ended(two, jobs)
        items = list(pushed.items())[::every]
        in_threads(wait_results, [((two, one)[k % 2].url, dict(items[k::CLIENTS]), wrong) for k in range(CLIENTS)])
        assert wrong == []
        assert worker.starts() == dict.fromkeys(pushed, 1), taken_back(one, two)
        assert worker.stop() == 0
        assert (one.stop(), two.stop()) == (0, 0)


@pytest.mark.parametrize(
    ("argument", "state", "attempts"), [("fail", "failed", 1), ("crash", "failed", 2), ("later", "succeeded", 3)]
)
def test_a_worker_says_what_becomes_of_a_job(
    argument: str, state: str, attempts: int, tmp_path: Path, shared_daemon: Daemon
) -> None:
    with Worker(tmp_path / "book", shared_daemon.url), Client(shared_daemon.url) as client:
        job_id = client.push("moody", argument, max_retry=1 if argument == "crash" else 5, keep_result=True)
        info = client.get(job_id, wait=30)
        assert (info.state, info.attempts) == (state, attempts)
        if argument == "crash":
            assert "ValueError: on purpose" in (info.message or "")
        if argument == "fail":
            assert (info.message, info.error) == ("the data are wrong", {"field": "x"})
            client.clean(datetime.now(UTC) + timedelta(minutes=1))
            assert client.get(job_id).state == "failed", "it stays until somebody deals with it"
        if argument == "later":
            assert client.result(job_id) == "at last"
