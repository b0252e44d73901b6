"""Partitions by hand, and their one dispatcher."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from jqd.domain.job import Job
from jqd.domain.lease import LeaseConfig
from jqd.domain.pauses import Paused
from jqd.domain.settings import SettingTable
from jqd.loops.claims import Claims
from jqd.loops.dispatch import Dispatch
from jqd.loops.membership import Membership
from jqd.loops.membership_state import Known, Through
from jqd.loops.poison import PoisonGuard
from jqd.rate_limits.constraints import Constraints
from jqd.scheduler import Scheduler
from jqd.store import Renewed
from jqd.testing.store import FakeStore
from tests.loops.house import HandRunner, TrioClock, offer

ALONE_S = 60.0


class Side:
    """One partition: its store, and what was started of it."""

    def __init__(self, number: int, clock: TrioClock, scheduler: Scheduler, told: list[str]) -> None:
        self.store, self.runner, self.number = FakeStore(clock), HandRunner(), number
        self.settings = SettingTable()
        self.runner.paused = Paused(self.settings)
        self.membership = Membership("d1", LeaseConfig(lease_s=9_000), clock, sole=True)
        self.called: list[str] = []
        self.drained: str | None = None
        self.hangs: dict[str, float] = {}  # by method: so long its answer takes
        runner: Any = self.runner
        self.claims = Claims(
            store=self._slow(),
            scheduler=scheduler,
            runner=runner,
            membership=self.membership,
            clock=clock,
            source=random.Random(1),
            started=lambda worker, held: told.extend(one.job.id for one in held),
            constraints=Constraints(SettingTable()),
            outdated=lambda: None,
            rules_at=lambda: 0,
            refresh_settings=trio.lowlevel.checkpoint,
            barred=lambda: self.drained,
        )
        self._jobs = 0

    def _slow(self) -> Any:
        side, store = self, self.store

        class Slow:
            def __getattr__(self, name: str) -> Any:
                async def call(*args: Any, **named: Any) -> Any:
                    side.called.append(name)
                    answer = await getattr(store, name)(*args, **named)
                    await trio.sleep(side.hangs.get(name, 0))
                    return answer

                return call

        return Slow()

    async def join(self) -> None:
        await self.store.look(fresh=True)
        owner = await self.store.reserve_sysid("d1", True, through=True)
        self.membership.owner = owner
        self.membership.state = Through(Known("life", 0, settled=True, waits_for=()), owner)
        self.membership.renewed(0, Renewed({}, True, []))

    async def add(self, *jobs: Job) -> None:
        await self.store.apply_jobs("ab" * 16, self._jobs, self._jobs + len(jobs), jobs)
        self._jobs += len(jobs)
        self.runner.offers |= {job.jobtype: offer() for job in jobs}
        self.claims.note_new_jobs(jobs)


class Sides:
    """Three partitions, and their one dispatcher."""

    def __init__(self) -> None:
        self.clock, self.started = TrioClock(), list[str]()
        scheduler = Scheduler()
        self.sides = [Side(number, self.clock, scheduler, self.started) for number in range(3)]
        claims = [side.claims for side in self.sides]
        self.dispatch = Dispatch(claims, scheduler, self.clock, PoisonGuard(self.clock, ALONE_S))


@asynccontextmanager
async def running() -> AsyncIterator[Sides]:
    sides = Sides()
    for side in sides.sides:
        await side.join()
    async with trio.open_nursery() as nursery:
        await nursery.start(sides.dispatch.run)
        await trio.sleep(1)
        yield sides
        nursery.cancel_scope.cancel()
