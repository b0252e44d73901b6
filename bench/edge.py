"""What honest pushers notice of others: of thousands that are slow on purpose, and of one address that floods.

An honest client pushes one job at a time, 100 a second, in turns alone and beside the others (crowd.py): the machine's
speed changes within seconds, and both see the same of that.
"""

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import msgspec

from bench.processes import memory_mb, serve
from bench.result import Result, percentile

TURNS = 5  # of each kind
PUSHES = 200  # in a turn: the 99th percentile of all is the tenth slowest
RATE = 100
SETTLE_S = 1.0  # behind the coming and the going of the others: thousands that go at once are no part of either
RATIO_MAX = 2.0  # of the 99th percentile, beside others to alone
STORED_S_MAX = 30.0
LOOK_S = 0.0005
STOP_S_MAX = 10.0
BODY = msgspec.msgpack.encode({"name": "honest", "argument": "x" * 200})


def slow(connections: int) -> Result:
    """Slow heads, bodies and readers; and how long a stop takes with them."""
    return _beside("slow", connections)


def flood(connections: int) -> Result:
    """Pushes without a pause, all from one other address."""
    return _beside("flood", connections)


def arrays(connections: int) -> Result:
    """The same with the largest arrays: no promise but a figure."""
    return _beside("arrays", connections, math.inf)


def claimable(connections: int) -> Result:
    """From the answer to a push until its job is in the store, beside pushes without a pause."""
    return _beside("flood", connections, name="claimable", until_stored=True)


def _beside(
    kind: str, connections: int, ratio_max: float = RATIO_MAX, *, name: str = "", until_stored: bool = False
) -> Result:
    with (
        tempfile.TemporaryDirectory(prefix=".jqd-bench-", dir=Path.cwd()) as directory,
        serve(Path(directory) / "data", {"JQD_PRESSURE__WAITING_JOBS_MAX": "100000000"}) as (url, process),
    ):
        port = int(url.rpartition(":")[2])
        _pushes(port)  # what is compiled and opened once
        alone, beside = list[float](), list[float]()
        memory_before = memory = memory_mb(process.pid)
        for turn in range(TURNS):
            time.sleep(SETTLE_S)
            alone += _pushes(port, until_stored=until_stored)
            with _crowd(kind, port, connections):
                time.sleep(SETTLE_S)
                beside += _pushes(port, until_stored=until_stored)
                memory = max(memory, memory_mb(process.pid))
                if turn == TURNS - 1:
                    began_s = time.perf_counter()
                    process.terminate()
                    process.wait(timeout=60)
                    stop_s = time.perf_counter() - began_s
    ratio = percentile(beside, 0.99) / percentile(alone, 0.99)
    figures = {
        "connections": connections,
        "alone_p50_ms": percentile(alone, 0.5),
        "alone_p99_ms": percentile(alone, 0.99),
        "beside_p50_ms": percentile(beside, 0.5),
        "beside_p99_ms": percentile(beside, 0.99),
        "ratio_p99": ratio,
        "more_mb": memory - memory_before,
        "stop_s": stop_s,
    }
    return Result(name or kind, figures, ok=ratio <= ratio_max and stop_s <= STOP_S_MAX)


def _pushes(port: int, *, until_stored: bool = False) -> list[float]:
    """Milliseconds of each; or from its answer until its job is in the store."""
    took: list[float] = []
    client = HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(PUSHES):
        began_s = time.perf_counter()
        client.request("POST", "/v1/jobs", BODY, {"content-type": "application/msgpack"})
        answer = client.getresponse()
        told = answer.read()
        assert answer.status == 201, told
        ended_s = time.perf_counter()
        if until_stored:
            began_s = ended_s
            _wait_stored(client, msgspec.msgpack.decode(told)["job_id"])
            ended_s = time.perf_counter()
        took.append((ended_s - began_s) * 1e3)
        time.sleep(max(0.0, began_s + 1 / RATE - time.perf_counter()))
    client.close()
    return took


def _wait_stored(client: HTTPConnection, job_id: str) -> None:
    deadline_s = time.perf_counter() + STORED_S_MAX
    while time.perf_counter() < deadline_s:
        client.request("GET", f"/v1/jobs/{job_id}")
        if msgspec.json.decode(client.getresponse().read())["state"] != "not_ingested":
            return
        time.sleep(LOOK_S)
    raise AssertionError(f"{job_id} was not in the store within {STORED_S_MAX} s")


@contextmanager
def _crowd(kind: str, port: int, connections: int) -> Iterator[None]:
    args = [sys.executable, "-m", "bench.crowd", kind, str(port), str(connections)]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()
            process.wait(timeout=60)
