"""Deletes what the store has kept long enough: ended jobs, results, and notes about ids whose job never arrived."""

import random

import trio

from jqd.domain.beat import rest
from jqd.domain.log import get_logger
from jqd.loops.backoff import LoopBackoff
from jqd.store import Store

PURGE_EVERY_S = 5.0  # keep times are hours; this bounds how far the archive may overshoot its number of jobs
AGAIN_S = 0.25  # after a call that deleted nothing but moved rows that stay behind others: the next may delete some
PURGE_ROWS = 500  # in one call, which must stay below about 5 ms


class Purge:
    """Purges one partition of the store. Several daemons may purge at once: the store's function is idempotent."""

    def __init__(self, *, store: Store, source: random.Random) -> None:
        self.backoff = LoopBackoff("purge", source=source)
        self._store = store
        self._has_moved = False
        """Whether the last call moved rows, which must stay, behind others: the next may delete the others."""
        self._log = get_logger("purge")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            await rest(AGAIN_S if self._has_moved else PURGE_EVERY_S)
            await self.backoff.attempt(self._purge)

    async def _purge(self) -> None:
        self._has_moved, purged, rows = False, await self._store.purge(PURGE_ROWS), 0
        while purged.rows:
            rows += purged.rows
            purged = await self._store.purge(PURGE_ROWS)
        self._has_moved = purged.moved > 0
        if rows:
            self._log.info("purge.batch", rows=rows)
