"""The output of an attempt beside its outcome: lines, progress and followers. From any thread."""

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

OUTPUT_BYTES_MAX = 65_536  # the last that an attempt printed or logged: it is kept if that fails, or somebody watches
# Of what a success printed: it goes through the daemon's journal, of each job that prints.
SUCCESS_LOG_BYTES_MAX = 8_192


class Output:
    """The last lines that were printed. Each has its end, so that every printed byte has its place."""

    def __init__(self) -> None:
        self._lines: deque[tuple[str, int]] = deque()  # each with its bytes
        self._bytes = 0
        self._end = 0
        """How many bytes were printed."""
        self._passed_on = 0
        self._lock = threading.Lock()

    def add(self, line: str) -> None:
        data = line.encode("utf-8", "backslashreplace")
        with self._lock:
            self._end += len(data) + 1
            if len(data) >= OUTPUT_BYTES_MAX:
                data = data[1 - OUTPUT_BYTES_MAX :]
            self._lines.append((data.decode("utf-8", "replace"), len(data) + 1))
            self._bytes += len(data) + 1
            while self._bytes > OUTPUT_BYTES_MAX:
                self._bytes -= self._lines.popleft()[1]

    def skip(self, size: int) -> None:
        """Note that so many bytes were printed and are kept nowhere."""
        if size:
            with self._lock:
                self._lines.clear()
                self._bytes, self._end = 0, self._end + size

    def text(self) -> str:
        with self._lock:
            return "\n".join(line for line, _ in self._lines)

    def since(self, start: int = 0, bytes_max: int = OUTPUT_BYTES_MAX) -> tuple[int, str]:
        """Return the lines from that byte on, as far as they are kept, and where they begin."""
        with self._lock:
            at, lines = self._end, list[str]()
            for line, size in reversed(self._lines):
                if at - size < start or self._end - at + size > bytes_max:
                    if lines or at - size < start:
                        break
                    line, size = _end_of(line, bytes_max)
                at -= size
                lines.append(line)
            return at, "\n".join(reversed(lines))

    def fresh(self) -> tuple[int, str]:
        """Return the lines since the last call, as far as they are kept, and how many bytes before them are not."""
        at, text = self.since(self._passed_on)
        missed, self._passed_on = at - self._passed_on, at + (len(text.encode()) + 1 if text else 0)
        return missed, text


def _end_of(line: str, bytes_max: int) -> tuple[str, int]:
    data = line.encode()[1 - bytes_max :].decode("utf-8", "ignore").encode()
    return data.decode(), len(data) + 1


class AttemptOutput:
    __slots__ = ("_part", "_spoke", "_write", "asked_s", "far", "follows", "log_end", "output")

    def __init__(self, spoke: Callable[[], None] | None = None, write: Callable[[str], None] | None = None) -> None:
        """`spoke`: called for each line and progress. `write`: puts a line into the worker's log."""
        self.output: Output | None = None
        self.far: tuple[float | None, str] | None = None
        """The latest progress: a share from 0 to 1, and a message; None: none since the last report."""
        self.log_end: int | None = None
        """How many bytes of the output its followers have; None: nobody follows it, as far as is known."""
        self.asked_s = -math.inf
        """When a daemon was last asked whether somebody follows it."""
        self.follows: list[Mapping[str, Any]] = []
        """The jobs that are to follow, when this one has succeeded."""
        self._part = ""  # printed without an end of line
        self._spoke, self._write = spoke, write

    def write(self, line: str, missed: int = 0) -> None:
        """Add a line. `missed`: bytes that were printed before it and are kept nowhere."""
        if self.output is None:
            self.output = Output()
        self.output.skip(missed)
        for each in line.split("\n"):
            self.output.add(each)
        if self._spoke is not None:
            self._spoke()

    def set_progress(self, done: float | None, message: str) -> None:
        self.far = (done, message)
        if self._spoke is not None:
            self._spoke()

    def log_line(self, line: str) -> None:
        """Keep a line, and put it into the worker's log."""
        if self._write is not None:
            self._write(line)
        self.write(line)

    def printed(self, text: str) -> None:
        """Log the lines that this piece of print completes. A line without an end is cut."""
        *lines, self._part = (self._part + text).split("\n")
        for line in lines:
            self.log_line(line)
        if len(self._part) >= OUTPUT_BYTES_MAX:
            self.over()

    def log(self, bytes_max: int = OUTPUT_BYTES_MAX) -> tuple[int, str]:
        """Return the end of all output of a finished attempt, and how many bytes came before."""
        self.over()
        return self.output.since(bytes_max=bytes_max) if self.output is not None else (0, "")

    def over(self) -> None:
        if self._part:
            last, self._part = self._part, ""
            self.log_line(last)
