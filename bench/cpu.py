"""Where the CPU time of a job goes: daemon, store and worker, and the daemon's own by room.

CPU time, unlike jobs a second, is nearly the same on a busy machine. The rooms are of another run, under cProfile,
which makes small functions dearer than they are: they are shares at best.
"""

import os
import pstats
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import redis

from bench.e2e import LIMIT_S, wait_worker
from bench.flows import JOB, post, succeeded_at
from bench.peers.servers import valkey
from bench.processes import directory, serve, wait_until, worker
from bench.result import Result
from bench.single import push

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
CONNECTIONS = 64
WAITING = "select.epoll"  # the profiler counts it as time
SHOWN = 8  # rooms: what the others take is of no account
Used = Callable[[], dict[str, float]]
JOBS_MIN = 1_000  # below that a tick of the clock is a microsecond a job and more


def run(jobs: int) -> Result:
    """Microseconds a job, pushed in arrays and one by one; and the daemon's rooms, in percent."""
    jobs = max(jobs, JOBS_MIN)
    figures: dict[str, float] = {}
    with directory() as base:
        with running(base, ["-m", "jqd"]) as (url, used_s, _):
            for kind in ("arrays", "single"):
                before = used_s()
                wrong = work(url, jobs, one_by_one=kind == "single")
                for name, seconds in used_s().items():
                    figures[f"{kind}_{name}_us"] = (seconds - before[name]) / jobs * 1e6
        profile = base / "profile"
        with running(base, ["-m", "bench.profiled", str(profile)]) as (url, _, process):
            process.send_signal(signal.SIGUSR2)
            wrong += work(url, jobs)
        shares = by_room(pstats.Stats(str(profile)).stats)  # type: ignore[attr-defined]
    figures |= {f"{room}_percent": share * 100 for room, share in shares.most_common(SHOWN)}
    return Result("cpu", figures, ok=not wrong)


@contextmanager
def running(base: Path, program: list[str]) -> Iterator[tuple[str, Used, "subprocess.Popen[str]"]]:
    """A store, a daemon and a worker; the URL, what tells the CPU seconds of each so far, and the daemon's process."""
    place = base / f"run-{len([*base.iterdir()])}"
    (place / "store").mkdir(parents=True)
    with (
        valkey(place / "store") as store,
        serve(place / "data", {"JQD_STORE__URL": store}, program) as (url, process),
        worker(url) as at_work,
        redis.Redis.from_url(store) as client,
        httpx2.Client(timeout=60) as asking,
    ):
        wait_worker(asking, url)

        def used_s() -> dict[str, float]:
            cpu = client.info("cpu")
            server_s = float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
            return {"daemon": cpu_s(process.pid), "store": server_s, "worker": cpu_s(at_work.pid)}

        yield url, used_s, process


def cpu_s(pid: int) -> float:
    """What a process has used, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def work(url: str, jobs: int, *, one_by_one: bool = False) -> int:
    """Push so many, and return when they have succeeded: how many answers were wrong."""
    wrong, total = 0, jobs
    with httpx2.Client(timeout=60) as client:
        before = succeeded_at(client, url)
        if one_by_one:
            total = jobs // CONNECTIONS * CONNECTIONS
            wrong = push(url, CONNECTIONS, jobs // CONNECTIONS)[2]
        else:
            post(client, url, [JOB] * jobs)
        ended = wait_until(lambda: succeeded_at(client, url) >= before + total, LIMIT_S)
    return wrong + (not ended)


def by_room(stats: dict[Any, Any]) -> "Counter[str]":
    """The share of each room of the package, and of each library, in the time of all functions but waiting.

    What is built in counts where it was called from.
    """
    seconds: Counter[str] = Counter()
    for (path, _, name), (_, _, own_s, _, callers) in stats.items():
        if WAITING in name:
            continue
        if path != "~":
            seconds[room_of(path)] += own_s
            continue
        for (caller, _, _), (_, _, part_s, _) in callers.items():
            seconds[room_of(caller)] += part_s
    total_s = sum(seconds.values())
    return Counter({room: each_s / total_s for room, each_s in seconds.items()})


def room_of(path: str) -> str:
    """`jqd/store`, `trio`, or `python` for what comes with it."""
    parts = Path(path).parts
    if "site-packages" in parts:
        return parts[parts.index("site-packages") + 1].removesuffix(".py")
    if "jqd" in parts:
        below = parts[len(parts) - parts[::-1].index("jqd") :]
        return f"jqd/{below[0] if len(below) > 1 else ''}".rstrip("/")
    return "python"
