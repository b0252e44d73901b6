"""Bulk enqueue over HTTP: arrays of 1,000 jobs of 200 bytes, four connections, every ack fsynced, ingest running.

Acknowledging and ingesting share one core: the faster the one, the less is left for the other. So what two versions are
compared by is the time until all jobs are in the store, beside the time until all are acknowledged.
"""

import threading
import time

import httpx2

from bench.processes import batch, daemon, decode
from bench.result import Result, percentile

CONNECTIONS = 4
ARRAY = 1_000
LOOK_S = 0.05  # between looks whether all is in the store
MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}


def run(jobs: int) -> Result:
    """Jobs acknowledged per second, jobs in the store per second, and the latency of a request."""
    body = batch(ARRAY, "noop")
    latencies_ms: list[float] = []
    failures: list[int] = []

    def push(url: str, arrays: int) -> None:
        with httpx2.Client(timeout=60) as client:
            for _ in range(arrays):
                began = time.perf_counter()
                answer = client.post(url + "/v1/jobs", content=body, headers=MSGPACK)
                latencies_ms.append((time.perf_counter() - began) * 1e3)
                if answer.status_code != 201:
                    failures.append(answer.status_code)

    with daemon() as url:
        push(url, 1)
        latencies_ms.clear()
        arrays = max(1, jobs // ARRAY // CONNECTIONS)
        threads = [threading.Thread(target=push, args=(url, arrays)) for _ in range(CONNECTIONS)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        while not _is_stored(url):
            time.sleep(LOOK_S)
        stored_s = time.perf_counter() - began
    count = arrays * CONNECTIONS * ARRAY
    figures = {
        "jobs_per_s": count / seconds,
        "stored_per_s": count / stored_s,
        "p50_ms": percentile(latencies_ms, 0.5),
        "p99_ms": percentile(latencies_ms, 0.99),
    }
    return Result("enqueue", figures, ok=not failures)


def _is_stored(url: str) -> bool:
    lanes = decode(httpx2.get(url + "/v1/stats").content)["lanes"]
    assert isinstance(lanes, dict)
    return bool(lanes["jobs"]["applied"] == lanes["jobs"]["end"])
