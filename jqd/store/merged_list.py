"""The jobs of several partitions as one list, newest first: how far each was read, and the cursor that holds this."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from jqd.store.cursor import sealed, unsealed
from jqd.store.types import JobView, Page

PIECE_JOBS = 50  # fetched of one partition at a time for a list; what a page leaves out is fetched again
CURSOR_IDS = 200  # at most in a cursor, whatever the number of partitions: some 7 KiB of a URL

_cursors = msgspec.msgpack.Decoder(
    list[tuple[str, list[str], Annotated[int, msgspec.Meta(ge=1, le=PIECE_JOBS)]] | None]
)


class PartitionWalk:
    """A partition that is walked from its newest job back, a piece at a time."""

    def __init__(self, start: str = "", given: Sequence[str] = (), size: int = 1, *, done: bool = False) -> None:
        self.start = start
        """The partition's own cursor of the present piece."""
        self.given = list(given)
        """Ids of that piece that were in this page or an earlier one."""
        self.size = size
        """Jobs of that piece: fetched again it must be as large, or `given` is not in it."""
        self.rows: list[JobView] = []
        """Jobs of the piece that are not listed yet, the newest last."""
        self._behind: list[str] = []
        """Ids in `given` that are not in the piece any more: it was longer before."""
        self.done = done
        self._end = start
        self._weary = False

    @property
    def is_dry(self) -> bool:
        """Return whether more must be fetched to know its newest."""
        return not (self.rows or self.done or self._weary)

    def begin(self, size: int) -> int:
        """The size of the next piece: `size`, unless the present one is fetched again."""
        if not self.given:
            self.size = size
        return self.size

    def take(self, page: Page) -> None:
        """Take a fetched piece. Jobs that moved away since it was begun make room for those behind."""
        self.rows = [view for view in reversed(page.jobs) if view.id not in self.given]
        self._end = page.cursor
        # A short piece means that many were looked at: more are left to the next page.
        self._weary = page.cursor != "" and len(page.jobs) < self.size
        here = {view.id for view in page.jobs}
        self._behind = [job_id for job_id in self.given if job_id not in here] if self._weary else []
        self._step_when_empty()

    def pop_newest(self) -> JobView:
        """Pop the newest of the rest."""
        view = self.rows.pop()
        self.given.append(view.id)
        self._step_when_empty()
        return view

    def _step_when_empty(self) -> None:
        if not self.rows:
            self.start, self.given, self.done = self._end, self._behind, self._end == ""


def encode_cursor(walks: Sequence[PartitionWalk], key: str) -> str:
    """Return the cursor of all, sealed as those of the partitions are: ids in `given` may be of anybody's jobs."""
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
