"""Deletes what is past its keep time: archived jobs, kept results, tombstones in the store; segments of the journal."""

import random
from collections.abc import Callable

import trio

from jqd.errors import StoreAway, StoreRefused
from jqd.journal import Journal
from jqd.log import get_logger
from jqd.loops.pace import Pace
from jqd.store import Store

PURGE_EVERY_S = 5.0  # keep times are hours; this bounds how far the archive may overshoot its number of jobs
PURGE_ROWS = 500  # a script must stay below about 5 ms


class Purge:
    """Several daemons purging at once is harmless: the script is idempotent."""

    def __init__(
        self, *, journal: Journal, store: Store, applied: Callable[[], int | None], source: random.Random
    ) -> None:
        """`applied`: the position up to which every lane is in the store, None while unknown."""
        self.pace = Pace("purge", source=source)
        self._journal = journal
        self._store = store
        self._applied = applied
        self._log = get_logger("purge")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Purge until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(PURGE_EVERY_S)
            try:
                rows = 0
                while purged := await self._store.purge(PURGE_ROWS):
                    rows += purged
            except (StoreAway, StoreRefused) as error:
                await self.pace.wait_after(error)
                continue
            self.pace.went_well()
            position = self._applied()
            freed = 0 if position is None else self._journal.trim(position)
            if rows or freed:
                self._log.info("purge.batch", rows=rows, journal_bytes=freed)
