"""The store's methods on notices to the administrator: which jobs failed, and which failures were reported."""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.store.queries import VIEWS, QueryMethods
from jqd.store.types import JobView


class Failed(NamedTuple):
    """A job that failed for good, and when (ms)."""

    at_ms: int
    job: JobView


class FailedPage(NamedTuple):
    now_ms: int
    """The present time by the store's clock."""
    jobs: Sequence[Failed]
    """Ordered by date; jobs that were deleted meanwhile are left out."""
    last: tuple[int, str] | None
    """Date and id of the last job, to be given to the next call; None: that was the last page."""


class NoticesState(NamedTuple):
    now_ms: int
    version: int
    state: bytes | None
    """The packed state of the notices; None: the caller has the latest."""


class NoticeMethods(QueryMethods):
    async def list_failed(self, from_ms: int, from_id: str = "") -> FailedPage:
        """Return a page of jobs that failed for good at `from_ms` or later, without their arguments. `from_id`: of the
        jobs that failed at `from_ms`, only those behind this id (`FailedPage.last`). Raises StoreChanged.
        """
        answer = await self._caller.call("list_failed", self._caller.identity, from_ms, from_id, VIEWS)
        now, flat = self._list("dead", answer)
        rows = [(self._text("dead", job_id), self._whole("dead", at)) for job_id, at in self._rows("dead", flat, 2)]
        views = await self._views([job_id for job_id, _ in rows], brief=1) if rows else []
        pairs = zip(rows, views, strict=True)
        jobs = [Failed(at_ms, view) for (_, at_ms), view in pairs if isinstance(view, JobView)]
        last = (rows[-1][1], rows[-1][0]) if len(rows) == VIEWS else None
        return FailedPage(self._whole("dead", now), jobs, last)

    async def swap_notices(self, version: int, later: bytes = b"") -> NoticesState:
        """Replace the state of the notices by `later` if it still has this version; otherwise return the present state.
        `later` empty: only read. Raises StoreChanged.
        """
        answer = await self._caller.call("swap_notices", self._caller.identity, version, later)
        now, its, state = self._list("notices", answer)
        packed = state if isinstance(state, bytes) else None
        return NoticesState(self._whole("notices", now), self._whole("notices", its), packed)
