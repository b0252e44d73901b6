"""Writes this daemon's counts to the store every minute: a row for the minute, and the row for the present ten minutes,
which grows.

    Tally ──each minute──▶ a row of the minute           waits here until the store has it; at least the last 53 do
                       └─▶ added to the row of ten       sent whole each time, replacing the one sent before

A row that is sent twice counts once. No job waits for this loop, and a lost row is only a gap in a chart.
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
SMALL_MS = 50  # wait so long after the minute, in case the sleep ends early
AWAY_MAX = 60  # rows that wait for the store, at most 1 MB: 53 minutes and their tens; then the oldest are lost
ROWS = 20  # rows in one call, at most some 330 kB
LAST_S = 1.0  # to send the last rows when the daemon ends


class HistoryLoop:
    """Sends this daemon's rows to the store, minute by minute."""

    def __init__(self, *, store: Store, daemon: str, tally: Tally, now_ms: Callable[[], int]) -> None:
        """`store`: the partition that has the history. `now_ms`: returns the time by the store's clock."""
        self.lost = 0
        """How many minutes were lost: their rows were dropped, as the store was away for too long."""
        self.complaint: str | None = None
        """Why the store refuses rows, for health; None: it takes them."""
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
        """If the minute is over, turn its counts into rows that wait until the store has them; `last`: even if the
        minute is not over. If the clock was set back, later rows get a new name."""
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
        """Send the waiting rows to the store, some in each call. Rows that cannot be sent wait for the next minute."""
        while self._waiting:
            some: Sequence[HistoryRow] = [*self._waiting][:ROWS]
            try:
                kept = await self._store.put_history(self._name, some)
            except StoreChanged as error:  # `recovery` deals with that
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
