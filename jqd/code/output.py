"""Collects the output of one attempt: its last part for the log, and the new jobs for which it asks. Notices when there
is too much of it."""

from typing import Any, NamedTuple

from jqd.domain.job_lines import Followers, is_job

LOG_BYTES_MAX = 65_536  # the end of the output that is kept: as much as a daemon keeps
LINE_BYTES_MAX = 1 << 20  # of a line that asks for a job: as much as an outcome may have of such jobs
LETTER_BYTES_MAX = 4  # bytes of a character in UTF-8
MARK = b"J: "  # in each line that asks for a job, so that millions of others need not be checked one by one


class Log(NamedTuple):
    start: int
    """How many bytes were printed before this text."""
    text: str


NO_LOG = Log(0, "")


class JobOutput:
    """The output of a running attempt."""

    def __init__(self, bytes_max: int) -> None:
        self._followers = Followers()
        self._left, self._seen = bytes_max, 0
        self._log = bytearray()
        self._begun = bytearray()  # the last line of standard output, while it has no end

    @property
    def follows(self) -> list[dict[str, Any]]:
        """The jobs that the code asked for by `J:` lines."""
        return self._followers.jobs

    @property
    def is_too_much(self) -> bool:
        return self._left < 0

    def printed(self, data: bytes) -> None:
        """Add data from standard output."""
        self.complained(data)
        self._find_jobs(data)

    def complained(self, data: bytes) -> None:
        """Add data from standard error. Lines with `J:` in it do not ask for new jobs."""
        self._left -= len(data)
        self._seen += len(data)
        self._log += data
        del self._log[:-LOG_BYTES_MAX]

    def end(self) -> None:
        """End the output: a last line without a line end then counts as complete."""
        self._find_jobs(b"\n")  # whatever the log ends with: that may be a line of standard error
        self.complained(b"" if self._log.endswith(b"\n") or not self._log else b"\n")

    @property
    def log(self) -> Log:
        return self.since(0)

    def since(self, start: int) -> Log:
        """Return the kept lines from byte `start` on that are complete, and how many bytes were printed before them.
        The text lacks the line end of its last line, which counts as a byte."""
        kept_from = self._seen - len(self._log)
        end = self._log.rfind(b"\n")
        at = max(0, start - kept_from)
        if kept_from > start and kept_from:
            first = self._log.find(b"\n", at) + 1
            at = first if first <= end else _letter(self._log)  # the only line lost its beginning: return the rest
        if end < at:
            return Log(kept_from + max(0, end + 1), "")
        return Log(kept_from + at, self._log[at:end].decode("utf-8", "ignore"))

    def _find_jobs(self, data: bytes) -> None:
        self._begun += data
        if MARK in self._begun:
            *lines, self._begun = self._begun.split(b"\n")
            for line in filter(is_job, map(bytes, lines)):
                self._followers.add(line)
        else:
            del self._begun[: self._begun.rfind(b"\n") + 1]
        del self._begun[LINE_BYTES_MAX:]


def _letter(data: bytearray) -> int:
    """Return the index of the first byte that begins a UTF-8 character; 0 if there is none."""
    return next((at for at in range(min(LETTER_BYTES_MAX, len(data))) if data[at] & 0xC0 != 0x80), 0)
