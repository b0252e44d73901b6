"""Logs a line when a job begins and ends, for a limited number of jobs a second. Further jobs are only counted. Also
sends what jobs log and print to the worker's log, with the job's id and name, and to the attempt's output.

A worker may run 15,000 jobs a second, and two lines for each would take longer than the jobs. So LINES_PER_S jobs a
second are logged one by one, and further successes are only counted. Failures are always logged, by `Attempts`.
"""

import logging
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import trio

from jqd.domain.clock import Clock
from jqd.domain.log import get_logger, logs_debug
from jqd.worker.batch import Item
from jqd.worker.context import at_work

LINES_PER_S = 20  # jobs logged one by one: more than people read, and at most some hundred microseconds a second
COUNT_S = 1.0  # between two lines with counts
OURS = ("httpx2", "httpcore2")  # libraries of the worker itself, which would log a line for each registration


class JobLog:
    """Logs jobs, from any thread. It has no lock, so when two threads log at once, a line or a count may be lost."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._log = get_logger("worker")
        self._logged, self._second, self._unlogged, self._most = 0, 0, 0, LINES_PER_S

    def began(self, item: Item) -> None:
        now_s = self._clock.mono_s()
        item.begun_s = item.begun_s or now_s
        if (second := int(now_s)) != self._second:
            self._second, self._logged = second, 0
            # Checked once a second, as it takes as long as a small job.
            self._most = sys.maxsize if logs_debug() else LINES_PER_S
        self._logged += 1
        item.is_logged = self._logged <= self._most
        if item.is_logged:
            self._log.info("worker.job_started", **job_fields(item))

    def succeeded(self, item: Item) -> None:
        if item.is_logged:
            ms = round((self._clock.mono_s() - (item.begun_s or 0.0)) * 1000)
            self._log.info("worker.job_succeeded", **job_fields(item), ms=ms)
        else:
            self._unlogged += 1

    def count(self) -> None:
        count, self._unlogged = self._unlogged, 0
        if count:
            self._log.info("worker.jobs_succeeded", count=count, why=f"above {LINES_PER_S} a second jobs are counted")

    async def run(self) -> None:
        try:
            while True:
                await trio.sleep(COUNT_S)
                self.count()
        finally:
            self.count()


def job_fields(item: Item) -> dict[str, object]:
    return {"job_id": item.job_id, "name": item.job.name, "attempt": item.job.attempt}


class JobHandler(logging.Handler):
    """Sends log records to the worker's log. A record that a job logs also goes to the output of the job's attempt."""

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
    """Replaces `sys.stdout` or `sys.stderr`. Lines that a job prints go to the worker's log; other output goes to the
    original stream. What programs that a job starts print does not go through this object."""

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
    """Send what jobs print, and what any code logs at `level` or above, to the worker's log. If the app has set up
    `logging`, its own handlers stay. Call it after the process's own log is set up, and only in a process that is
    nothing but a worker."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(JobHandler())
        root.setLevel(level.upper())
        for name in OURS:
            logging.getLogger(name).setLevel(logging.WARNING)
    for stream in ("stdout", "stderr"):
        if not isinstance(before := getattr(sys, stream), Printed):
            setattr(sys, stream, Printed(before))
