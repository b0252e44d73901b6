"""Bulk enqueue over HTTP: arrays of 1,000 jobs of 200 bytes, four connections, every ack fsynced, ingest running."""

import threading
import time

import httpx2

from bench.processes import batch, daemon
from bench.result import Result, percentile

CONNECTIONS = 4
ARRAY = 1_000
MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}


def run(jobs: int) -> Result:
    """Jobs acknowledged per second, and the latency of a request."""
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
    figures = {
        "jobs_per_s": arrays * CONNECTIONS * ARRAY / seconds,
        "p50_ms": percentile(latencies_ms, 0.5),
        "p99_ms": percentile(latencies_ms, 0.99),
    }
    return Result("enqueue", figures, ok=not failures)
