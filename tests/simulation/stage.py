"""What a run is played with: daemons, disks and clocks, the store, the workers. Faults and onlookers act on it."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import trio

from jqd.testing.store import FakeStore
from tests.simulation.check import History
from tests.simulation.deaths import WitnessedServer
from tests.simulation.holder import Holders
from tests.simulation.link import Weather
from tests.simulation.loop import RunQueue, start_in
from tests.simulation.node import Life, Node, WorldClock
from tests.simulation.plan import PURGE, STORE, Plan
from tests.simulation.worker import Workers


class Stage:
    """Built from a plan. Processes are started, frozen and thawed here; `World` says when, and is told by them."""

    def __init__(self, plan: Plan, queue: RunQueue, outside: trio.Nursery) -> None:
        self.plan = plan
        self.history = History(plan)
        self.weathers = [Weather() for _ in range(plan.partitions)]
        self.clock = WorldClock()
        """Of the store's host."""
        config = replace(STORE, ended_keep_jobs=0) if PURGE in plan.kinds else STORE
        servers = [WitnessedServer(config.crash_limit, self.history.wrong) for _ in range(plan.partitions)]
        parts = replace(config, partitions=plan.partitions).parts()
        self.stores = [FakeStore(self.clock, part, server) for part, server in zip(parts, servers, strict=True)]
        """By the numbers of their partitions."""
        self.nodes = [Node(index, plan.seed, self) for index in range(plan.nodes)]
        self.workers = Workers(dict(enumerate(plan.works)), random.Random(f"workers {plan.seed}"), self.spawn)
        self._queue = queue
        self._outside = outside
        source = random.Random(f"holders {plan.seed}")
        self.workers.took = self.history.kin.took
        workers = self.workers.attempt, self.workers.said, self.workers.took
        self.holders = Holders(self.nodes, self.history, source, self.spawn, *workers)

    def spawn(self, call: Callable[..., Any], *args: Any) -> None:
        """Start a task of the world itself, whoever asks for it."""
        start_in("", self._outside, call, *args)

    def start(self, node: Node) -> None:
        """Begin its next life."""
        self.spawn(node.live, node.begin())

    def freeze(self, life: Life) -> None:
        """It stands still."""
        self._queue.frozen.add(life.label)

    def thaw(self, life: Life) -> None:
        """It goes on."""
        self._queue.frozen.discard(life.label)

    def is_frozen(self, life: Life) -> bool:
        """Whether it stands still."""
        return life.label in self._queue.frozen
