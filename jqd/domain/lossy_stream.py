"""Writes to stderr and stdout that never wait for the reader and never fail.

    add ──▶ written at once, as long as the descriptor takes it
        ──▶ queued for a thread while its reader stands still, up to WAITING_BYTES_MAX
        ──▶ dropped and counted: the queue is full, or the descriptor refuses (full disk, reader gone, closed)

The next line that can be written is preceded by one that says how many were dropped. A file on a disk that hangs holds
up who writes, for no call asks about that beforehand; so does a pipe whose last page another process took in between.
"""

import atexit
import os
import select
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TextIO

WAITING_BYTES_MAX = 1 << 20  # of all lines: some thousand, for who looks away for a moment
PIECE_BYTES = select.PIPE_BUF  # a pipe that can be written takes so much at once
DRAIN_S = 1.0  # at the end of a process, which must end


class LossyWriter:
    """The queue of one descriptor. `add` may be called from any thread, and never waits for the reader."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.dropped = 0
        self.note: Callable[[int], str] = "log.dropped lines={}\n".format
        """Says how many were dropped, as a line."""
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._waiting = bytearray()
        self._writing_bytes = self._unnamed = 0
        self._is_torn = self._is_running = False  # torn: what was written last is the beginning of a line
        self._moved = threading.Condition()

    def add(self, data: bytes) -> None:
        with self._moved:
            if data and not self._waiting and not self._writing_bytes:
                data = self._write(data, 0)
            if not data:
                return
            if len(self._waiting) + self._writing_bytes + len(data) > WAITING_BYTES_MAX or not self._runs():
                self._drop(data)
                return
            self._waiting += data
            self._moved.notify_all()

    def drain(self, seconds: float = DRAIN_S) -> bool:
        """Wait up to `seconds` until nothing is queued. Returns whether nothing is."""
        with self._moved:
            return self._moved.wait_for(lambda: not self._waiting and not self._writing_bytes, seconds)

    def _runs(self) -> bool:
        """Start the queue's thread when something first waits. Returns whether it runs."""
        if not self._is_running:
            try:
                threading.Thread(target=self._run, name="jqd-log", daemon=True).start()
            except RuntimeError:
                return False  # the machine has no more threads
            self._is_running = True
            atexit.register(self.drain)
        return True

    def _run(self) -> None:
        while True:
            with self._moved:
                self._moved.wait_for(lambda: self._waiting)
                data = bytes(self._waiting)
                self._waiting.clear()
                self._writing_bytes = len(data)
            self._write(data, None)
            with self._moved:
                self._writing_bytes = 0
                self._moved.notify_all()

    def _write(self, data: bytes, patience_ms: int | None) -> bytes:
        """Write. Returns the bytes that the descriptor did not take in time; bytes that it refuses are dropped."""
        unnamed = self._unnamed
        note = (b"\n" * self._is_torn + _encoded(self.note(unnamed))) if unnamed else b""
        rest, left = memoryview(note + data), data
        try:
            while rest and _takes(self._fd, patience_ms):
                done = os.write(self._fd, rest[:PIECE_BYTES])
                self._is_torn = rest[done - 1] != ord("\n")
                rest = rest[done:]
            left = bytes(rest[-len(data) :])
        except OSError:
            self._drop(bytes(rest[-len(data) :]))
            left = b""
        if len(rest) <= len(data):
            with self._moved:
                self._unnamed -= unnamed
        return left

    def _drop(self, data: bytes) -> None:
        lines = max(1, data.count(b"\n"))
        with self._moved:  # held already by `add`, not by the thread
            self.dropped += lines
            self._unnamed += lines


class LossyStream:
    """A text stream for print and log that never waits; otherwise it behaves as the stream it replaces."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._writer = writer_of(stream)

    def write(self, text: str) -> int:
        if self._writer is not None:
            self._writer.add(_encoded(text))
            return len(text)
        try:
            return self._stream.write(text)
        except (OSError, ValueError, AttributeError):
            return 0  # it is closed, or there is none

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Do nothing: nothing waits that a flush would hurry."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def writer_of(stream: TextIO) -> LossyWriter | None:
    """Return the writer of a stream's descriptor; None: it has none."""
    try:
        return _writer(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return None


_writer = cache(LossyWriter)


def make_lossy(*names: str) -> None:
    """Make these streams of `sys` lossy: nothing waits for them or fails by them."""
    for name in names:
        stream = getattr(sys, name)
        if not isinstance(stream, LossyStream):
            setattr(sys, name, LossyStream(stream))


def open_missing() -> None:
    """Open closed descriptors of 0 to 2 on /dev/null: else the next file, perhaps the journal, would get one and be
    printed into."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def dropped_lines() -> int:
    """Return how many lines of this process's log were dropped since its start."""
    return _writer(2).dropped


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _takes(fd: int, patience_ms: int | None) -> bool:
    """Return whether a write would not wait; it may still fail."""
    asked = select.poll()
    asked.register(fd, select.POLLOUT)
    return bool(asked.poll(patience_ms))
