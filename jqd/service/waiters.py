"""Who waits for jobs at this daemon: for their ends, for news of one, or for events of many. Nobody waits for them.

Waiters of ends are woken by what this daemon applies, and by `find.watch`; those of one job by `job_events.watch`.
Events are rows of the job log (`domain/joblog.py`): what finds a listener's queue full is dropped, and the listener
receives the count.
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
    """Events by job. A hint only: whoever waits looks the job up again."""

    def __init__(self) -> None:
        self._bells: dict[str, list[trio.Event]] = {}

    @property
    def job_ids(self) -> list[str]:
        """Return the jobs that are waited for."""
        return list(self._bells)

    @contextmanager
    def waiting(self, job_id: str) -> Iterator[trio.Event]:
        """Give an event that is set when the job may have ended."""
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


WAKEN = 25  # watchers at once: the loop does something else before the next ones
LOG_BYTES_MAX = 65_536  # of a job, as the store keeps


class Watched:
    """One job, and the listeners that follow it."""

    def __init__(self, job_id: str, view: JobView | None, *, named: bool) -> None:
        """`named`: the job was found by its pusher's own id, so it exists."""
        self.job_id, self.named = job_id, named
        self.view = view
        """The job, as the store had it last; None: it is on its way into the store."""
        self.log = NO_LOG
        self.is_gone = False
        """Whether the job was deleted."""
        self.is_looked_at = False
        """Whether the store was queried for the job's log."""
        self.bells: dict[trio.Event, str | None] = {}
        """Set when something has changed; and whose they are: a tenant, None: of one that sees all."""
        self.shared_events: dict[Hashable, Any] = {}
        """What many say alike, until the next change."""

    def add(self, part: Log | None) -> bool:
        """Append what the job printed to the lines that are known. Returns whether there were any."""
        if part is None or part == self.log:
            return False
        if part.fence == self.log.fence and self.log.start <= part.start <= self.log.end:
            data = self.log.data[: part.start - self.log.start] + part.data
            first = _first_line(data) if len(data) > LOG_BYTES_MAX else 0
            part = Log(part.fence, self.log.start + first, data[first:])
        self.log = part
        return True

    def ring(self) -> None:
        """Wake all who watch the job."""
        for bell in list(self.bells):
            bell.set()

    async def wake(self) -> None:
        """Let all that watch the job look again."""
        self.shared_events.clear()
        for number, bell in enumerate(list(self.bells)):
            if number % WAKEN == WAKEN - 1:
                await trio.lowlevel.checkpoint()
            bell.set()


def _first_line(data: bytes) -> int:
    """Return where the lines begin that are kept; of a last line that is longer, where its end does."""
    first = data.find(b"\n", len(data) - LOG_BYTES_MAX) + 1
    return first if 0 < first < len(data) else len(data) - LOG_BYTES_MAX


QUEUE_MAX = 1_000  # rows of one listener, some 300 KB: a second of a busy daemon
UNNAMED_MAX = 100  # of those, ones that have to be looked up: each is a call of the store


class Listener:
    """One listener's filter and queue."""

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
        """Keep rows that match all that is given. A row that names no jobtype or no tags, where these matter, is kept,
        to be looked up. `can_access`: the jobtypes that exist for the listener; None: all.
        """
        self.can_access = can_access
        self.tenant = tenant
        """None: the listener sees all tenants."""
        self.jobtype = jobtype
        self.tag = tag
        self._job_id = job_id
        self._event = event
        self._rows: deque[Row] = deque()
        self._unnamed: deque[Row] = deque()
        self._dropped = 0
        self.ready = trio.Event()
        """Set when there is something to take."""

    def receive(self, rows: Sequence[Row]) -> None:
        """Queue the matching rows, as far as there is room."""
        for row in rows:
            if not self._fits(row):
                continue
            if "jobtype" not in row and (self.can_access is not None or self.jobtype is not None):
                # It may be anybody's: it takes no room from rows that are known to fit, and who may not know of all
                # jobs does not learn how many of these there were.
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
        """Return the rows queued since the last call, and how many were dropped after them."""
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
