"""Runs a real daemon for tests: its own process in a temporary directory, with its own store unless one is named.

with open_server(directory) as server:
    client = server.client()
    with server.worker("shop:app"): ...
"""

import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from jqd.client import Client
from jqd.client.environ import surroundings
from jqd.domain.clock import SystemClock

START_S = 30.0  # for a daemon and its store to start: usually a second, longer on a loaded machine
STOP_S = 30.0  # for a drain; then the process is killed
LOOK_S = 0.02  # between two checks whether a worker is registered
LOG_CHARS = 4_000  # of the end of a log that an error shows


class NotStarted(RuntimeError):
    """A daemon or a worker for tests did not start. The message has the end of its log."""


class Server:
    """A running daemon for tests."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        """Directory with the data and the logs of the daemon and its workers."""
        self._workers = 0

    def client(self) -> Client:
        """Return a client of this daemon."""
        return Client(self.url)

    @contextmanager
    def worker(self, target: str, *args: str, cwd: Path | None = None) -> Iterator[None]:
        """Run `jqd worker TARGET ARGS…` during the block. The block begins when the worker is registered. Raises
        NotStarted."""
        self._workers += 1
        name = f"testing-{self._workers}"
        log = self.directory / f"{name}.log"
        command = ["worker", target, "--daemon", self.url, "--name", name, *args]
        with _process(command, log, {}, cwd or Path.cwd()) as child, self.client() as client:
            clock = SystemClock()
            until_s = clock.mono_s() + START_S
            while not any(worker["name"] == name for worker in client.workers()):
                if child.poll() is not None or clock.mono_s() > until_s:
                    raise NotStarted(f"the worker of {target} did not register:\n{_end_of(log)}")
                threading.Event().wait(LOOK_S)
            yield


@contextmanager
def open_server(directory: Path, *args: str, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a daemon on a free port of the loopback interface during the block. `args`: arguments for `jqd serve`.
    `settings`: environment variables. Raises NotStarted."""
    log = directory / "daemon.log"
    command = ["serve", "--bind", "127.0.0.1:0", "--data-dir", str(directory / "d"), *args]
    with _process(command, log, settings or {}, directory) as child:
        assert child.stdout is not None
        yield Server(_url_of(child.stdout, log), directory)


@contextmanager
def _process(args: list[str], log: Path, settings: Mapping[str, str], cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Run `jqd ARGS…` during the block; its stderr is appended to `log`. At the end of the block sends the process
    SIGTERM, and kills it after STOP_S."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "jqd", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=cwd,
            env=surroundings() | dict(settings),
            text=True,
            start_new_session=True,  # Ctrl-C ends the tests, and these end the process
        )
    with child:
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()


def _url_of(out: IO[str], log: Path) -> str:
    """Wait for the URL that a daemon prints when it is ready; return it. Its later output is read and dropped. Raises
    NotStarted."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in out:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, name="jqd-testing-out", daemon=True).start()
    try:
        while line := lines.get(timeout=START_S):
            if "http://" in line:
                return line.split()[-1]
    except queue.Empty:
        raise NotStarted(f"the daemon was not ready after {START_S:g} s:\n{_end_of(log)}") from None
    raise NotStarted(f"the daemon ended before it was ready:\n{_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-LOG_CHARS:]
