"""Who listens to what happens to jobs at this daemon, and what each has not been told yet. Pure.

Events are those of the job log (`domain/joblog.py`). Nobody waits for a listener: what comes when its queue is full
is dropped and counted, and it is told how much that was.
"""

from collections import deque
from collections.abc import Callable, Sequence

import trio

from jqd.domain.joblog import TAGGED, Row
from jqd.domain.tenant import annotate

QUEUE_MAX = 1_000  # rows of one listener, some 300 KB: a second of a busy daemon
UNNAMED_MAX = 100  # of those, ones that have to be looked up: each is a call of the store


class Listener:
    """One, with its queue."""

    def __init__(
        self,
        *,
        knows: Callable[[str], bool] | None = None,
        tenant: str | None = None,
        jobtype: str | None = None,
        job_id: str | None = None,
        event: str | None = None,
        tag: str | None = None,
    ) -> None:
        """All that is given must be so of a row. Of one that names no jobtype nobody knows here whose and which it is:
        it is kept, and to be looked up where that matters, as one that tells no tags is. `knows`: which jobtypes exist
        for who listens; None: all.
        """
        self.knows = knows
        self.tenant = tenant
        """Whose it is; None: who listens sees all tenants."""
        self.jobtype = jobtype
        self.tag = tag
        self._job_id = job_id
        self._event = event
        self._rows: deque[Row] = deque()
        self._unnamed: deque[Row] = deque()
        self._dropped = 0
        self.bell = trio.Event()
        """Set when there is something to be taken."""

    def receive(self, rows: Sequence[Row]) -> None:
        """Keep those that are meant, as far as there is room."""
        for row in rows:
            if not self._means(row):
                continue
            if "jobtype" not in row and (self.knows is not None or self.jobtype is not None):
                # It may be anybody's: it takes no room from what is known to be meant, and who may not know of all
                # jobs is not told how many of these there were.
                if len(self._unnamed) < UNNAMED_MAX:
                    self._unnamed.append(row)
                    self.bell.set()
                elif self.knows is None:
                    self._dropped += 1
                    self.bell.set()
                continue
            if len(self._rows) >= QUEUE_MAX:
                self._dropped += 1
            else:
                self._rows.append(row)
            self.bell.set()

    def take(self) -> tuple[list[Row], int]:
        """What came since the last time, and how many rows were dropped behind it."""
        rows, dropped = [*self._rows, *self._unnamed], self._dropped
        self._rows.clear()
        self._unnamed.clear()
        self._dropped, self.bell = 0, trio.Event()
        return rows, dropped

    def _means(self, row: Row) -> bool:
        named = annotate(str(row.get("tenant", "")), str(row["jobtype"])) if "jobtype" in row else None
        if self.knows is not None and named is not None and not self.knows(named):
            return False
        return (
            (self._event is None or row["event"] == self._event)
            and (self.tag is None or row["event"] not in TAGGED or self.tag in _tags_of(row))
            and (self._job_id is None or row["job_id"] == self._job_id)
            and (self.jobtype is None or row.get("jobtype", self.jobtype) == self.jobtype)
        )


def _tags_of(row: Row) -> Sequence[object]:
    tags = row.get("tags")
    return tags if isinstance(tags, list) else ()
