"""The edge over the shipped fake store: what is journaled is applied to it, so changes can be followed to their end."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import msgspec
import trio

from jqd.api import ApiConfig
from jqd.chaining.links import Links
from jqd.domain.errors import StoreAway
from jqd.domain.job import Fate, Held, lease_claim
from jqd.domain.jobid import parse_id
from jqd.domain.record import Lane, decode_cancels, decode_jobs, decode_outcomes, decode_rules
from jqd.store import Owner
from jqd.store.links import WatchPair
from jqd.testing.store import FakeStore
from tests.api.edge import Edge
from tests.api.fakes import JOURNAL_ID, outcome

OTHER_ID = "ff" * 16  # of the daemon that runs jobs here


class Whole(Edge):
    """An Edge whose control applies the journal before it says so."""

    def __init__(self, config: ApiConfig | None = None) -> None:
        super().__init__(config or ApiConfig())
        self.whole = FakeStore(self.clock)
        store: Any = self.whole
        self.store = store
        parts = self.api._parts
        self.api._parts = replace(parts, services=replace(parts.services, store=store))
        self.owner: Owner | None = None
        self._positions = dict.fromkeys(Lane, 0)
        self._taken = 0
        self._applying = trio.Lock()
        self._outcomes = 0
        control: Any = self.control
        control.wait_caught_up = self._wait_caught_up
        self.apply_fails = False
        self.cancels_first = False
        """Whether the lanes of jobs and changes stand still."""
        self._behind: list[tuple[Lane, int, bytes]] = []

    async def begin(self) -> "Whole":
        """Take the seat of a daemon that runs jobs."""
        await self.whole.look(fresh=True)
        await self.whole.applied(JOURNAL_ID)
        self.owner = await self.whole.reserve_sysid("d1", True, through=True)
        return self

    async def push(self, **fields: Any) -> str:
        """Push a job through the edge, and apply it."""
        told = await self.call("POST", "/v1/jobs", {"name": "mail", **fields})
        assert told.status == 201, told.body
        await self.apply()
        return str(told.body["job_id"])

    async def apply(self) -> None:
        """Bring all that is journaled into the store."""
        async with self._applying:
            await self._apply()

    async def _apply(self) -> None:
        waiting = self._behind + self.journal.frames[self._taken :]
        self._taken = len(self.journal.frames)
        self._behind = []
        self.journal.synced = self.journal.written  # what is not on disk is not read
        for lane, count, body in waiting:
            if lane is not Lane.CANCELS and self.cancels_first:
                self._behind.append((lane, count, body))
                continue
            start = self._positions[lane]
            end = self._positions[lane] = start + 1
            if lane in (Lane.JOBS, Lane.CHANGES):
                jobs = decode_jobs(body)
                await Links(0, self.whole, 1).write_groups(jobs)
                apply = self.whole.apply_jobs if lane is Lane.JOBS else self.whole.apply_changes
                await apply(JOURNAL_ID, start, end, jobs)
            elif lane is Lane.RULES:
                await self.whole.apply_settings(JOURNAL_ID, start, end, decode_rules(body))
            elif lane is Lane.OUTCOMES:
                await self.whole.apply_outcomes(JOURNAL_ID, start, end, decode_outcomes(body))
            else:
                await self.whole.apply_cancels(JOURNAL_ID, start, end, decode_cancels(body))
        for lane in Lane:
            if lane not in (Lane.JOBS, Lane.CHANGES) or not self._behind:
                self.journal.read_points[lane] = self.journal.end

    async def link(self) -> None:
        """Tell parents of their children, as the loop `flows` does."""
        await self.apply()
        while blocked := (await self.whole.take_links(100, 5.0)).blocked:
            for each in blocked:
                flow, tenant = each.job.flow, each.job.tenant
                for parent in flow.after if flow is not None else ():
                    key = parent if parse_id(parent) is not None else f"={parent}"
                    await self.whole.watch_parents([WatchPair(each.job.id, tenant, key, "")])
            await self.whole.drop_links({each.entry: () for each in blocked})

    async def claim(self, name: str = "mail", limit: int = 100) -> list[Held]:
        """Claim what is ready."""
        assert self.owner is not None, "begin first"
        return await self.whole.get_waiting_jobs(
            self.owner, name, limit, priority_min=-100, priority_max=100, bytes_max=1 << 30
        )

    async def end(self, held: Held, fate: Fate, **fields: Any) -> None:
        """An attempt ends."""
        told = outcome(
            held.job.id, fence=held.fence, fate=fate, attempt=held.attempt, finished_at_ms=self.clock.wall_ms()
        )
        told = msgspec.structs.replace(told, **{"jobtype": held.job.jobtype, "generation": held.generation, **fields})
        put = await self.whole.put_results(OTHER_ID, self._outcomes, [told])
        await self.whole.apply_outcomes(OTHER_ID, self._outcomes, self._outcomes + 1, put)
        self._outcomes += 1

    async def hand(self, held: Held, worker: str = "puller", silence_s: int = 31) -> None:
        """A job goes from the daemon's hand into a worker's own."""
        told = lease_claim(held, worker=worker, silence_s=silence_s, started_at_ms=self.clock.wall_ms())
        await self.whole.apply_outcomes(OTHER_ID, self._outcomes, self._outcomes + 1, [told])
        self._outcomes += 1

    async def ended(self, fate: Fate, **pushed: Any) -> str:
        """A job that has ended so."""
        job_id = await self.push(**pushed)
        (held,) = await self.claim(limit=1)
        await self.end(held, fate)
        return job_id

    async def _wait_caught_up(self, lane: Lane, position: int, timeout_s: float, where: Collection[int]) -> bool:
        await trio.lowlevel.checkpoint()
        if self.apply_fails:
            return False
        try:
            await self.apply()
        except StoreAway:
            return False
        return True
