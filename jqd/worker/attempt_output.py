"""The output of an attempt beside its outcome: lines, progress and followers. From any thread."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

OUTPUT_BYTES_MAX = 65_536  # the last that an attempt printed or logged: it is kept with the attempt if that fails


class Output:
    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._bytes = 0
        self._fresh = 0
        self._lock = threading.Lock()

    def add(self, line: str) -> None:
        data = line.encode("utf-8", "backslashreplace")
        if len(data) >= OUTPUT_BYTES_MAX:
            data = data[1 - OUTPUT_BYTES_MAX :]
        with self._lock:
            self._lines.append(data.decode("utf-8", "replace"))
            self._bytes += len(data) + 1
            self._fresh += 1
            while self._bytes > OUTPUT_BYTES_MAX:
                self._bytes -= len(self._lines.popleft().encode()) + 1

    def text(self) -> str:
        with self._lock:
            return "\n".join(self._lines)

    def fresh(self) -> str:
        """Return the lines since the last call, as far as they are kept."""
        with self._lock:
            number, self._fresh = min(self._fresh, len(self._lines)), 0
            return "\n".join(list(self._lines)[len(self._lines) - number :]) if number else ""


class AttemptOutput:
    __slots__ = ("_part", "_spoke", "_write", "far", "follows", "output")

    def __init__(self, spoke: Callable[[], None] | None = None, write: Callable[[str], None] | None = None) -> None:
        """`spoke`: called for each line and progress. `write`: puts a line into the worker's log."""
        self.output: Output | None = None
        self.far: tuple[float | None, str] | None = None
        """How far it is, as it said last; None once somebody took that."""
        self.follows: list[Mapping[str, Any]] = []
        """The jobs that are to follow, when this one has succeeded."""
        self._part = ""  # printed without an end of line
        self._spoke, self._write = spoke, write

    def write(self, line: str) -> None:
        if self.output is None:
            self.output = Output()
        self.output.add(line)
        if self._spoke is not None:
            self._spoke()

    def set_progress(self, done: float | None, message: str) -> None:
        self.far = (done, message)
        if self._spoke is not None:
            self._spoke()

    def tell(self, line: str) -> None:
        """Keep a line, and put it into the worker's log."""
        if self._write is not None:
            self._write(line)
        self.write(line)

    def printed(self, text: str) -> None:
        """Log the lines that this piece of print completes. A line without an end is cut."""
        *lines, self._part = (self._part + text).split("\n")
        for line in lines:
            self.tell(line)
        if len(self._part) >= OUTPUT_BYTES_MAX:
            self.over()

    def over(self) -> None:
        if self._part:
            last, self._part = self._part, ""
            self.tell(last)
