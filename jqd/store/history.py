"""The store's methods on daemons' counts over time, minute by minute. Only `jqd/history` knows what a row holds.

history:<minutes>     `<began ms> <daemon>` → row: one daemon's whole count, so that a repeat changes nothing
historic:<minutes>    the same fields, by when they began
"""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.store.methods import ScriptMethods

MINUTE_MS = 60_000
KEPT_MS = {1: 8 * 3_600_000, 10: 8 * 86_400_000}
"""Length of a row in minutes → how long (ms) the row is kept."""
# Rows of each length, of all daemons: 8 days of some 25 daemons, 8 hours of some 60. If there are more daemons, or they
# restart each minute, the oldest rows go sooner.
ROWS_MAX = 30_000
ROW_BYTES_MAX = 16_384  # 200 jobtypes that count everything; ten usual ones take some 600
PAGE_ROWS, PAGE_BYTES = 500, 1 << 20  # read in one call: a millisecond or two


class HistoryRow(NamedTuple):
    """What one daemon counted in a number of minutes."""

    minutes: int
    """Length of the row in minutes: a key of KEPT_MS."""
    began_ms: int
    row: bytes


class HistoryPage(NamedTuple):
    now_ms: int
    """The present time by the store's clock."""
    oldest_ms: int | None
    """When the oldest row in the store began; None: there is none."""
    rows: Sequence[tuple[int, bytes]]
    """(when the row began, row), the oldest first."""
    last: tuple[int, str] | None
    """Date and field of the last row, to be given to the next call; None: that was the last page."""


class HistoryMethods(ScriptMethods):
    async def put_history(self, daemon: str, rows: Sequence[HistoryRow]) -> int:
        """Store rows (the counts of one daemon in some minutes); each replaces the row for the same time. Returns how
        many were kept.

        Rows that begin in the future are not kept. `daemon`: a new name after each start, as counts begin anew. Raises
        StoreChanged; StoreAway also if the server is full.
        """
        flat = [part for one in rows for part in (one.minutes, one.began_ms, KEPT_MS[one.minutes], ROWS_MAX, one.row)]
        return self._whole("history", await self._caller.call("put_history", self._caller.identity, daemon, *flat))

    async def get_history(self, minutes: int, from_ms: int, from_field: str = "") -> HistoryPage:
        """Return a page of all daemons' rows (counts) that span `minutes` each and began at `from_ms` or later.
        `from_field`: of the rows that began at `from_ms`, only those behind this field (`HistoryPage.last`). Raises
        StoreChanged."""
        answer = await self._caller.call(
            "get_history", self._caller.identity, minutes, from_ms, from_field, PAGE_ROWS, PAGE_BYTES
        )
        now, oldest, more, flat = self._list("history", answer)
        found = [
            (self._text("history", field), self._whole("history", at), bytes(row) if isinstance(row, bytes) else b"")
            for field, at, row in self._rows("history", flat, 3)
        ]
        return HistoryPage(
            self._whole("history", now),
            None if oldest is None else self._whole("history", oldest),
            [(at_ms, row) for _, at_ms, row in found],
            (found[-1][1], found[-1][0]) if found and self._whole("history", more) else None,
        )
