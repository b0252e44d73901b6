"""Starts what a user would start, as processes, and ends only those, by id."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import httpx2

from jqd.client import Client, JobInfo
from tests import stalls, starts
from tests.directories import short_directory
from tests.valkey import Valkey, valkey

# A short lease: the daemons that may claim again wait for one.
LEASE = {"JQD_LEASE__LEASE_S": "2", "JQD_LEASE__RENEW_S": "0.5", "JQD_LEASE__MARGIN_S": "0.5"}
QUICK = {**LEASE, "JQD_STORE__TIMEOUT_S": "1"}
AS_ROOT = ("--user", "root") if os.geteuid() == 0 else ()  # a code worker of root says that its code is root's, too
WAIT_S = 60.0  # no answer comes near
START_S = 30.0  # a loaded two-core machine starts a daemon and its store well within this
ROOT = Path(__file__).parents[2]


class Process:
    """A child whose stderr is kept in a file and whose stdout lines are read as they come."""

    def __init__(
        self,
        args: Sequence[str],
        log: Path,
        env: dict[str, str] | None = None,
        cwd: Path = ROOT,
        program: Sequence[str] = (sys.executable, "-m", "jqd"),
        stderr: int | None = None,
    ) -> None:
        """`stderr`: a descriptor that gets what else is kept in `log`."""
        self.log = log
        self._stderr = log.open("ab")
        self.child = starts.Popen(
            [*program, *args],
            stdout=subprocess.PIPE,
            stderr=self._stderr if stderr is None else stderr,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        with self.child.stdout as out:
            for line in out:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def wait_line(self, part: str, timeout_s: float = START_S) -> str:
        """The next line of stdout that holds `part`. Without one the process is ended, and its log told."""
        how = "ended before it printed"
        try:
            while (line := self._lines.get(timeout=timeout_s)) is not None:
                if part in line:
                    return line
        except queue.Empty:
            how = f"did not print within {timeout_s:g} s"
        self.__exit__()
        raise AssertionError(f"{how} {part!r}:\n{self.log.read_text()[-4000:]}")

    def kill(self) -> None:
        """kill -9, and reap it."""
        self.child.kill()
        self.child.wait(timeout=WAIT_S)

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM; returns the exit code."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        return self.child.wait(timeout=timeout_s)

    def interrupt(self, timeout_s: float = 30.0) -> int:
        """What Ctrl-C does: SIGINT to the whole group in the foreground. Returns the exit code."""
        os.killpg(self.child.pid, signal.SIGINT)
        return self.child.wait(timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait(timeout=WAIT_S)
        self._stderr.close()


class Daemon(Process):
    """`jqd serve` on a data directory, on any free port unless told."""

    def __init__(
        self,
        data_dir: Path,
        *args: str,
        bind: str = "127.0.0.1:0",
        env: dict[str, str] | None = None,
        guarded: bool = False,
    ):
        """`guarded`: the steps of its loop are measured, for `unstalled(daemon.steps)`."""
        self.steps = data_dir.with_suffix(".steps")
        super().__init__(
            ["serve", "--bind", bind, "--data-dir", str(data_dir), *args],
            data_dir.with_suffix(".log"),
            {"JQD_LOG__FORM": "json", stalls.FILE: str(self.steps), **(env or {})},
            program=stalls.PROGRAM if guarded else (sys.executable, "-m", "jqd"),
        )
        self.url = self.wait_line("://").split()[-1]
        self.bind = self.url.partition("://")[2]

    def wait_worker(self, jobtype: str) -> None:
        """Return when a worker that takes such jobs is registered."""
        deadline_s = time.monotonic() + START_S
        while not any(jobtype in worker["jobs"] for worker in self.get("/v1/workers").json()["workers"]):
            assert time.monotonic() < deadline_s, f"no worker for {jobtype!r} after {START_S:g} s"
            time.sleep(0.02)  # watches a process of its own

    def get(self, path: str) -> httpx2.Response:
        """A plain GET, JSON."""
        return httpx2.get(self.url + path, headers={"accept": "application/json"}, timeout=10)


def ingested(client: Client, job_id: str) -> JobInfo:
    """The job, once it is in the store: before that nothing is told but that it waits, and its ack may be quicker."""
    deadline_s = time.monotonic() + START_S
    while not (info := client.get(job_id)).name:
        assert time.monotonic() < deadline_s, f"job {job_id} is not in the store after {START_S:g} s"
        time.sleep(0.01)
    return info


class Worker(Process):
    """`jqd worker tests.live.recorder`: notes every start and end of a job in a file."""

    def __init__(self, book: Path, *daemons: str, concurrency: int = 16) -> None:
        self.book = book
        flags = [flag for url in daemons for flag in ("--daemon", url)]
        super().__init__(
            ["worker", "tests.live.recorder:app", *flags, "--concurrency", str(concurrency)],
            book.with_suffix(".log"),
            {"JQD_TEST_BOOK": str(book)},
        )

    def entries(self) -> list[dict[str, object]]:
        """What was noted: {event, job_id, n} in order."""
        if not self.book.exists():
            return []
        return [json.loads(line) for line in self.book.read_text().splitlines()]

    def starts(self) -> Counter[str]:
        """How often each job was started."""
        return Counter(str(e["job_id"]) for e in self.entries() if e["event"] == "start")


class Pair(NamedTuple):
    """What `pair` runs."""

    server: Valkey
    one: Daemon
    two: Daemon
    base: Path


@contextmanager
def pair(env: dict[str, str] = LEASE, *, guarded: bool = False) -> Iterator[Pair]:
    """Two daemons of one store: what tests of what workers say and do run with. `guarded`: see Daemon."""
    with valkey() as server, short_directory() as base:
        flags = ("--store", server.url)
        with (
            Daemon(base / "one", *flags, env=env, guarded=guarded) as one,
            Daemon(base / "two", *flags, env=env, guarded=guarded) as two,
        ):
            yield Pair(server, one, two, base)


class Cluster(NamedTuple):
    """What `cluster` runs."""

    server: Valkey
    one: Daemon
    two: Daemon
    worker: Worker
    base: Path


@contextmanager
def cluster(env: dict[str, str] = LEASE, *, guarded: bool = False) -> Iterator[Cluster]:
    """Two daemons, one worker of both, one store. `guarded`: see Daemon."""
    with (
        pair(env, guarded=guarded) as (server, one, two, base),
        Worker(base / "book", one.url, two.url) as worker,
    ):
        yield Cluster(server, one, two, worker, base)


def wait_for(holds: Callable[[], bool], what: str) -> None:
    """Until that holds; `what` is wrong if it does not."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)  # watches processes of their own
