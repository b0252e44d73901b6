"""One round of one queue: jobs pushed by four programs while one worker runs them, single pushes, and latency."""

import json
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.marks import MARKS, Marks
from bench.peers.catalogue import Peer
from bench.peers.servers import NotStarted, process, tail
from bench.processes import directory
from bench.result import percentile

ROUND_S = 60.0  # of one queue, with all starts: who is not through by then has no figures in that round
PUSHERS = 4
RATE, PACED = 100, 200  # jobs a second, and how many
MANY_S = 6.0  # until then the jobs are to have ended; of slower queues those count that have
SINGLE_S = 1.0
CONNECTIONS = (1, 64)
SETTLE_S = 3.0  # for the last jobs of a part to begin
WARM, LATENCY, MANY, SINGLE = (part * 10_000_000 for part in range(4))  # the first number of each part's jobs


class TooSlow(Exception):
    """A queue that is not through when its time is over."""


@dataclass(frozen=True)
class Deadline:
    """When a round of one queue is over."""

    at_s: float

    @property
    def left_s(self) -> float:
        """How much is left; `TooSlow` when nothing is."""
        if (left := self.at_s - time.monotonic()) <= 0:
            raise TooSlow(f"not through within {ROUND_S:.0f} s")
        return left


class Pusher:
    """A pushing program, which obeys orders (programs/drive.py)."""

    def __init__(self, child: "subprocess.Popen[str]", log: Path, deadline: Deadline) -> None:
        self._child, self._log, self._deadline = child, log, deadline

    def order(self, **order: Any) -> None:
        """Begin something."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(order) + "\n")
        self._child.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What came of it, when it has come."""
        assert self._child.stdout is not None
        if not select.select([self._child.stdout], [], [], self._deadline.left_s)[0]:
            raise TooSlow(f"not through within {ROUND_S:.0f} s")
        line = self._child.stdout.readline()
        if not line:
            raise NotStarted(f"its pusher ended: {tail(self._log)}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def measure(peer: Peer, jobs: int) -> dict[str, float]:
    """The figures of one round, on a new server with new data."""
    deadline = Deadline(time.monotonic() + ROUND_S)
    with directory() as base, ExitStack() as stack:
        base.chmod(0o755)  # a server may run as another user
        data = base / "server"
        data.mkdir()
        url = stack.enter_context(peer.server(data))
        if peer.prepares:
            _prepare(peer, url, deadline)
        pushers = [stack.enter_context(_pusher(peer, url, base / f"{n}.log", deadline)) for n in range(PUSHERS)]
        for pusher in pushers:
            pusher.answer()
        marks = Marks(base / "marks")
        stack.callback(marks.close)
        with _worker(peer, url, base / "worker.log", marks, deadline) as alive:
            pushers[0].order(do="many", first=WARM, count=1, seconds=1)
            pushers[0].answer()
            marks.wait(1, deadline.left_s, alive)
            figures = _latency(pushers, marks) | _many(pushers, marks, jobs)
        return figures | _singles(pushers)


def _prepare(peer: Peer, url: str, deadline: Deadline) -> None:
    env = {**peer.env(url), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = subprocess.run(
        peer.command("prepare"), capture_output=True, text=True, env=env, timeout=deadline.left_s, check=False
    )
    if done.returncode:
        raise NotStarted(f"it could not be prepared: {done.stderr.strip()[-300:]}")


@contextmanager
def _pusher(peer: Peer, url: str, log: Path, deadline: Deadline) -> Iterator[Pusher]:
    with process(peer.command("push"), log, env=peer.env(url), pipes=True) as child:
        yield Pusher(child, log, deadline)


@contextmanager
def _worker(peer: Peer, url: str, log: Path, marks: Marks, deadline: Deadline) -> Iterator[Any]:
    env = {**peer.env(url), MARKS: str(marks.path)}
    with process(peer.work(url), log, env=env, stop=signal.SIGTERM) as child:

        def alive() -> None:
            assert deadline.left_s
            if child.poll() is not None:
                raise NotStarted(f"its worker ended: {tail(log)}")

        yield alive


def _latency(pushers: list[Pusher], marks: Marks) -> dict[str, float]:
    """From the moment at which a job was due to be pushed to its start. The pushers take turns."""
    before, each = marks.count, PACED // len(pushers)
    for place, pusher in enumerate(pushers):
        first = LATENCY + place * each
        pusher.order(do="paced", first=first, count=each, rate=RATE / len(pushers), delay=place / RATE)
    began_ns = [pusher.answer()["began_ns"] for pusher in pushers]
    marks.wait(before + each * len(pushers), SETTLE_S)
    times_ns = marks.times_ns()
    due_ns = {
        LATENCY + place * each + n: began_ns[place] + n * 1e9 * len(pushers) / RATE
        for place in range(len(pushers))
        for n in range(each)
    }
    took_ms = [(times_ns[number][0] - due) / 1e6 for number, due in due_ns.items() if number in times_ns]
    if len(took_ms) < len(due_ns):
        late = f"{len(due_ns) - len(took_ms)} of {len(due_ns)} jobs"
        raise TooSlow(f"{late} at {RATE}/s had not begun {SETTLE_S:.0f} s later")
    return {"start_p50_ms": percentile(took_ms, 0.5), "start_p99_ms": percentile(took_ms, 0.99)}


def _many(pushers: list[Pusher], marks: Marks, jobs: int) -> dict[str, float]:
    """Jobs a second from the first push to the start of the last; those that began in time, when not all did."""
    each = jobs // len(pushers)
    before, total, started_s = marks.count, each * len(pushers), time.monotonic()
    for place, pusher in enumerate(pushers):
        pusher.order(do="many", first=MANY + place * each, count=each, seconds=MANY_S)
    complete = marks.wait(before + total, MANY_S)
    answers = [pusher.answer() for pusher in pushers]
    began_ns = min(answer["began_ns"] for answer in answers)
    times_ns = {n: at for n, at in marks.times_ns().items() if MANY <= n < MANY + total}
    in_time = [at[0] for at in times_ns.values() if at[0] - began_ns <= MANY_S * 1e9]
    took_s = (max(in_time) - began_ns) / 1e9 if complete and in_time else max(MANY_S, time.monotonic() - started_s)
    return {
        "jobs_per_s": len(in_time) / took_s,
        "begun": len(in_time) / total,
        "twice": sum(len(at) - 1 for at in times_ns.values()),
    }


def _singles(pushers: list[Pusher]) -> dict[str, float]:
    """Single pushes a second, each acknowledged before the next on its connection; no worker runs."""
    figures: dict[str, float] = {}
    first = SINGLE
    for connections in CONNECTIONS:
        busy = pushers[: min(connections, len(pushers))]
        for pusher in busy:
            pusher.order(do="single", first=first, connections=connections // len(busy), seconds=SINGLE_S)
            first += 1_000_000
        figures[f"single_{connections}_per_s"] = sum(pusher.answer()["pushed"] for pusher in busy) / SINGLE_S
    return figures
