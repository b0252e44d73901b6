"""Which job this thread or task runs, so that what its code logs by `logging` carries the job's id and name."""

import logging
from contextvars import ContextVar

from jqd.words.log import get_logger
from jqd.worker.batch import Item

OURS = ("httpx2", "httpcore2")  # what the worker itself uses: a line for each registration tells nobody anything

current: ContextVar[Item | None] = ContextVar("jqd_job", default=None)


class JobHandler(logging.Handler):
    """Passes records on to the worker's own log, one line each, in its format."""

    def __init__(self) -> None:
        super().__init__()
        self._log = get_logger("job")

    def emit(self, record: logging.LogRecord) -> None:
        """As `logging` calls it."""
        item = current.get()
        fields = {} if item is None else {"job_id": item.job_id, "name": item.job.name, "attempt": item.job.attempt}
        try:
            if record.exc_info:
                fields["exception"] = logging.Formatter().formatException(record.exc_info)
            self._log.log(record.levelno, record.getMessage(), logger=record.name, **fields)
        except Exception:  # noqa: BLE001 - a line that cannot be written must not fail the job that logs it
            self.handleError(record)


def log_by_job(level: str) -> None:
    """Let what users' code logs appear in the worker's log, from `level` on. Code that sets `logging` up wins."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(JobHandler())
        root.setLevel(level.upper())
        for name in OURS:
            logging.getLogger(name).setLevel(logging.WARNING)
