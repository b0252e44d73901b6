"""Frees slots of workers that answered 202 and hold their jobs, when another daemon received the jobs' outcomes."""

import random
from collections.abc import Callable

import trio

from jqd.domain.beat import rest
from jqd.loops.backoff import LoopBackoff
from jqd.runner import Capacity
from jqd.store import CALL_JOBS_MAX, Hold, Store

LOOK_S = 0.25  # how late a slot is freed; an outcome received here frees it at once
NONE_S = 0.5  # between looks while no worker holds jobs by itself


class WorkerSlots:
    """Frees slots whose jobs, of one partition, ended at another daemon. Asks the store which leases still stand."""

    def __init__(self, *, store: Store, capacity: Capacity, mine: Callable[[str], bool], source: random.Random) -> None:
        """`mine`: returns whether a job id belongs to this partition."""
        self.backoff = LoopBackoff("worker_slots", source=source)
        self._store, self._capacity, self._mine = store, capacity, mine

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            await rest(LOOK_S if self._capacity.entrusted() else NONE_S)
            await self.backoff.attempt(self._free_ended)

    async def _free_ended(self) -> None:
        claims = [claim for claim in self._capacity.entrusted() if self._mine(claim[0])]
        for at in range(0, len(claims), CALL_JOBS_MAX):
            piece = claims[at : at + CALL_JOBS_MAX]
            seen = await self._store.touch(piece, renew=False)
            self._capacity.ended(claim for claim, each in zip(piece, seen, strict=True) if each.hold is not Hold.STANDS)
