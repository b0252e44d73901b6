"""The listeners to this daemon's job events, and the events that each has not received yet. Pure.

Events are rows of the job log (`domain/joblog.py`). Nobody waits for a listener: what finds its queue full is dropped,
and the listener receives the count.
"""

from collections import deque
from collections.abc import Callable, Sequence

import trio

from jqd.domain.joblog import TAGGED, Row
from jqd.domain.tenant import annotate

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
