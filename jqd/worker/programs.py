"""Reads the output of programs that jobs start, and kills programs that a job leaves behind.

In a process of `--processes`, descriptors 1 and 2 lead to the front (the worker's main process), which reads what
programs print there: the job's process itself may hang or be about to die, and then its last output matters most. The
front copies the output to the worker's own log. If one job runs in the process, the output is also kept for that job.
With several jobs it is unknown which of them it comes from.

Programs left behind are found by their parents in /proc (Linux). A program whose parent has ended becomes a child of
init, so it is not found.
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

LOOK_S = 0.5  # between two checks of a process if no descriptor is free to wait for its end
COMMAND_CHARS_MAX = 100  # of a command line in a log


class Program(NamedTuple):
    pid: int
    command: str


def kill_descendants() -> list[Program]:
    """Kill all descendants of this process, and return those that were found. If they lived on, a job's program might
    run beside the job's next attempt."""
    found = below(os.getpid())
    killed = []
    for pid in found:
        command = _command(pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has ended
        except PermissionError:
            command += " (not killed: it runs as somebody else)"
        killed.append(Program(pid, command))
    return killed


def below(pid: int) -> list[int]:
    """Return the process ids of all descendants of a process."""
    found = children_of(pid)
    for each in found:  # the list grows during the loop
        found += children_of(each)
    return found


def children_of(pid: int) -> list[int]:
    """Return the process ids of a process's children. If the kernel has no lists of children (CONFIG_PROC_CHILDREN),
    look through all processes."""
    found: list[int] = []
    if not _are_listed():
        return [child for child, parent in _parents() if parent == pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_bytes().split())
    except OSError:
        return found  # the process or one of its threads has ended
    return found


@cache
def _are_listed() -> bool:
    return Path("/proc/thread-self/children").exists()


def _parents() -> Iterator[tuple[int, int]]:
    """Yield (process id, parent's id) for each visible process."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = entry.read_bytes()
        except OSError:
            continue  # it has ended
        # Search the last parenthesis: the process name before it may contain some.
        yield int(entry.parent.name), int(stat.rpartition(b")")[2].split()[1])


def _command(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError as error:
        return f"its command cannot be read: {error.strerror}"
    return line.replace(b"\0", b" ").decode("utf-8", "replace").strip()[:COMMAND_CHARS_MAX]


READ_BYTES = 1 << 16
READS_MAX = 16  # at once: a program that never stops printing must not hold up other jobs
WORKER_LOG = LossyWriter(2)  # the worker's own log


_SIGNALS = {one.value: one.name for one in signal.Signals}  # most real-time signals have no name


def ending(code: int | None) -> str:
    """Return a text that says how a process ended. `code`: its return code."""
    if code is None:
        return "it did not end"
    return f"killed by {_SIGNALS.get(-code, f'signal {-code}')}" if code < 0 else f"it exited with {code}"


async def wait_dead(child: "subprocess.Popen[bytes]") -> None:
    while child.poll() is None:
        try:
            await wait_ended(child.pid)
        except OSError:  # no descriptor is free, perhaps only for a moment
            await trio.sleep(LOOK_S)


async def wait_ended(pid: int) -> None:
    """Wait until a child process has ended, without reaping it. Raises ProcessLookupError if it was reaped already."""
    pidfd = os.pidfd_open(pid)
    try:
        await trio.lowlevel.wait_readable(pidfd)
    finally:
        os.close(pidfd)


class Programs:
    """Reads from the pipe into which the programs of one process print. To be used in the trio thread only."""

    def __init__(self, fd: int, at_work: Callable[[], "Held | None"]) -> None:
        os.set_blocking(fd, False)
        self._fd, self._at_work = fd, at_work
        self._is_open = True

    async def receive(self) -> None:
        """Read until no program has the pipe open; programs may outlive the process."""
        try:
            while self.take():
                await trio.lowlevel.wait_readable(self._fd)
        finally:
            self._is_open = False
            os.close(self._fd)

    def take(self) -> bool:
        """Read what programs have printed so far. Returns False if no program has the pipe open."""
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
    """Return the encoded outcome of a job, with `printed` added at the end of the outcome's log. An outcome that is
    neither a success nor a failure is returned unchanged."""
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
