"""A daemon's settings over stores, asked and tidied by hand."""

import random
from types import SimpleNamespace
from typing import Any

from jqd.domain.settings import Setting, SettingTable
from jqd.loops.settings import SILENT_S, SettingsSync, SettingsUpkeep
from jqd.runner import WorkerRegistry, WorkerSpec
from jqd.runner.registry import body_of
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore


class Member:
    life, is_alone = "a.b", False


class House:
    """A daemon's rules over stores, asked and tidied by hand."""

    def __init__(self, clock: ManualClock, stores: list[FakeStore]) -> None:
        nothing: Any = None
        views: Any = SimpleNamespace(look=lambda: Setting("view", "d", 0, 0), stale=list)
        member: Any = Member()
        self.workers = workers = WorkerRegistry(SettingTable(), clock=clock)
        shared: dict[str, Any] = {"workers": workers, "views": views, "clock": clock, "source": random.Random(1)}

        async def save(make: Any) -> None:
            make()

        self.follows = [
            SettingsSync(store=store, membership=member, own_applied=lambda: True, **shared) for store in stores
        ]
        self.upkeep = SettingsUpkeep(journal=nothing, follows=self.follows, save=save, unneeded=dict, **shared)

    async def ask(self) -> None:
        for follow in self.follows:
            await follow._ask()


async def silent_for_long(clock: ManualClock, stores: list[FakeStore], houses: list[House]) -> None:
    """A registration, whose worker nobody hears of for so long that it is of no use any more."""
    card = WorkerSpec(name="w", id="w", max_jobs=1, ttl_s=10.0)
    body = body_of(houses[0].workers.check(card))
    said = houses[0].workers.settings.make({("worker", "w"): body}, now_ms=clock.wall_ms(), origin=1)
    for store in stores:
        await store.look(fresh=True)
        await store.apply_settings("ab" * 16, 0, 5, said)
    for _ in range(round(SILENT_S / 2) + 20):
        for house in houses:
            await house.ask()
        clock.advance(2.0)
    assert [house.workers.get("w") for house in houses] == [None] * len(houses)
