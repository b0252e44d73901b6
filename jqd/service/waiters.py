"""Clients that wait for jobs at this daemon. They never delay a job.

Waiters     wait until a job has ended      woken when this daemon applies outcomes, and by `find.watch`
Watched     follow the events of one job    woken by `job_events.watch`
Listener    follow the events of many jobs  gets rows of the job log (`domain/joblog.py`); if its queue is full,
                                            rows are dropped, and it gets the number of dropped rows
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from jqd.domain.joblog import TAGGED, Row
from jqd.domain.tenant import annotate
from jqd.store import NO_LOG, JobView, Log


class Waiters:
    """Trio events by job, for clients that wait until a job has ended. A set event is only a hint: the client looks the
    job up again."""

    def __init__(self) -> None:
        self._bells: dict[str, list[trio.Event]] = {}

    @property
    def job_ids(self) -> list[str]:
        """Return the ids of the jobs that clients wait for."""
        return list(self._bells)

    @contextmanager
    def waiting(self, job_id: str) -> Iterator[trio.Event]:
        """Yield an event (`with`) that is set when the job may have ended."""
        bell = trio.Event()
        self._bells.setdefault(job_id, []).append(bell)
        try:
            yield bell
        finally:
            bells = self._bells[job_id]
            bells.remove(bell)
            if not bells:
                del self._bells[job_id]

    def ring(self, job_ids: Iterable[str]) -> None:
        if self._bells:
            for job_id in job_ids:
                for bell in self._bells.get(job_id, ()):
                    bell.set()


WAKEN = 25  # listeners woken before other tasks run
LOG_BYTES_MAX = 65_536  # kept of a job's log: as much as the store keeps


class Watched:
    """One job, and the clients (listeners) that follow its events."""

    def __init__(self, job_id: str, view: JobView | None, *, named: bool) -> None:
        """`named`: the job was found by its pusher's own id, so it is known to exist."""
        self.job_id, self.named = job_id, named
        self.view = view
        """The job as it was last read; None: the job is on its way into the store."""
        self.log = NO_LOG
        self.is_gone = False
        """Whether the job was deleted."""
        self.is_looked_at = False
        """Whether the store was asked for the job's log."""
        self.bells: dict[trio.Event, str | None] = {}
        """Event of each listener, set when the job changed → the listener's tenant; None: the listener sees all
        tenants."""
        self.shared_events: dict[Hashable, Any] = {}
        """Cache of encoded events that several listeners get; emptied at each change."""

    def add(self, part: Log | None) -> bool:
        """Append a part of the job's log to the known log. A part of another attempt, or one that does not join the
        known log, replaces it. Returns whether the log changed. `part`: None: there is nothing to append."""
        if part is None or part == self.log:
            return False
        if part.fence == self.log.fence and self.log.start <= part.start <= self.log.end:
            data = self.log.data[: part.start - self.log.start] + part.data
            first = _first_line(data) if len(data) > LOG_BYTES_MAX else 0
            part = Log(part.fence, self.log.start + first, data[first:])
        self.log = part
        return True

    def ring(self) -> None:
        """Wake all listeners at once, at shutdown."""
        for bell in list(self.bells):
            bell.set()

    async def wake(self) -> None:
        """Wake all listeners after a change, a few at a time."""
        self.shared_events.clear()
        for number, bell in enumerate(list(self.bells)):
            if number % WAKEN == WAKEN - 1:
                await trio.lowlevel.checkpoint()
            bell.set()


def _first_line(data: bytes) -> int:
    """Return the index from which to keep a log that is longer than LOG_BYTES_MAX: where the first whole line of its
    last LOG_BYTES_MAX bytes begins, or where these bytes begin if they have no whole line."""
    first = data.find(b"\n", len(data) - LOG_BYTES_MAX) + 1
    return first if 0 < first < len(data) else len(data) - LOG_BYTES_MAX


QUEUE_MAX = 1_000  # rows of one listener, some 300 KB: a second of a busy daemon
UNNAMED_MAX = 100  # further rows whose jobs must be looked up: each is a call of the store


class Listener:
    """One client's filter for events of many jobs, and the queue of events for it."""

    def __init__(
        self,
        *,
        can_access: Callable[[str], bool] | None = None,
        tenant: str | None = None,
        jobtype: str | None = None,
        job_id: str | None = None,
        event: str | None = None,
        tag: str | None = None,
    ) -> None:
        """The listener gets rows of the job log (each is one event of a job) that match all given fields. If a row
        lacks the jobtype or tags that the filter needs, it is queued too, and the reader looks the job up.
        `can_access`: whether the client may see a jobtype; None: it sees all."""
        self.can_access = can_access
        self.tenant = tenant
        """None: the client sees all tenants."""
        self.jobtype = jobtype
        self.tag = tag
        self._job_id = job_id
        self._event = event
        self._rows: deque[Row] = deque()
        self._unnamed: deque[Row] = deque()
        self._dropped = 0
        self.ready = trio.Event()
        """Set while rows are queued or a count of dropped rows is waiting for `take`."""

    def receive(self, rows: Sequence[Row]) -> None:
        """Queue the matching rows, while there is room. Count the others as dropped, except rows whose jobs the client
        may not be allowed to see."""
        for row in rows:
            if not self._fits(row):
                continue
            if "jobtype" not in row and (self.can_access is not None or self.jobtype is not None):
                # This row may be about anybody's job: so it takes no room from rows that are known to match, and a
                # listener that may not know of all jobs does not learn how many such rows were dropped.
                if len(self._unnamed) < UNNAMED_MAX:
                    self._unnamed.append(row)
                elif self.can_access is None:
                    self._dropped += 1
                else:
                    continue
            elif len(self._rows) >= QUEUE_MAX:
                self._dropped += 1
            else:
                self._rows.append(row)
            self.ready.set()

    def take(self) -> tuple[list[Row], int]:
        """Return the rows (events of jobs) queued since the last call, and how many were dropped after them."""
        rows, dropped = [*self._rows, *self._unnamed], self._dropped
        self._rows.clear()
        self._unnamed.clear()
        self._dropped, self.ready = 0, trio.Event()
        return rows, dropped

    def _fits(self, row: Row) -> bool:
        named = annotate(str(row.get("tenant", "")), str(row["jobtype"])) if "jobtype" in row else None
        if self.can_access is not None and named is not None and not self.can_access(named):
            return False
        tags = row.get("tags")
        return (
            (self._event is None or row["event"] == self._event)
            and (self.tag is None or row["event"] not in TAGGED or (isinstance(tags, list) and self.tag in tags))
            and (self._job_id is None or row["job_id"] == self._job_id)
            and (self.jobtype is None or row.get("jobtype", self.jobtype) == self.jobtype)
        )
