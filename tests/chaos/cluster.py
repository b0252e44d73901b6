"""The processes of a chaos run: daemons, workers, one store, and the proxies between. Ends only what it started."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import redis
import trio

from jqd.store import StoreConfig, open_store
from tests.chaos.edge import Edge
from tests.chaos.nemesis import LEASE_S, WIPE, Strike, server_name
from tests.live.harness import ROOT, Daemon
from tests.stalls import Step, read_steps
from tests.valkey import Valkey

RENEW_S, MARGIN_S = 0.5, 0.6
TELL_S, LOOK_S = 30.0, 0.25  # by then daemons have told a server what it forgot; between looks whether they have
FLUSH_S = 5.0  # a server that takes longer to forget all is a fault of its own
TIMEOUT_S = 8.0  # of a job: longer than any pause of its worker that should not cost an attempt
RETRY_CAP_S = 2.0
HEAL_S = 2 * LEASE_S + RETRY_CAP_S + 30.0
# Killed processes have no time to say what they executed; measuring them costs half of this machine.
UNMEASURED = {"COVERAGE_PROCESS_CONFIG": "", "COVERAGE_PROCESS_START": ""}
SETTINGS = {
    "JQD_LEASE__LEASE_S": str(LEASE_S),
    "JQD_LEASE__RENEW_S": str(RENEW_S),
    "JQD_LEASE__MARGIN_S": str(MARGIN_S),
    "JQD_RETRY__FIRST_S": "0.2",
    "JQD_RETRY__CAP_S": str(RETRY_CAP_S),
    "JQD_STORE__TIMEOUT_S": "1.5",
    "JQD_RUNNER__BACKOFF_CAP_S": "2",
    **UNMEASURED,
}

KEEPERS = {2: "tests.chaos.keeper --pull", 3: "tests.chaos.keeper"}
"""Workers that keep jobs for themselves, by their number; the others are the SDK's."""

T = TypeVar("T")


class History:
    """Lines of events of this process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file = (directory / "events.jsonl").open("ab", buffering=0)

    def add(self, e: str, **fields: Any) -> float:
        """Note that something happens now; answers when that is."""
        t = time.monotonic()
        self._file.write(msgspec.json.encode({"e": e, "t": t, **fields}) + b"\n")
        return t

    def close(self) -> None:
        """Nothing more is noted."""
        self._file.close()


class Cluster:
    """All processes. Blocking calls run in threads: this process carries the proxies."""

    def __init__(
        self, base: Path, history: History, source: random.Random, daemons: int = 3, workers: int = 2, servers: int = 1
    ) -> None:
        self.base, self.history = base, history
        self.servers = [Valkey(_server_directory(base, number)) for number in range(servers)]
        """Of the store: each has a partition of it."""
        self.edges = [
            Edge(server_name(f"edge-{i}", number), server.socket, source)
            for number, server in enumerate(self.servers)
            for i in range(daemons)
        ]
        """Of the daemons to the first server, then to the second."""
        self.daemons: list[Daemon | None] = [None] * daemons
        self.workers: list[subprocess.Popen[bytes] | None] = [None] * workers
        self.urls = [""] * daemons
        self.steps: list[Step] = []
        """Long ones of the daemons' loops, but for what they do when they start."""
        self._ready_s = [0.0] * daemons
        self.struck: set[str] = set()
        """Targets that something is wrong with now."""
        self._faults = 0
        self._binds = ["127.0.0.1:0"] * daemons
        self._lives = 0

    @property
    def server(self) -> Valkey:
        """Where there is only one."""
        return self.servers[0]

    @property
    def store(self) -> StoreConfig:
        """How this process itself looks into the store."""
        if len(self.servers) == 1:
            return StoreConfig(url=self.server.url)
        return StoreConfig(urls=tuple(server.url for server in self.servers))

    async def start(self) -> None:
        """The store, the daemons, the workers."""
        for server in self.servers:
            await in_thread(server.start)
        async with trio.open_nursery() as nursery:
            for i in range(len(self.daemons)):
                nursery.start_soon(self.start_daemon, i)
        for i in range(len(self.workers)):
            self.start_worker(i)

    async def start_daemon(self, i: int, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        """Returns when it takes pushes. `settings` go before the usual ones."""
        self._lives += 1
        log = self.history.directory / f"jobs-{i}-{self._lives}.jsonl"
        env = {**SETTINGS, **settings, "JQD_LOG__JOB_LOG": str(log)}
        where = [part for edge in self.edges[i :: len(self.daemons)] for part in ("--store", edge.url)]
        make = partial(Daemon, self.base / f"daemon-{i}", *where, bind=self._binds[i], env=env, guarded=True)
        daemon = await in_thread(make)
        self._ready_s[i] = time.monotonic()
        self.daemons[i], self._binds[i], self.urls[i] = daemon, daemon.bind, daemon.url

    def start_worker(self, i: int, urls: Sequence[str] = (), jobs: Sequence[str] = (), bind: str = "") -> None:
        """Does not wait: it registers by itself, at all daemons and for the usual jobtypes unless told; then it is one
        of the SDK's, on any port unless `bind` says which."""
        self._lives += 1
        kind = ["tests.chaos.worker"] if jobs else KEEPERS.get(i, "tests.chaos.worker").split()
        args = ["--name", f"worker-{i}", "--book", str(self.history.directory / f"worker-{i}-{self._lives}.jsonl")]
        args += [part for url in urls or self.urls for part in ("--daemon", url)]
        args += [part for job in jobs for part in ("--job", job)]
        args += ["--bind", bind] if bind else []
        with (self.base / f"worker-{i}.log").open("ab") as log:
            self.workers[i] = subprocess.Popen(
                [sys.executable, "-m", *kind, *args],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **UNMEASURED},
                start_new_session=True,
            )

    async def strike(self, strike: Strike) -> None:
        """Do it, wait, and undo it."""
        self._faults += 1
        self.struck.add(strike.target)
        told = {"id": self._faults, "kind": strike.kind, "target": strike.target}
        self.history.add("nemesis", on="start", **told)
        part, *numbers = strike.target.split("-")
        i = int(numbers[0]) if numbers else 0
        if part == "edge":
            edge = next(edge for edge in self.edges if edge.name == strike.target)
            edge.misbehave(strike.kind, delay_s=0.2)
            await trio.sleep(strike.for_s)
            edge.mend()
        elif strike.kind == "stop":
            pid = self._pid(part, i)
            os.kill(pid, signal.SIGSTOP)
            await trio.sleep(strike.for_s)
            os.kill(pid, signal.SIGCONT)
        elif strike.kind == WIPE:
            await in_thread(partial(_wipe, self.servers[i]))
            await trio.sleep(strike.for_s)
            await self._wait_told(i)
        else:
            await self._kill(part, i)
            await trio.sleep(strike.for_s)
            await self._start_again(part, i)
        self.history.add("nemesis", on="stop", **told)
        self.struck.discard(strike.target)

    async def _wait_told(self, number: int) -> None:
        """Until the daemons have told a server what it forgot, however slow the machine is: see `nemesis.TOLD_S`."""
        async with open_store(self.store.parts()[number]) as store:
            with trio.move_on_after(TELL_S):
                while not (await store.look(fresh=True)).settled:
                    await trio.sleep(LOOK_S)

    def note_steps(self, i: int, daemon: Daemon) -> None:
        """Of the life that ends."""
        self.steps += read_steps(daemon.steps, self._ready_s[i])

    async def stop(self) -> list[int]:
        """SIGTERM to daemons, then to workers; their exit codes."""
        for i, daemon in enumerate(self.daemons):
            if daemon is not None:
                self.note_steps(i, daemon)
        codes: list[int] = []

        async def stop_one(wait: Callable[[], int]) -> None:
            codes.append(await in_thread(wait))

        async with trio.open_nursery() as nursery:
            for daemon in self.daemons:
                if daemon is not None:
                    nursery.start_soon(stop_one, daemon.stop)
        async with trio.open_nursery() as nursery:
            for worker in self.workers:
                if worker is not None:
                    worker.terminate()
                    nursery.start_soon(stop_one, partial(worker.wait, 30))
        return codes

    def end(self) -> None:
        """Whatever still runs is killed; what is stopped dies too."""
        for daemon in self.daemons:
            if daemon is not None:
                daemon.__exit__()
        for worker in self.workers:
            if worker is not None:
                worker.kill()
                worker.wait()
        for server in self.servers:
            server.kill()

    def fallen(self) -> list[str]:
        """Daemons and workers that ended by themselves."""
        named = [(f"daemon-{i}", daemon.child) for i, daemon in enumerate(self.daemons) if daemon is not None]
        fallen = [name for name, child in named if child.poll() is not None]
        return fallen + [f"worker-{i}" for i, child in enumerate(self.workers) if child and child.poll() is not None]

    def _pid(self, part: str, i: int) -> int:
        if part == "store":
            return self.servers[i].pid
        process = self.daemons[i].child if part == "daemon" else self.workers[i]  # type: ignore[union-attr]
        assert process is not None
        return process.pid

    async def _kill(self, part: str, i: int) -> None:
        if part == "store":
            await in_thread(self.servers[i].kill)
        elif part == "daemon":
            daemon, self.daemons[i] = self.daemons[i], None
            assert daemon is not None
            await in_thread(daemon.kill)
            daemon.__exit__()
            self.note_steps(i, daemon)
        else:
            worker, self.workers[i] = self.workers[i], None
            assert worker is not None
            worker.kill()
            await in_thread(worker.wait)

    async def _start_again(self, part: str, i: int) -> None:
        if part == "store":
            await in_thread(self.servers[i].start)
        elif part == "daemon":
            await self.start_daemon(i)
        else:
            self.start_worker(i)


def _wipe(server: Valkey) -> None:
    with redis.Redis.from_url(server.url, socket_timeout=FLUSH_S) as client:
        client.flushall()


def _server_directory(base: Path, number: int) -> Path:
    directory = base / f"server-{number}" if number else base
    directory.mkdir(exist_ok=True)
    return directory


async def in_thread(work: Callable[[], T]) -> T:
    """Do something that blocks."""
    return await trio.to_thread.run_sync(work)
