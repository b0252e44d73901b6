"""When each job began: its number and the time, written by whatever runs it, and read by what measures.

A named pipe carries 16 bytes a job, which the kernel writes whole whoever else writes. The time is the machine's clock
since boot, which all its processes read alike. Workers of other queues import this, so it needs Python alone.
"""

import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

MARKS = "BENCH_MARKS"  # the variable that names the pipe
MARK = struct.Struct("<qq")
DIGITS = 12
ARGUMENT_BYTES = 200
PIPE_BYTES = 1 << 20  # 65,536 marks: no worker waits for the reader
STEP_S = 0.002

_pipe = -1


def argument(number: int) -> str:
    """200 bytes that begin with the job's number."""
    return f"{number:0{DIGITS}d}".ljust(ARGUMENT_BYTES, "x")


def mark(argument: str) -> None:
    """The job with this argument begins now."""
    global _pipe
    if _pipe < 0:
        _pipe = os.open(os.environ[MARKS], os.O_WRONLY)
    os.write(_pipe, MARK.pack(int(argument[:DIGITS]), time.monotonic_ns()))


class Marks:
    """Reads the marks of all workers, from its making to `close`."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._read = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._write = os.open(path, os.O_WRONLY)  # while this is open a worker that ends is no end of the pipe
        os.set_blocking(self._read, True)
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """How many marks came so far, repeated ones counted."""
        return self._bytes // MARK.size

    def wait(self, count: int, seconds: float, alive: Callable[[], None] = lambda: None) -> bool:
        """Whether so many came within so many seconds. `alive` raises when waiting is of no use."""
        deadline_s = time.monotonic() + seconds
        while self.count < count:
            if time.monotonic() > deadline_s:
                return False
            alive()
            time.sleep(STEP_S)
        return True

    def times_ns(self) -> dict[int, list[int]]:
        """When each job began, by its number: several times where it ran several times."""
        times: dict[int, list[int]] = {}
        for number, at_ns in MARK.iter_unpack(b"".join(self._pieces)):
            times.setdefault(number, []).append(at_ns)
        return times

    def close(self) -> None:
        """Read no more."""
        os.write(self._write, MARK.pack(-1, 0))
        self._thread.join()
        os.close(self._read)
        os.close(self._write)
        self.path.unlink()

    def _run(self) -> None:
        rest = b""
        while True:
            data = rest + os.read(self._read, PIPE_BYTES)
            whole = len(data) // MARK.size * MARK.size
            piece, rest = data[:whole], data[whole:]
            if piece[-MARK.size :] == MARK.pack(-1, 0):
                return
            self._pieces.append(piece)
            self._bytes += whole
