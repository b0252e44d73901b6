"""Several daemons on one store: how much they do together, and what the others notice when one of them is killed."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx2
import msgspec

from bench.load import NAME, begun, warm
from bench.load import run as push_at_rate
from bench.marks import MARKS, Marks, argument
from bench.open_loop import Load
from bench.peers.servers import valkey
from bench.processes import SILENT, directory, serve, wait_until, worker
from bench.result import Result

MOST = 3  # daemons
ARRAY, PUSHERS = 500, 4
MSGPACK = {"content-type": "application/msgpack", "accept": "application/json"}
LIMIT_S = 120.0
RATE, CONNECTIONS, SLOW = 100, 16, "bench-slow"  # jobs of 0.1 s: some ten are at work at any time, half of each daemon
AT_WORK = 32  # at once at the worker
TAKEN_OVER_S = 30.0  # a lease of 10 s, a renewal of 3 s, and the time to run what waited


@contextmanager
def cluster(number: int, marks_of: str, concurrency: int) -> Iterator[tuple[list[str], list["Member"], Marks]]:
    """So many daemons on one store, and a worker of all of them that has run a job of each."""
    with directory() as base, ExitStack() as stack:
        (base / "store").mkdir()
        store = stack.enter_context(valkey(base / "store"))
        members = [Member(base / f"daemon-{place}", store) for place in range(number)]
        for member in members:
            stack.callback(member.stop)
            member.start()
        marks = Marks(base / "marks")
        stack.callback(marks.close)
        urls = [member.url for member in members]
        stack.enter_context(worker(*urls, concurrency=concurrency, env={**SILENT, MARKS: str(marks.path)}))
        for url in urls:
            warm([url], marks, marks_of)
        yield urls, members, marks


class Member:
    """A daemon that may be killed and started again on its data."""

    def __init__(self, data: Path, store: str) -> None:
        self._data, self._store = data, store
        self._stack = ExitStack()
        self.url = ""

    def start(self) -> None:
        """On any port."""
        settings = {**SILENT, "JQD_STORE__URL": self._store}
        self.url, self._process = self._stack.enter_context(serve(self._data, settings))

    def kill(self) -> None:
        """As a crash would."""
        self._process.kill()
        self._process.wait(LIMIT_S)

    def stop(self) -> None:
        """In order, if it runs."""
        self._stack.close()


def daemons(jobs: int) -> Result:
    """Jobs a second from push to start with one, two and three daemons, one store and one worker."""
    figures: dict[str, float] = {}
    complete = True
    for number in range(1, MOST + 1):
        with cluster(number, NAME, 8) as (urls, _, marks):
            before, began_ns = marks.count, time.monotonic_ns()
            total = _push_arrays(urls, jobs)
            complete &= marks.wait(before + total, LIMIT_S)
            last_ns = max(at[0] for at in marks.times_ns().values())
        figures[f"daemons_{number}_per_s"] = total / ((last_ns - began_ns) / 1e9)
    for number in range(2, MOST + 1):
        figures[f"of_{number}_over_1"] = figures[f"daemons_{number}_per_s"] / figures["daemons_1_per_s"]
    return Result("daemons", figures, ok=complete)


def _push_arrays(urls: list[str], jobs: int) -> int:
    """By four clients, in turns to each daemon; how many."""
    arrays = max(1, jobs // ARRAY // PUSHERS)

    def push(first: int) -> None:
        with httpx2.Client(timeout=LIMIT_S) as client:
            for place in range(first, first + arrays):
                numbers = range(place * ARRAY, (place + 1) * ARRAY)
                body = msgspec.msgpack.encode([{"name": NAME, "argument": argument(number)} for number in numbers])
                url = urls[place % len(urls)]
                client.post(f"{url}/v1/jobs", content=body, headers=MSGPACK).raise_for_status()

    threads = [threading.Thread(target=push, args=(place * arrays,)) for place in range(PUSHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return arrays * ARRAY * PUSHERS


@dataclass(frozen=True)
class Death:
    """When a daemon was killed and when it came again, by the clock since boot."""

    killed_ns: int
    restarted_ns: int


def failover(jobs: int) -> Result:
    """One of two daemons is killed after a third of the pushes, and comes again when the other has done all it can."""
    killed_ns = 0

    def kill(load: Load) -> None:
        nonlocal killed_ns
        if not killed_ns and len(load.statuses) >= jobs // 3:
            killed_ns = time.monotonic_ns()
            members[0].kill()

    with cluster(2, SLOW, AT_WORK) as (urls, members, marks):
        load = push_at_rate(urls, rate=RATE, numbers=range(jobs), connections=CONNECTIONS, name=SLOW, each=kill)
        wait_until(lambda: _nothing_left(urls[1]), TAKEN_OVER_S)
        restarted_ns = time.monotonic_ns()
        members[0].stop()
        members[0].start()
        wait_until(lambda: len(begun(load, marks)) == len(load.taken), LIMIT_S)
        times_ns = begun(load, marks)
    return took_over(load, times_ns, Death(killed_ns, restarted_ns))


def _nothing_left(url: str) -> bool:
    """Whether no job of any daemon is in the store, but for those that have ended."""
    store = httpx2.get(f"{url}/v1/stats", headers={"accept": "application/json"}, timeout=LIMIT_S).json()["store"]
    return not store["waiting"] + store["scheduled"] + store["running"]


def took_over(load: Load, times_ns: dict[int, list[int]], death: Death) -> Result:
    """What the death cost: how long until others had what the dead one had at work, and what waited for its return."""
    again = [at[1] for at in times_ns.values() if len(at) > 1 and death.killed_ns < at[1] < death.restarted_ns]
    late = [at[0] for at in times_ns.values() if at[0] > death.restarted_ns]
    starts = sorted(at for each in times_ns.values() for at in each if at < death.restarted_ns)
    pauses = [later - earlier for earlier, later in pairwise(starts) if later > death.killed_ns]
    lost = len(load.taken) - len(times_ns)
    figures = {
        "taken": float(len(load.taken)),
        "lost": float(lost),
        "not_taken": float(len(load.statuses) - len(load.taken)),
        "began_again": float(len(again)),
        "elsewhere_s": (max(again, default=death.killed_ns) - death.killed_ns) / 1e9,
        "longest_pause_s": max(pauses, default=0) / 1e9,
        "waited_for_return": float(len(late)),
        "ack_max_ms": max(load.ack_ms(), default=0.0),
    }
    return Result("failover", figures, ok=not lost and not figures["not_taken"])
