"""The job log: one JSON line per job and event, written to a file for analytics, and passed to listeners. It is off
unless a path is set or somebody listens.

    entered    acknowledged to its pusher
    ingested   in the store
    started    handed to a worker
    ended      an attempt ended; what becomes of the job (`entrusted`: the attempt goes on, the worker holds it)
    cancelled

Lines name a job by the daemon's id; `entered` has the pusher's own id, too. They never contain an argument, a result or
an error's text. The file is opened for each write, so renaming it rotates it.

Lines may be lost, because no job waits for this disk: a thread writes the lines from a bounded queue. Lines that do not
fit into the queue are dropped. As soon as the file can be written again, a line `dropped` says how many were.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from jqd.domain.clock import Clock
from jqd.domain.dates import date_of
from jqd.domain.job import Held, Outcome
from jqd.domain.log import get_logger
from jqd.domain.tally import Tally
from jqd.domain.tenant import bare, tenant_of

QUEUE_BYTES_MAX = 16 << 20  # some 100,000 lines: a second of a daemon at its limit, an hour of an ordinary one
WRITE_BYTES = 1 << 20  # of one write, so that a failed one loses little

_encoder = msgspec.json.Encoder()

TAGGED = frozenset({"entered", "ingested", "started"})  # events with the job's tags, which an outcome does not contain

Row = Mapping[str, object]
"""One event of one job."""


class _Lines(NamedTuple):
    data: bytes
    number: int


def append(path: Path, data: bytes) -> None:
    """Append to a file; create it if it does not exist, such as after it was renamed. Waits for the disk. Raises
    OSError."""
    with path.open("ab") as file:
        file.write(data)


class JobLog:
    """Writes the job log. A log that cannot be written never stops a job."""

    def __init__(
        self,
        path: Path | None,
        *,
        daemon: str,
        clock: Clock,
        append: Callable[[Path, bytes], None] = append,
        tally: Tally | None = None,
    ) -> None:
        self._path = path
        self._daemon = daemon
        self._clock = clock
        self._append = append
        self._queue: deque[_Lines] = deque()
        self._queued_bytes = 0  # with lines that are being written
        self._dropped = 0  # lines dropped since the last successful write
        self._listeners: list[Callable[[Sequence[Row]], None]] = []
        self.is_on = path is not None
        """Whether there is a file or a listener."""
        self._bell, self._written = trio.Event(), trio.Event()
        self._limiter = trio.CapacityLimiter(1)
        self.tally = tally or Tally()
        """Counts the same events for metrics, also while the log is off."""
        self._log = get_logger("joblog")
        self.failing: str | None = None
        """Why lines are being lost now, for health checks; None if no lines are lost or the log is off."""

    @contextmanager
    def listening(self, listener: Callable[[Sequence[Row]], None]) -> Iterator[None]:
        """Call `listener` with the rows of each logged event while the `with` block runs. The listener must not
        raise."""
        self._listeners.append(listener)
        self.is_on = True
        try:
            yield
        finally:
            self._listeners.remove(listener)
            self.is_on = self._path is not None or bool(self._listeners)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            while self._queue:
                await self._write_some()
            self._bell = trio.Event()
            await self._bell.wait()

    async def flush(self) -> None:
        """Wait until all queued lines are written or lost."""
        while self._queued_bytes:
            await self._written.wait()

    def started(self, worker_id: str, held: Sequence[Held]) -> None:
        self.tally.started(held, self._clock.wall_ms())
        rows = ({**_attempt(h.job.id, h.job.jobtype, h, h.job.tags), "worker": bare(worker_id)} for h in held)
        self.write("started", rows)

    def ended(self, outcomes: Sequence[Outcome], void: Collection[int] | None = ()) -> None:
        """Log and count outcomes that the store has applied. `void`: indexes of outcomes that changed nothing; None: it
        is unknown which ones."""
        self.tally.ended(outcomes, void)
        rows = (_ending(each, void=None if void is None else place in void) for place, each in enumerate(outcomes))
        self.write("ended", rows)

    def cancelled(self, job_ids: Sequence[str], jobtypes: Sequence[str] | None) -> None:
        """Log and count cancels that the store has applied. `jobtypes`: the type of each job, "" if it is unknown;
        None: all are unknown."""
        self.tally.cancelled(jobtypes or ())
        pairs = zip(job_ids, jobtypes or [""] * len(job_ids), strict=True)
        self.write("cancelled", (job_fields(job_id, name) if name else {"job_id": job_id} for job_id, name in pairs))

    def write(self, event: str, rows: Iterable[Row]) -> None:
        """Queue one log line for each of `rows` (the fields of one job), and pass the rows to the listeners. `event`
        and the common fields are added to each row. Costs nothing while the log is off."""
        if not self.is_on:
            return
        common = self._common(event)
        found = [{**common, **row} for row in rows]
        for listener in self._listeners:
            listener(found)
        if self._path is None or not found:
            return
        lines = [*map(_line, found)]
        data = b"".join(lines)
        if self._queued_bytes + len(data) > QUEUE_BYTES_MAX:
            self._count_lost(len(lines), f"more than {QUEUE_BYTES_MAX >> 20} MiB wait for its disk")
            return
        self._queue.append(_Lines(data, len(lines)))
        self._queued_bytes += len(data)
        self._bell.set()

    async def _write_some(self) -> None:
        assert self._path is not None
        taken: list[_Lines] = []
        while self._queue and (not taken or sum(len(lines.data) for lines in taken) < WRITE_BYTES):
            taken.append(self._queue.popleft())
        dropped, data = self._dropped, b"".join(lines.data for lines in taken)
        note = _line({**self._common("dropped"), "count": dropped}) if dropped else b""
        try:
            # Abandoned if cancelled: a disk that hangs must not keep the daemon from ending.
            await trio.to_thread.run_sync(
                self._append, self._path, note + data, limiter=self._limiter, abandon_on_cancel=True
            )
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread could be started
            self._count_lost(sum(lines.number for lines in taken), str(error))
        else:
            self._dropped -= dropped
            if self.failing is not None and not self._dropped:
                self._log.info("joblog.goes_on", path=str(self._path), dropped=dropped)
                self.failing = None
        self._queued_bytes -= len(data)
        self._written.set()
        self._written = trio.Event()

    def _count_lost(self, lines: int, why: str) -> None:
        self._dropped += lines
        if self.failing is None:
            self._log.error("joblog.failing", path=str(self._path), error=why)
        lost = f"{self._dropped} lines were dropped; jobs are not touched"
        self.failing = f"the job log {self._path} cannot be written: {why}. {lost}"

    def _common(self, event: str) -> dict[str, object]:
        ts = date_of(self._clock.wall_ms()).isoformat(timespec="milliseconds")
        return {"ts": ts, "event": event, "daemon": self._daemon}


def _line(row: Row) -> bytes:
    return _encoder.encode(row) + b"\n"


def job_fields(job_id: str, jobtype: str, tags: Sequence[str] = (), pusher_id: str | None = None) -> dict[str, object]:
    """Return the log fields that identify a job: id, jobtype, tenant, tags and the pusher's own id."""
    tenant = tenant_of(jobtype)
    more = {**({"tenant": tenant} if tenant else {}), **({"tags": [*tags]} if tags else {})}
    return {"job_id": job_id, "jobtype": bare(jobtype), **more, **({"pusher_id": pusher_id} if pusher_id else {})}


def _attempt(job_id: str, jobtype: str, of: Held | Outcome, tags: Sequence[str] = ()) -> dict[str, object]:
    # The fence names the claim.
    return {**job_fields(job_id, jobtype, tags), "attempt": of.attempt, "fence": of.fence}


def _ending(outcome: Outcome, *, void: bool | None) -> dict[str, object]:
    return {
        **_attempt(outcome.job_id, outcome.jobtype, outcome),
        "fate": outcome.fate.name.lower(),
        "status": outcome.status,
        "worker": bare(outcome.worker),
        "ms": outcome.finished_at_ms - outcome.started_at_ms,
        **({} if void is False else {"void": void}),
    }
