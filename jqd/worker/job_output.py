"""Sends what jobs log and print into the worker's log, with the job's id and name, and keeps it if the attempt
fails."""

import logging
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from jqd.domain.log import get_logger
from jqd.worker.context import at_work

OURS = ("httpx2", "httpcore2")  # what the worker itself uses: a line for each registration tells nobody anything


class JobHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._log = get_logger("job")

    def emit(self, record: logging.LogRecord) -> None:
        job = at_work.get()
        fields = {} if job is None else {"job_id": job.job_id, "name": job.name, "attempt": job.attempt}
        try:
            message = record.getMessage()
            if record.exc_info:
                fields["exception"] = logging.Formatter().formatException(record.exc_info)
            self._log.log(record.levelno, message, logger=record.name, **fields)
            if job is not None:
                lines = [f"{record.levelname} {record.name}: {message}", str(fields.get("exception", ""))]
                job.output.write("\n".join(filter(None, lines)))
        except Exception:  # noqa: BLE001 - a line that cannot be written must not fail the job that logs it
            self.handleError(record)


class Printed:
    """A standard stream: what a job prints goes line by line into the worker's log, and all else where it went before.

    Only print and what writes to `sys.stdout` is seen: a program that a job starts has the stream itself.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        job = at_work.get()
        if job is None:
            return self._stream.write(text)
        token = at_work.set(None)  # the log itself may write to this stream
        try:
            job.output.printed(text)
        finally:
            at_work.reset(token)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def collect_logs(level: str) -> None:
    """Send what users' code logs, from `level` on, and prints to the worker's log.

    Code that sets `logging` up wins. For a process that is a worker and nothing else, once its own log is set up.
    """
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(JobHandler())
        root.setLevel(level.upper())
        for name in OURS:
            logging.getLogger(name).setLevel(logging.WARNING)
    for stream in ("stdout", "stderr"):
        if not isinstance(before := getattr(sys, stream), Printed):
            setattr(sys, stream, Printed(before))
