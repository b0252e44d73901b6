"""The whole way: four clients push jobs of mixed priorities while a worker runs, until the last one has ended."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx2

from bench.processes import batch, daemon, hook, worker
from bench.result import Result

CLIENTS = 4
ARRAY = 500
MSGPACK = {"content-type": "application/msgpack", "accept": "application/json"}
POLL_S = 0.02
LIMIT_S = 120.0


def run(jobs: int) -> Result:
    """Jobs per second from the first push to the last end, in batches."""
    return whole_way("e2e", jobs, worker)


def webhook(jobs: int) -> Result:
    """The same with one job a request, on a trivial web hook in Node."""
    return whole_way("webhook", jobs, hook)


def whole_way(name: str, jobs: int, worker: Callable[[str], AbstractContextManager[object]]) -> Result:
    """Jobs per second from the first push to the last end."""
    body = batch(ARRAY, "noop")
    arrays = max(1, jobs // ARRAY // CLIENTS)
    total = arrays * ARRAY * CLIENTS

    def push(url: str) -> None:
        with httpx2.Client(timeout=60) as client:
            for _ in range(arrays):
                client.post(url + "/v1/jobs", content=body, headers=MSGPACK).raise_for_status()

    with daemon() as url, worker(url), httpx2.Client(timeout=60) as client:
        wait_worker(client, url)
        threads = [threading.Thread(target=push, args=(url,)) for _ in range(CLIENTS)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pushed = time.perf_counter()
        ended = 0
        while ended < total and time.perf_counter() - began < LIMIT_S:
            time.sleep(POLL_S)
            ended = succeeded(client.get(url + "/v1/stats", headers={"accept": "application/json"}).json())
        seconds = time.perf_counter() - began
    figures = {"jobs_per_s": total / seconds, "push_per_s": total / (pushed - began), "jobs": float(total)}
    return Result(name, figures, ok=ended == total)


def succeeded(stats: dict[str, Any]) -> int:
    """How many jobs have succeeded, once the store knows it of all of them: 0 while some are on their way.

    Not the store's archive of ended jobs: it is cut at `ended_keep_jobs`, and would never count to 200,000.
    """
    store, runner = stats["store"], stats["runner"]
    under_way = store["waiting"] + store["scheduled"] + store["running"] + runner["in_flight"]
    caught_up = all(lane["applied"] == lane["end"] for lane in stats["lanes"].values())
    return 0 if under_way or not caught_up else int(runner["succeeded"])


def wait_worker(client: httpx2.Client, url: str) -> None:
    """Return when a worker is registered."""
    deadline = time.perf_counter() + LIMIT_S
    while not client.get(url + "/v1/workers", headers={"accept": "application/json"}).json()["workers"]:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"no worker registered at {url} within {LIMIT_S:.0f} s")
        time.sleep(POLL_S)
