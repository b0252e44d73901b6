"""What an attempt produces beside its outcome: printed lines, progress and follower jobs. Usable from any thread."""

import math
import threading
from collections import deque
from collections.abc import Callable

from msgspec import Raw

OUTPUT_BYTES_MAX = 65_536  # the end of the output that is kept, for a failed attempt and for followers
SUCCESS_LOG_BYTES_MAX = 8_192  # of a success; less, as it goes through the daemon's journal for each job that prints


class Output:
    """The last lines that a job printed. Positions are byte offsets in all that the job has printed, line ends
    included."""

    def __init__(self) -> None:
        self._lines: deque[tuple[str, int]] = deque()  # each with its size in bytes
        self._bytes = 0  # of the lines that are kept
        self._end = 0
        """Number of bytes printed so far, including those dropped."""
        self._passed_on = 0  # position up to which `fresh` has returned lines
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
        """Count `size` bytes that were printed and are missing. If it is not 0, the lines kept so far are dropped, as a
        gap follows them."""
        if size:
            with self._lock:
                self._lines.clear()
                self._bytes, self._end = 0, self._end + size

    def text(self) -> str:
        with self._lock:
            return "\n".join(line for line, _ in self._lines)

    def since(self, start: int = 0, bytes_max: int = OUTPUT_BYTES_MAX) -> tuple[int, str]:
        """Return (position, lines). `lines`: the kept lines that begin at byte `start` or later; if they are more than
        `bytes_max` bytes, the last ones. `position`: the byte where `lines` begins."""
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
        """Return what was printed since the last call, as (missed, lines): how many bytes of it were dropped, and the
        kept lines after these."""
        at, text = self.since(self._passed_on)
        missed, self._passed_on = at - self._passed_on, at + (len(text.encode()) + 1 if text else 0)
        return missed, text


def _end_of(line: str, bytes_max: int) -> tuple[str, int]:
    data = line.encode()[1 - bytes_max :].decode("utf-8", "ignore").encode()
    return data.decode(), len(data) + 1


def encodable(text: str) -> str:
    """Return a user's text as one that can be encoded: a lone surrogate as `\\ud800`."""
    return text.encode("utf-8", "backslashreplace").decode()


class AttemptOutput:
    """Output lines, progress and follower jobs of one attempt."""

    __slots__ = ("_on_change", "_part", "_write", "asked_s", "far", "follows", "log_end", "output")

    def __init__(self, on_change: Callable[[], None] | None = None, write: Callable[[str], None] | None = None) -> None:
        """`on_change`: called after each change of lines or progress. `write`: writes a line to the worker's log."""
        self.output: Output | None = None
        self.far: tuple[float | None, str] | None = None
        """The latest progress: a share from 0 to 1, and a message. None: nothing new since it was last sent."""
        self.log_end: int | None = None
        """Up to which byte the people who watch the job have its output. None: nobody is known to watch it."""
        self.asked_s = -math.inf
        """When a daemon was last asked whether anybody watches the job, by trio's clock."""
        self.follows: list[Raw] = []
        """Jobs to push if this one succeeds, as MessagePack."""
        self._part = ""  # the last line, while it has no end
        self._on_change, self._write = on_change, write

    def write(self, line: str, missed: int = 0) -> None:
        """Add text, one or several lines, to the output. `missed`: how many printed bytes before it were dropped."""
        if self.output is None:
            self.output = Output()
        self.output.skip(missed)
        for each in line.split("\n"):
            self.output.add(each)
        if self._on_change is not None:
            self._on_change()

    def set_progress(self, done: float | None, message: str) -> None:
        self.far = (done, message)
        if self._on_change is not None:
            self._on_change()

    def log_line(self, line: str) -> None:
        """Add a line to the output, and write it to the worker's log."""
        if self._write is not None:
            self._write(line)
        self.write(line)

    def printed(self, text: str) -> None:
        """Add printed text: each line that it completes goes to the output and to the worker's log. An unfinished line
        of OUTPUT_BYTES_MAX counts as complete."""
        *lines, self._part = (self._part + text).split("\n")
        for line in lines:
            self.log_line(line)
        if len(self._part) >= OUTPUT_BYTES_MAX:
            self.over()

    def log(self, bytes_max: int = OUTPUT_BYTES_MAX) -> tuple[int, str]:
        """Return (position, text) for a finished attempt. `text`: the last `bytes_max` bytes of its output at most.
        `position`: the byte where `text` begins."""
        self.over()
        return self.output.since(bytes_max=bytes_max) if self.output is not None else (0, "")

    def over(self) -> None:
        if self._part:
            last, self._part = self._part, ""
            self.log_line(last)
