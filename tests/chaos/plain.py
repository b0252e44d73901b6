"""The workload of plain jobs: traffic, and what is said to daemons of schedules, constraints and pauses."""

import itertools
import random
import time

import httpx2
import trio

from jqd.domain.errors import StoreError
from jqd.store import EdgeStore, JobView
from tests.chaos.cluster import Cluster, History
from tests.chaos.traffic import OWN, Traffic
from tests.chaos.words import Words
from tests.chaos.workload import LOOKERS, Settings

FINAL_READS = 150  # over HTTP, beside the look at all of them in the store


class Plain:
    """See Workload."""

    def __init__(self, settings: Settings, cluster: Cluster, history: History, http: httpx2.AsyncClient) -> None:
        self._seconds, self._cluster, self._history = settings.seconds, cluster, history
        self._traffic = Traffic(settings, cluster, history, http)
        self._words = Words(cluster, history, http, random.Random(settings.seed + 3))

    async def prepare(self) -> None:
        """Constraints and schedules."""
        await self._words.plan(self._seconds, time.time() * 1000)

    async def run(self, seconds: float) -> None:
        """See Workload."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._traffic.run, seconds)
            nursery.start_soon(self._words.pause_now_and_then, trio.current_time() + seconds)

    async def last_words(self) -> list[str]:
        """See Workload."""
        return await self._traffic.last_words()

    async def is_over(self, store: EdgeStore) -> bool:
        """Whether no date is left."""
        return await self._words.are_fired()

    async def once_more(self) -> bool:
        """There is nothing."""
        return False

    async def last_look(self, store: EdgeStore) -> None:
        """Every acknowledged job as the store has it, a few also as daemons tell it."""
        acked = self._traffic.acked
        ids = iter(acked)

        async def look() -> None:
            for job_id in ids:
                try:
                    own = job_id.startswith(OWN)
                    view = await store.get_job((await store.resolve(job_id) or job_id) if own else job_id)
                except StoreError as error:
                    self._history.add("final", job=job_id, state=f"unreadable: {error}")
                else:
                    state = view.state.value if isinstance(view, JobView) else repr(view)
                    self._history.add("final", job=job_id, state=state)

        async with trio.open_nursery() as nursery:
            for _ in range(LOOKERS):
                nursery.start_soon(look)
            nursery.start_soon(self._words.last_look, store)
        step = max(1, len(acked) // FINAL_READS)
        for job_id, url in zip(acked[::step], itertools.cycle(self._cluster.urls), strict=False):
            await self._traffic.read(url, job_id)
