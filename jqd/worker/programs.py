"""Reads what programs print that jobs have started, and ends those that a job leaves behind.

In a process of `--processes` descriptors 1 and 2 lead to the front, which reads them: the process itself may be stuck,
or about to die, and its last output then explains most. All of it goes on to where the worker's own log goes. What
comes while one job is at work in a process is kept for that job; of several nobody can tell whose it is.

Those that run on are found by their parents in /proc (Linux). A program whose own parent has ended belongs to init by
then, and is not found.
"""

import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio
from msgspec import Raw

from jqd.domain.lossy_stream import LossyWriter
from jqd.worker.attempt_output import OUTPUT_BYTES_MAX, SUCCESS_LOG_BYTES_MAX
from jqd.worker.wire import MSGPACK, OUTCOME_BYTES_MAX, Codec

if TYPE_CHECKING:
    import subprocess

    from jqd.worker.process import Held

LOOK_S = 0.5  # between two looks at a process where nobody can be told of its end
COMMAND_CHARS_MAX = 100  # of a command line in a log


class Program(NamedTuple):
    pid: int
    command: str


def kill_descendants() -> list[Program]:
    """Kill all descendants, and return which: a program of a job must not go on beside its next attempt."""
    found = below(os.getpid())
    killed = []
    for pid in found:
        command = _command(pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has ended meanwhile
        except PermissionError:
            command += " (not killed: it runs as somebody else)"
        killed.append(Program(pid, command))
    return killed


def below(pid: int) -> list[int]:
    """Return all descendants of a process."""
    found = children_of(pid)
    for each in found:  # grows as it goes
        found += children_of(each)
    return found


def children_of(pid: int) -> list[int]:
    """Return the children of a process. A kernel that lists none (CONFIG_PROC_CHILDREN) is asked for the parent of
    each process there is."""
    found: list[int] = []
    if not _are_listed():
        return [child for child, parent in _parents() if parent == pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    except OSError:
        return found  # it, or a thread of it, has ended meanwhile
    return found


@cache
def _are_listed() -> bool:
    return Path("/proc/thread-self/children").exists()


def _parents() -> Iterator[tuple[int, int]]:
    """Each process that we may see, and its parent."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = entry.read_bytes()
        except OSError:
            continue  # it has ended meanwhile
        yield int(entry.parent.name), int(stat.rpartition(b")")[2].split()[1])  # a name in parentheses may hold some


def _command(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError as error:
        return f"its command cannot be read: {error.strerror}"
    return line.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:COMMAND_CHARS_MAX]


READ_BYTES = 1 << 16
READS_MAX = 16  # in one go: a program that never stops must not hold up the others' jobs
WORKER_LOG = LossyWriter(2)  # the worker's own log


_SIGNALS = {one.value: one.name for one in signal.Signals}  # those between the real-time ones have no name


def ending(code: int | None) -> str:
    if code is None:
        return "it did not end"
    return f"killed by {_SIGNALS.get(-code, f'signal {-code}')}" if code < 0 else f"it exited with {code}"


async def wait_dead(child: "subprocess.Popen[bytes]") -> None:
    while child.poll() is None:
        try:
            await wait_ended(child.pid)
        except OSError:  # no descriptor is left for it, perhaps for a moment
            await trio.sleep(LOOK_S)


async def wait_ended(pid: int) -> None:
    """Wait until a child of ours has ended. It is not reaped. Raises ProcessLookupError: somebody has reaped it."""
    pidfd = os.pidfd_open(pid)
    try:
        await trio.lowlevel.wait_readable(pidfd)
    finally:
        os.close(pidfd)


class Programs:
    """One end of a pipe that programs print into. For the trio thread only."""

    def __init__(self, fd: int, at_work: Callable[[], "Held | None"]) -> None:
        os.set_blocking(fd, False)
        self._fd, self._at_work = fd, at_work
        self._is_open = True

    async def receive(self) -> None:
        """Read until nobody is left who may print; a program may outlive its process."""
        try:
            while self.take():
                await trio.lowlevel.wait_readable(self._fd)
        finally:
            self._is_open = False
            os.close(self._fd)

    def take(self) -> bool:
        """Take what programs have printed so far. Returns False when no program can print any more."""
        for _ in range(READS_MAX if self._is_open else 0):
            try:
                data = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._note(data)
        return self._is_open

    def _note(self, data: bytes) -> None:
        job = self._at_work()
        if job is not None:
            job.printed += data
            del job.printed[:-OUTPUT_BYTES_MAX]
        WORKER_LOG.add(data)


def text_of(printed: bytearray) -> str:
    return printed.decode("utf-8", "replace").rstrip("\n")


def with_output(outcome: bytes, printed: bytearray, codec: Codec) -> bytes:
    """Return the outcome with that at the end of its log, if the attempt succeeded or failed."""
    decode = msgspec.msgpack.decode if codec is MSGPACK else msgspec.json.decode
    given: dict[str, Raw] = decode(outcome, type=dict[str, Raw])
    most = {"failure": OUTPUT_BYTES_MAX, "success": SUCCESS_LOG_BYTES_MAX}.get(decode(given["type"]), 0)
    if not most or (len(outcome) + most > OUTCOME_BYTES_MAX and most == SUCCESS_LOG_BYTES_MAX):
        return outcome
    lines = [decode(given["log"], type=str)] if "log" in given else []
    whole = "\n".join([*lines, text_of(printed)]).encode()
    log = whole[-most:].decode("utf-8", "ignore")
    before = decode(given["log_from"]) if "log_from" in given else 0
    start = before + len(whole) - len(log.encode())
    return codec.encode(given | {"log": Raw(codec.encode(log)), "log_from": Raw(codec.encode(start))})
