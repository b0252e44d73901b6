"""A store, its clock, and daemons that tell of what failed there."""

import random
from collections.abc import Callable
from typing import Any

import trio

from jqd.domain.errors import StoreAway
from jqd.domain.job import Fate as How
from jqd.notify.board import Notice
from jqd.notify.config import NotifyConfig
from jqd.notify.loop import NoticeLoop
from jqd.notify.rule import Fate, Result
from jqd.store import StoreConfig
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench, outcome
from tests.loops.house import TrioClock

STORE = StoreConfig(url="redis://fake")
CONFIG: dict[str, Any] = {"hook_url": "http://127.0.0.1/"}
SENT = Result(Fate.SENT)


class Told:
    """Whoever is told: `result` is what becomes of it, after `within_s`."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.result = SENT
        self.within_s = 0.0

    async def send(self, notice: Notice) -> Result:
        self.notices.append(notice)
        await trio.sleep(self.within_s)
        return self.result

    @property
    def new(self) -> list[dict[str, int]]:
        """Of each notice: new failures by line."""
        return [{row.line: row.new for row in notice.rows} for notice in self.notices]


class Site:
    """A store, its clock, and daemons that tell."""

    def __init__(self, nursery: trio.Nursery, partitions: int = 1) -> None:
        self.clock = TrioClock(wall_ms=1_800_000_000_000 - round(trio.current_time() * 1000))
        self.stores = [FakeStore(self.clock, STORE) for _ in range(partitions)]
        self.benches = [StoreBench(store, self.clock) for store in self.stores]
        self.told = Told()
        self._nursery = nursery

    async def look(self) -> None:
        for store in self.stores:
            await store.look(fresh=True)

    async def daemon(self, sysid: str = "one", told: Told | None = None, **settings: Any) -> "Running":
        config = NotifyConfig(**CONFIG | settings)
        stores = [store.another_client() for store in self.stores]
        for store in stores:
            await store.look(fresh=False)
        notices = NoticeLoop(
            config,
            stores=stores,
            senders={"hook": told or self.told},
            sysid=sysid,
            clock=self.clock,
            source=random.Random(sysid),
        )
        running = Running(notices, stores)
        await self._nursery.start(running.run)
        return running

    async def fail(self, *lines: str, partition: int = 0, jobtype: str = "mail") -> None:
        bench = self.benches[partition]
        await bench.add(*(bench.make(jobtype) for _ in lines))
        held = list(await bench.claim(await bench.join(), jobtype, limit=len(lines)))
        await bench.settle(*(outcome(one, How.DEAD, message=line) for one, line in zip(held, lines, strict=True)))


class Running:
    """A daemon's loop, until it is killed."""

    def __init__(self, notices: NoticeLoop, stores: list[FakeStore]) -> None:
        self.notices, self.stores = notices, stores
        self.scope = trio.CancelScope()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with self.scope:
            await self.notices.run(task_status=task_status)


def lose_one(daemon: Running, nth: int, *, is_applied: bool) -> None:
    """The nth later exchange of the state is lost, or only its answer."""
    client = daemon.stores[0].client
    call: Callable[..., Any] = client.call
    left = nth

    async def lossy(name: str, *arguments: Any) -> object:
        nonlocal left
        left -= name == "swap_notices" and bool(arguments[-1])
        is_lost = left == -1
        left -= is_lost
        answer = await call(name, *arguments) if is_applied or not is_lost else None
        if is_lost:
            raise StoreAway("it is lost")
        return answer

    client.call = lossy  # type: ignore[method-assign]


def hang(daemon: Running) -> None:
    """The second partition takes long to say that it is away."""
    client = daemon.stores[1].client

    async def hangs(name: str, *arguments: Any) -> object:
        await trio.sleep(40)
        raise StoreAway("it hangs")

    client.call = hangs  # type: ignore[method-assign]
