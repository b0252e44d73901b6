"""Merges the jobs of several partitions into one list, newest first: how far each was read, and the list's cursor."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from jqd.store.cursor import sealed, unsealed
from jqd.store.types import JobView, Page

PIECE_JOBS = 50  # fetched of one partition at once; what does not fit into the page is fetched again
CURSOR_IDS = 200  # ids in a cursor, whatever the number of partitions: some 7 KiB of a URL

_cursors = msgspec.msgpack.Decoder(
    list[tuple[str, list[str], Annotated[int, msgspec.Meta(ge=1, le=PIECE_JOBS)]] | None]
)


class PartitionWalk:
    """How far one partition was read. It is read in pieces (pages of its own list), from its newest job backwards."""

    def __init__(self, start: str = "", given: Sequence[str] = (), size: int = 1, *, done: bool = False) -> None:
        self.start = start
        """The partition's own cursor at which the current piece begins."""
        self.given = list(given)
        """Ids in the piece that were already listed, on this page or an earlier one."""
        self.size = size
        """Number of jobs in the piece. If it is fetched again it must be as large, so that it has all of `given`."""
        self.rows: list[JobView] = []
        """Jobs of the piece that are not listed yet, the newest last."""
        self._behind: list[str] = []
        """Ids in `given` that the piece no longer has, as it was longer before."""
        self.done = done
        self._end = start
        self._weary = False

    @property
    def is_dry(self) -> bool:
        """Return whether the caller must fetch another piece of this partition's jobs to know its next newest job."""
        return not (self.rows or self.done or self._weary)

    def begin(self, size: int) -> int:
        """Begin to fetch a piece. Returns how many jobs to fetch: `size`, or as many as before if the piece is fetched
        again."""
        if not self.given:
            self.size = size
        return self.size

    def take(self, page: Page) -> None:
        """Add the jobs of a fetched piece that are not listed yet. If the piece was fetched before, and jobs have left
        it since, it has older jobs in their stead."""
        self.rows = [view for view in reversed(page.jobs) if view.id not in self.given]
        self._end = page.cursor
        # A short piece: the partition looked at many jobs, and the next page goes on from there.
        self._weary = page.cursor != "" and len(page.jobs) < self.size
        here = {view.id for view in page.jobs}
        self._behind = [job_id for job_id in self.given if job_id not in here] if self._weary else []
        self._step_when_empty()

    def pop_newest(self) -> JobView:
        """Remove the newest job that is not listed yet, and return it."""
        view = self.rows.pop()
        self.given.append(view.id)
        self._step_when_empty()
        return view

    def _step_when_empty(self) -> None:
        if not self.rows:
            self.start, self.given, self.done = self._end, self._behind, self._end == ""


def encode_cursor(walks: Sequence[PartitionWalk], key: str) -> str:
    """Return the cursor of a list over all partitions; "": each was read to its end. It is sealed with `key`, because
    the walks have ids of other tenants' jobs."""
    if all(walk.done for walk in walks):
        return ""
    rows = [None if walk.done else (walk.start, walk.given, walk.size if walk.given else 1) for walk in walks]
    return sealed(msgspec.msgpack.encode(rows), key)


def decode_cursor(cursor: str, partitions: int, key: str) -> list[PartitionWalk]:
    if not cursor:
        return [PartitionWalk() for _ in range(partitions)]
    rows = unsealed(cursor, key, _cursors)
    if len(rows) != partitions:
        raise ValueError(f"the cursor {cursor[:32]!r} is of {len(rows)} partitions, not of {partitions}")
    return [PartitionWalk(done=True) if row is None else PartitionWalk(*row) for row in rows]
