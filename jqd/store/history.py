"""The store's methods on what daemons counted, minute by minute. What a row holds is known to `jqd/history` alone.

history:<minutes>     `<began ms> <daemon>` → row: each daemon's own, whole, so that a repeat counts once
historic:<minutes>    the same fields, by when they began
"""

from collections.abc import Sequence
from typing import NamedTuple

from jqd.store.methods import ScriptMethods

MINUTE_MS = 60_000
KEPT_MS = {1: 8 * 3_600_000, 10: 8 * 86_400_000}
"""Minutes of a row → how long it is kept."""
# Rows of all daemons, of each length: the 8 days of some 25 daemons, the 8 hours of some 60. Where there are more, or
# daemons that start again each minute, the oldest go sooner.
ROWS_MAX = 30_000
ROW_BYTES_MAX = 16_384  # 200 jobtypes that do all there is; a usual one of ten has some 600
PAGE_ROWS, PAGE_BYTES = 500, 1 << 20  # of one call: a millisecond or two


class HistoryRow(NamedTuple):
    """What one daemon counted."""

    minutes: int
    """How many minutes the row covers: a key of KEPT_MS."""
    began_ms: int
    row: bytes


class HistoryPage(NamedTuple):
    now_ms: int
    """The present time by the store's clock."""
    oldest_ms: int | None
    """When the oldest row there is began; None: there is none, as in a store that was emptied."""
    rows: Sequence[tuple[int, bytes]]
    """When each began, and what it holds; the oldest first."""
    last: tuple[int, str] | None
    """The last row of this page, where the next one begins; None: there are no more."""


class HistoryMethods(ScriptMethods):
    async def put_history(self, daemon: str, rows: Sequence[HistoryRow]) -> int:
        """Keep rows, each in place of one that this daemon sent for the same time. Returns how many were kept: of a
        time to come none is. `daemon`: another one after each start, for its counts begin anew.

        Raises StoreChanged; StoreAway also from a full server.
        """
        flat = [part for one in rows for part in (one.minutes, one.began_ms, KEPT_MS[one.minutes], ROWS_MAX, one.row)]
        return self._whole("history", await self._caller.call("put_history", self._caller.identity, daemon, *flat))

    async def get_history(self, minutes: int, from_ms: int, from_field: str = "") -> HistoryPage:
        """Return rows of so many minutes that began at that date or later, or after that field. Raises StoreChanged."""
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
