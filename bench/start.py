"""A daemon that starts on a backlog: jobs of 200 bytes in its journal, not one of them ingested. How fast do they reach
the store while pushes go on, and how much memory does the daemon need? Once as they lie there after bulk pushes, a
thousand to a frame, and once each in a frame of its own.
"""

import os
import tempfile
import threading
import time
from pathlib import Path

import httpx2
import msgspec
import trio

from bench.processes import serve
from bench.result import Result
from jqd.domain.clock import SystemClock
from jqd.domain.record import Head, Lane, encode_jobs
from jqd.journal import JournalConfig, open_journal

WAIT_S = 600.0  # an end to waiting, not a measure: a daemon that has not ingested all by then failed
LOOK_S = 0.1
PUSH_EVERY_S = 0.02  # one job each: some fifty a second, beside the backlog
JSON = {"accept": "application/json"}


ARRAY = 1_000


def run(jobs: int) -> Result:
    """Jobs ingested per second from the moment the daemon is ready to the last of the backlog, and peak memory."""
    bulk, single = _start_on(jobs, ARRAY), _start_on(jobs, 1)
    figures = dict(bulk.figures) | {f"single_{name}": value for name, value in single.figures.items()}
    return Result("start", figures, ok=bulk.ok and single.ok)


def _start_on(jobs: int, frame: int) -> Result:
    with tempfile.TemporaryDirectory(prefix=".jqd-bench-", dir=Path.cwd()) as directory:
        data = Path(directory) / "data"
        end = trio.run(_fill, data / "journal", jobs, frame)
        began = time.perf_counter()
        with serve(data) as (url, process):
            ready = time.perf_counter()
            stop = threading.Event()
            pushed: list[int] = []
            pusher = threading.Thread(target=_push, args=(url, stop, pushed))
            pusher.start()
            figures = _watch(url, process.pid, end)
            seconds = time.perf_counter() - ready
            stop.set()
            pusher.join()
            waiting = httpx2.get(url + "/v1/stats", headers=JSON, timeout=60).json()["store"]["waiting"]
    figures |= {"jobs_per_s": jobs / seconds, "ready_s": ready - began, "pushed_meanwhile": float(len(pushed))}
    return Result("start", figures, ok=waiting >= jobs and all(status == 201 for status in pushed))


async def _fill(directory: Path, jobs: int, frame: int) -> int:
    """A journal with `jobs` jobs, `frame` to a frame; returns its end."""
    body = msgspec.msgpack.encode([{"name": "noop", "argument": "x" * 200}] * frame)
    async with open_journal(JournalConfig(directory=directory), clock=SystemClock()) as journal:
        for number in range(0, jobs, frame):
            ids = journal.ids.take(frame)
            journal.write(Lane.JOBS, frame, encode_jobs(Head(ids.first, 1), body))
            if number % 10_000 == 0:
                await journal.wsync()
        await journal.wsync()
        return journal.end


def _watch(url: str, pid: int, end: int) -> dict[str, float]:
    """Until the jobs lane has passed `end`. The peak is the kernel's own count of this process."""
    deadline_s = time.monotonic() + WAIT_S
    with httpx2.Client(timeout=60) as client:
        while time.monotonic() < deadline_s:
            applied = client.get(url + "/v1/stats", headers=JSON).json()["lanes"]["jobs"]["applied"]
            if applied is not None and applied >= end:
                break
            time.sleep(LOOK_S)
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {"peak_mb": int(peak.split()[1]) * 1024 / 1e6}


def _push(url: str, stop: threading.Event, statuses: list[int]) -> None:
    with httpx2.Client(timeout=60) as client:
        while not stop.wait(PUSH_EVERY_S):
            statuses.append(client.post(url + "/v1/jobs", json={"name": "noop", "argument": os.getpid()}).status_code)
