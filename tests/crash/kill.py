"""kill -9 at system calls of a real daemon: `strace` ends it just before the n-th write, sync, rename …

    strace ─▶ jqd serve ──▶ journal (small segments)      one Valkey and one worker outlive all lives of a chain
       ▲ KILL at call n       ▲ 50 pushes, each 201 noted
       └── started again on the same directory, killed at the next point … and at last left alone and compared

A chain of lives shares a directory, so that each start is also the recovery from the kill before it, and may itself
be killed. In the end every acknowledged job must have run with its own argument and result, what ran besides must be a
push that got no answer, and the journal must hold no damage.

    python -m tests.crash.kill                          all points of all calls, three times: about an hour
    python -m tests.crash.kill --calls fsync --from 3   those of one call, from its third on
    python -m tests.crash.kill --sample 20 --seed 7     twenty points, drawn with this seed
"""

import argparse
import io
import itertools
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import httpx2
import redis

from jqd.cli import run
from jqd.client import Client
from jqd.store import StoreConfig
from jqd.store.keys import Keys
from tests.directories import short_directory
from tests.live.harness import ROOT, START_S, Daemon, Worker
from tests.live.test_crash import wait_all_ended
from tests.store.places import check_places
from tests.valkey import valkey

JOBS = 50  # of one life
SEGMENT_BYTES = 2_000  # some ten jobs: a life rotates several times
LIVES = 10  # of one chain
CALLS = ("writev", "fdatasync", "fsync", "rename", "openat", "close", "mkdir", "unlink", "ftruncate", "pwrite64")
BY_PATH = frozenset({"openat", "close", "mkdir"})
"""Calls that a Python process makes by the thousand: counted on the journal's own files only."""
SAMPLED_MAX = {"writev": 20, "fdatasync": 20, "rename": 6, "fsync": 6}
"""A sample draws from so many points of a call, of others from three: about what a life reaches."""
ENV = {"JQD_JOURNAL__SEGMENT_BYTES": str(SEGMENT_BYTES), "JQD_LOG__FORM": "json"}
UNMEASURED = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")  # a killed process leaves no figures anyway


class Point(NamedTuple):
    """Just before the `number`-th call of that name that any one thread of the daemon makes.

    strace counts each thread for itself, and threads share the work as it comes: another round kills elsewhere.
    """

    call: str
    number: int

    def __str__(self) -> str:
        return f"{self.call}:{self.number}"


@dataclass
class Chain:
    """What was said in all lives over one directory."""

    base: Path
    bind: str
    store: str
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Job id → the number that was pushed."""
    unanswered: int = 0
    """Pushes that the kill cut off: each may be there or not."""
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def journal(self) -> Path:
        """The directory under test."""
        return self.base / "d" / "journal"


@cache
def why_not() -> str | None:
    """Why no daemon can be killed this way here, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    probe = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=fsync:signal=KILL", sys.executable, "-c", "1"]
    done = subprocess.run(probe, capture_output=True, text=True)
    return None if done.returncode == 0 else f"strace may not trace here: {done.stderr.strip()[:200]}"


def live(chain: Chain, point: Point) -> bool:
    """One life of the daemon under strace; returns whether it came to the point. It is dead afterwards either way."""
    call = f"/^{point.call}(at2?)?$"  # some machines have only renameat2 and the like
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    command += ["-e", f"inject={call}:signal=KILL:when={point.number}", *_paths(chain, point)]
    command += [sys.executable, "-m", "jqd", "serve", "--bind", chain.bind, "--store", chain.store]
    command += ["--data-dir", str(chain.base / "d")]
    env = {name: value for name, value in os.environ.items() if name not in UNMEASURED} | ENV
    with (chain.base / "victim.log").open("ab") as log:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, env=env, text=True, start_new_session=True
        )
    assert child.stdout is not None
    try:
        with child.stdout as out:
            line = out.readline()
            survived = "http://" in line and _push(chain, line.split()[-1])
            if not survived:
                child.wait(timeout=START_S)  # strace is a moment later than what it killed
        assert survived or child.returncode == -9, f"it was not killed, it ended: {_last_words(chain)}"
    finally:
        _end_group(child)
    return not survived


def _paths(chain: Chain, point: Point) -> list[str]:
    if point.call not in BY_PATH:
        return []
    names = sorted(path.name for path in chain.journal.glob("*.jqd"))
    newest = chain.journal / (names[-1] if names else f"{0:020d}.jqd")
    # Where the next segment will begin, unless something is torn.
    end = int(newest.stem) + max(0, newest.stat().st_size - 8_192) if newest.exists() else 0
    first = chain.journal / f"{end:020d}.jqd"
    wanted = [chain.journal, chain.journal / "lock", newest, first, first.with_name(first.name + ".new")]
    return [word for path in dict.fromkeys(wanted) for word in ("-P", str(path))]


def _push(chain: Chain, url: str) -> bool:
    """Whether all pushes were answered."""
    with httpx2.Client(base_url=url, timeout=START_S) as client:
        for number in itertools.islice(chain.numbers, JOBS):
            job = {"name": "square", "argument": {"n": number}, "keep_result": True}
            try:
                answer = client.post("/v1/jobs", json=job, headers={"accept": "application/json"})
            except httpx2.TransportError:
                chain.unanswered += 1
                return False
            assert answer.status_code == 201, f"a push on a good disk got {answer.status_code}: {answer.text}"
            chain.acknowledged[answer.json()["job_id"]] = number
    return True


def _end_group(child: subprocess.Popen[str]) -> None:
    """The daemon and the strace around it: a group of their own, which lives as long as one of them."""
    try:
        os.killpg(child.pid, 9)
    except ProcessLookupError:
        assert child.poll() is not None
    child.wait(timeout=10)


def _last_words(chain: Chain) -> str:
    return (chain.base / "victim.log").read_text()[-2_000:]


def compare(chain: Chain, worker: Worker) -> None:
    """Start once more, undisturbed; all that was acknowledged runs as it was pushed, and nothing else does."""
    with Daemon(chain.base / "d", "--store", chain.store, bind=chain.bind, env=ENV) as daemon:
        wait_all_ended(daemon.url, list(chain.acknowledged))
        with Client(daemon.url) as client:
            for job_id, number in chain.acknowledged.items():
                result = client.result(job_id)
                assert result == {"n": number, "square": number**2}, f"{job_id}: pushed {number}, got {result}"
            while client.stats()["store"]["waiting"]:
                time.sleep(0.05)  # pushes without an answer, on their way to the worker
        others = set(worker.starts()) - set(chain.acknowledged)
        assert len(others) <= chain.unanswered, f"{len(others)} jobs nobody pushed"
        assert daemon.get("/readyz").json().get("warnings", []) == []
        assert daemon.stop() == 0
    with redis.Redis.from_url(chain.store) as client:
        check_places(client, Keys(StoreConfig().prefix))
    with redirect_stdout(io.StringIO()) as out:
        assert run(["journal", "verify", "--data-dir", str(chain.base / "d")]) == 0, f"damaged: {out.getvalue()}"


def run_chain(points: Sequence[Point], book: Path) -> list[Point]:
    """Kill one daemon after another over one directory; returns the points that were reached. AssertionError: a bug."""
    with valkey() as server, short_directory() as base:
        with socket.create_server(("127.0.0.1", 0)) as free:
            bind = f"127.0.0.1:{free.getsockname()[1]}"
        chain = Chain(base, bind, server.url)
        with Worker(book, f"http://{bind}") as worker:
            try:
                reached = [point for point in points if live(chain, point)]
                compare(chain, worker)
            except BaseException as error:
                error.add_note(f"chain: {' '.join(map(str, points))}")
                raise
            worker.kill()
    return reached


def all_points(calls: Sequence[str], start: int) -> Generator[list[Point], int, None]:
    """Chains for every call, each until one whole chain was not reached: `send` how many points of the last were."""
    for call in calls:
        number = start
        while True:
            reached = yield [Point(call, n) for n in range(number, number + LIVES)]
            if not reached:
                break
            number += LIVES


def sample(size: int, seed: int) -> list[Point]:
    """Points drawn with this seed, of each call about as many."""
    source = random.Random(seed)
    calls = [CALLS[k % len(CALLS)] for k in range(size)]
    return [Point(call, source.randint(1, SAMPLED_MAX.get(call, 3))) for call in calls]


def main() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.kill", description=__doc__.split("\n\n")[0])
    parser.add_argument("--calls", default=",".join(CALLS), help="comma-separated system calls (default: all)")
    parser.add_argument("--from", type=int, default=1, dest="start", help="first point of each call")
    parser.add_argument("--rounds", type=int, default=3, help="go through all points so often")
    parser.add_argument("--sample", type=int, default=0, help="only so many points, drawn with --seed")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--points", default="", help="exactly this chain, for example writev:3,fsync:2")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no chain after so long")
    said = parser.parse_args()
    if (reason := why_not()) is not None:
        sys.exit(reason)
    if said.points:
        chains = each(
            [[Point(call, int(n)) for call, _, n in (word.partition(":") for word in said.points.split(","))]]
        )
    elif said.sample:
        say(f"seed {said.seed}")
        drawn = sample(said.sample, said.seed)
        chains = each([drawn[at : at + LIVES] for at in range(0, len(drawn), LIVES)])
    else:
        chains = all_points(said.calls.split(",") * said.rounds, said.start)
    deadline, kills, points = time.monotonic() + 60 * said.minutes, 0, next(chains)
    try:
        while time.monotonic() < deadline:
            with short_directory() as directory:
                reached = run_chain(points, directory / "book")
            kills += len(reached)
            say(f"{' '.join(map(str, points))}: {len(reached)} kills, nothing lost")
            points = chains.send(len(reached))
        say("out of time")
    except StopIteration:
        say("all points done")
    say(f"{kills} kills; every acknowledged job ran as it was pushed")


def say(line: str) -> None:
    """At once, for whoever watches."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def each(chains: Sequence[list[Point]]) -> Generator[list[Point], int, None]:
    """These chains, whatever was reached."""
    yield from (chain for chain in chains)  # a list takes no `send`


if __name__ == "__main__":
    main()
