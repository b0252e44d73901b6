"""Deletes from the store what is past its keep time: archived jobs, kept results, notes of jobs that never came."""

import random

import trio

from jqd.domain.beat import rest
from jqd.domain.log import get_logger
from jqd.loops.backoff import LoopBackoff
from jqd.store import Store

PURGE_EVERY_S = 5.0  # keep times are hours; this bounds how far the archive may overshoot its number of jobs
PURGE_ROWS = 500  # a function must stay below about 5 ms


class Purge:
    """Purges one partition. Several daemons may purge at once: the function is idempotent."""

    def __init__(self, *, store: Store, source: random.Random) -> None:
        self.backoff = LoopBackoff("purge", source=source)
        self._store = store
        self._log = get_logger("purge")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            await rest(PURGE_EVERY_S)
            await self.backoff.attempt(self._purge)

    async def _purge(self) -> None:
        rows = 0
        while purged := await self._store.purge(PURGE_ROWS):
            rows += purged
        if rows:
            self._log.info("purge.batch", rows=rows)
