"""Writes to stderr and stdout without waiting for the reader, and without failing.

    add ──▶ written at once, if the descriptor takes it
        ──▶ queued for a thread while the reader is slow, up to WAITING_BYTES_MAX
        ──▶ dropped and counted, if the queue is full or the descriptor refuses (full disk, reader gone, closed)

The next line that can be written is preceded by a line that says how many were dropped. In two cases a write waits
nevertheless, because the system does not tell beforehand: if a file is on a disk that hangs, and if another process
fills the same pipe at that moment.
"""

import atexit
import os
import select
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TextIO

WAITING_BYTES_MAX = 1 << 20  # of the queue: some thousand lines, for a reader that pauses for a moment
PIECE_BYTES = select.PIPE_BUF  # a pipe that `poll` calls writable takes so much without waiting
DRAIN_S = 1.0  # wait for the queue at the end of the process


class LossyWriter:
    """Writes to one file descriptor, with a queue. `add` may be called from any thread, and does not wait for the
    reader."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.dropped = 0
        self.note: Callable[[int], str] = "log.dropped lines={}\n".format
        """Makes the line that says how many lines were dropped, from their number."""
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._waiting = bytearray()
        self._writing_bytes = self._unnamed = 0
        self._is_torn = self._is_running = False  # torn: the last line was written only in part
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
        """Wait up to `seconds` until the queue is empty. Returns whether it is."""
        with self._moved:
            return self._moved.wait_for(lambda: not self._waiting and not self._writing_bytes, seconds)

    def _runs(self) -> bool:
        """Start the thread that writes the queue, if it does not run yet. Returns whether it runs."""
        if not self._is_running:
            try:
                threading.Thread(target=self._run, name="jqd-log", daemon=True).start()
            except RuntimeError:
                return False  # no thread can be started
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
        """Write data to the descriptor; if lines were dropped before, write a note about them first. Returns the bytes
        that the descriptor did not take within `patience_ms` (None: no limit). Bytes that it refuses are dropped."""
        unnamed = self._unnamed
        note = (b"\n" * self._is_torn + _encoded(self.note(unnamed))) if unnamed else b""
        unwritten, left = memoryview(note + data), data
        try:
            while unwritten and _takes(self._fd, patience_ms):
                done = os.write(self._fd, unwritten[:PIECE_BYTES])
                self._is_torn = unwritten[done - 1] != ord("\n")
                unwritten = unwritten[done:]
            left = bytes(unwritten[-len(data) :])
        except OSError:
            self._drop(bytes(unwritten[-len(data) :]))
            left = b""
        if len(unwritten) <= len(data):
            with self._moved:
                self._unnamed -= unnamed
        return left

    def _drop(self, data: bytes) -> None:
        lines = max(1, data.count(b"\n"))
        with self._moved:  # reentrant lock: `add` holds it already, the queue's thread does not
            self.dropped += lines
            self._unnamed += lines


class LossyStream:
    """Replaces a text stream for print and logging; it writes through a `LossyWriter`."""

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
            return 0  # the stream is closed, or None

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        """Do nothing, as the queue is written as soon as possible anyway."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def writer_of(stream: TextIO) -> LossyWriter | None:
    """Return the writer of a stream's descriptor; None if it has no descriptor."""
    try:
        return _writer(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return None


_writer = cache(LossyWriter)


def make_lossy(*names: str) -> None:
    """Replace these streams of `sys` by lossy ones, so that writing to them never waits or fails."""
    for name in names:
        stream = getattr(sys, name)
        if not isinstance(stream, LossyStream):
            setattr(sys, name, LossyStream(stream))


def open_missing() -> None:
    """Open /dev/null for each of the descriptors 0 to 2 that is closed. Otherwise the next opened file, perhaps the
    journal, would get this descriptor, and `print` would write into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def dropped_lines() -> int:
    """Return how many lines of this process's log were dropped since its start."""
    return _writer(2).dropped


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _takes(fd: int, patience_ms: int | None) -> bool:
    """Return whether the descriptor becomes ready for writing within `patience_ms` (None: no limit). The write may
    still fail."""
    asked = select.poll()
    asked.register(fd, select.POLLOUT)
    return bool(asked.poll(patience_ms))
