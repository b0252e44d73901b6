"""What the journal takes on the disk with a retention of nothing: jobs are pushed and run to their end, then its
segments are counted. One, the open one, is what must be left.
"""

import tempfile
import threading
import time
from pathlib import Path

import httpx2

from bench.processes import batch, serve, worker
from bench.result import Result

ARRAY = 1_000
LOOK_S = 0.2
AHEAD = 50_000  # jobs pushed before the worker is waited for: a backlog, not the whole run
IDLE_LOOKS = 5  # one after another without work: nothing is on its way to the store any more
LIMIT_S = 1_800.0  # an end to waiting, not a measure
NOTHING_KEPT = {"JQD_JOURNAL__RETENTION_S": "0", "JQD_JOURNAL__RETENTION_BYTES": "0"}
HEADERS = {"content-type": "application/msgpack", "accept": "application/json"}


def run(jobs: int) -> Result:
    """MB of journal at its peak and at the end, and the segments left."""
    with (
        tempfile.TemporaryDirectory(prefix=".jqd-bench-", dir=Path.cwd()) as directory,
        serve(Path(directory) / "data", NOTHING_KEPT) as (url, _),
        worker(url),
        httpx2.Client(timeout=60) as client,
    ):
        journal = Path(directory) / "data" / "journal"
        peak: list[int] = [0]
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(journal, done, peak))
        watcher.start()
        body, deadline_s = batch(ARRAY, "noop"), time.monotonic() + LIMIT_S
        for _ in range(max(1, jobs // ARRAY)):
            client.post(url + "/v1/jobs", content=body, headers=HEADERS).raise_for_status()
            while _unfinished(client, url) > AHEAD and time.monotonic() < deadline_s:
                time.sleep(LOOK_S)
        idle = 0
        while idle < IDLE_LOOKS and time.monotonic() < deadline_s:
            busy = _unfinished(client, url) or len(_segments(journal)) > 1
            idle = 0 if busy else idle + 1
            time.sleep(LOOK_S)
        done.set()
        watcher.join()
        left = _segments(journal)
        figures = {"peak_mb": peak[0] / 1e6, "left_mb": sum(left) / 1e6, "segments": float(len(left))}
    return Result("space", figures, ok=len(left) == 1)


def _unfinished(client: httpx2.Client, url: str) -> int:
    """Jobs that wait for something or run."""
    store = client.get(url + "/v1/stats", headers=HEADERS).json()["store"]
    return int(store["waiting"] + store["scheduled"] + store["running"])


def _segments(journal: Path) -> list[int]:
    """Their sizes."""
    sizes = []
    for path in journal.glob("*.jqd"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue  # deleted between the listing and the look
    return sizes


def _watch(journal: Path, done: threading.Event, peak: list[int]) -> None:
    while not done.wait(LOOK_S):
        peak[0] = max(peak[0], sum(_segments(journal)))
