"""What a job's code logs by `logging` goes into the worker's log, with the job's id and name."""

import logging

from jqd.words.log import get_logger
from jqd.worker.context import at_work

OURS = ("httpx2", "httpcore2")  # what the worker itself uses: a line for each registration tells nobody anything


class JobHandler(logging.Handler):
    """Passes records on to the worker's own log, one line each, in its format."""

    def __init__(self) -> None:
        super().__init__()
        self._log = get_logger("job")

    def emit(self, record: logging.LogRecord) -> None:
        """As `logging` calls it."""
        job = at_work.get()
        fields = {} if job is None else {"job_id": job.job_id, "name": job.name, "attempt": job.attempt}
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
