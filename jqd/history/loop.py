"""Writes what this daemon counted to the store, a minute at a time: each row of a minute once, that of ten minutes as
it grows.

    Tally ──each minute──▶ a row of the minute     waits here until the store has it, of late 53 at least
                       └─▶ added to a row of ten   whole each time, in place of what was sent before

A row that is sent twice counts once. Nothing waits for it, and what is lost is a number of a chart.
"""

import secrets
from collections import deque
from collections.abc import Callable, Sequence

import trio

from jqd.domain.errors import StoreAway, StoreChanged, StoreRefused
from jqd.domain.log import get_logger
from jqd.domain.tally import Counts, Row, Tally, counts_of
from jqd.history.counts import added, bounded, encode
from jqd.store import HistoryRow, Store

MINUTE_MS, TEN = 60_000, 10
SMALL_MS = 50  # behind the minute, for a clock that is a little early
AWAY_MAX = 60  # rows that wait for the store, at most 1 MB: 53 minutes and their tens; of longer the oldest are lost
ROWS = 20  # in one call, at most some 330 kB
LAST_S = 1.0  # at the end of the daemon


class HistoryLoop:
    def __init__(self, *, store: Store, daemon: str, tally: Tally, now_ms: Callable[[], int]) -> None:
        """`store`: the partition that has the history. `now_ms`: the time by the store's clock."""
        self.lost = 0
        """Minutes that the store was not there for."""
        self.complaint: str | None = None
        """What an operator must look at, for health."""
        self._store, self._daemon, self._now_ms = store, daemon, now_ms
        self._name = self._new_name()
        self._tally, self._counted = tally, dict[str, Counts]()
        tally.readers.append(self._add)
        self._minute = 0
        self._ten: dict[int, Row] = {}
        self._waiting: deque[HistoryRow] = deque()
        self._log = get_logger("history")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        self._minute = self._now_ms() // MINUTE_MS
        try:
            while True:
                await trio.sleep((MINUTE_MS - self._now_ms() % MINUTE_MS + SMALL_MS) / 1000)
                self.close_minute()
                await self._send_all()
        finally:
            with trio.move_on_after(LAST_S, shield=True):
                self.close_minute(last=True)
                await self._send_all()

    def close_minute(self, *, last: bool = False) -> None:
        """Make rows of what was counted, if the minute is over. A clock that was set back begins other rows."""
        now = self._now_ms() // MINUTE_MS
        if now < self._minute - 1:
            self._name, self._ten = self._new_name(), {}
        elif now <= self._minute and not last:
            return
        began, self._minute = self._minute, now
        self._tally.settle()
        row, self._counted = bounded(self._counted), {}
        if not row:
            return
        ten = began // TEN * TEN
        self._ten = {ten: bounded(added([self._ten[ten], row] if ten in self._ten else [row]))}
        self._waiting = deque(one for one in self._waiting if (one.minutes, one.began_ms) != (TEN, ten * MINUTE_MS))
        self._waiting += HistoryRow(1, began * MINUTE_MS, encode(row)), self._ten_row(ten)
        while len(self._waiting) > AWAY_MAX:
            self.lost += self._waiting.popleft().minutes == 1

    def _add(self, row: Row) -> None:
        for jobtype, counts in row.items():
            counts_of(self._counted, jobtype).add(counts)

    def _ten_row(self, ten: int) -> HistoryRow:
        return HistoryRow(TEN, ten * MINUTE_MS, encode(self._ten[ten]))

    async def _send_all(self) -> None:
        """Send what waits, in pieces; what cannot be sent waits for the next minute."""
        while self._waiting:
            some: Sequence[HistoryRow] = [*self._waiting][:ROWS]
            try:
                kept = await self._store.put_history(self._name, some)
            except StoreChanged as error:  # `recovery` finds out who answers there now
                self._log.debug("history.store_changed", error=str(error))
                return
            except (StoreAway, StoreRefused) as error:
                self._log.info("history.waits", rows=len(self._waiting), error=str(error))
                is_refused = isinstance(error, StoreRefused)
                self.complaint = f"what was counted cannot be kept: {error}" if is_refused else None
                return
            self.complaint = None
            if kept < len(some):
                self._log.warning("history.clock_ahead", rows=len(some) - kept)
            for _ in some:
                self._waiting.popleft()

    def _new_name(self) -> str:
        return f"{self._daemon}.{secrets.token_hex(4)}"
