"""The job log: one JSON line per job and event, for analytics from files. Off unless a path is set.

Events: `entered` (acknowledged to its pusher), `ingested` (in the store), `started` (handed to a worker), `ended` (an
attempt ended, with its fate). Never an argument, a result or an error's text. The file is opened for each batch, so
whoever rotates it just renames it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from jqd.clock import Clock
from jqd.job import Held, Outcome
from jqd.log import get_logger

_encoder = msgspec.json.Encoder()


class JobLog:
    """Writes lines for batches of jobs; a job log that cannot be written never stops a job."""

    def __init__(self, path: Path | None, *, daemon: str, clock: Clock) -> None:
        self._path = path
        self._daemon = daemon
        self._clock = clock
        self._log = get_logger("joblog")
        self.failing: str | None = None
        """Why lines are being lost now, for health; None when all is well or the log is off."""

    @property
    def enabled(self) -> bool:
        """Whether lines are wanted: callers skip building them otherwise."""
        return self._path is not None

    def started(self, worker_id: str, held: Sequence[Held]) -> None:
        """Jobs were handed to a worker."""
        if self.enabled:
            self.write("started", ({**_attempt(h.job.id, h.job.jobtype, h), "worker": worker_id} for h in held))

    def ended(self, outcomes: Sequence[Outcome]) -> None:
        """Attempts ended, and the store knows."""
        if self.enabled:
            self.write("ended", map(_ending, outcomes))

    def write(self, event: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Append one line per row, `event` and the common fields added."""
        if self._path is None:
            return
        ts = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        common = {"ts": ts, "event": event, "daemon": self._daemon}
        lines = b"".join(_encoder.encode({**common, **row}) + b"\n" for row in rows)
        try:
            with self._path.open("ab") as file:
                file.write(lines)
        except OSError as error:
            if self.failing is None:
                self._log.error("joblog.failing", path=str(self._path), error=str(error))
            self.failing = f"the job log {self._path} cannot be written: {error}"
        else:
            self.failing = None


def _attempt(job_id: str, jobtype: str, of: Held | Outcome) -> dict[str, object]:
    # The fence tells which claim a start or an end came of.
    return {"job_id": job_id, "jobtype": jobtype, "attempt": of.attempt, "fence": of.fence}


def _ending(outcome: Outcome) -> dict[str, object]:
    return {
        **_attempt(outcome.job_id, outcome.jobtype, outcome),
        "fate": outcome.fate.name.lower(),
        "status": outcome.status,
        "worker": outcome.worker,
        "ms": outcome.finished_at_ms - outcome.started_at_ms,
    }
