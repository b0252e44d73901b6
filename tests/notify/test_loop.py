"""One daemon tells what failed, whatever dies, is away or is set back in between."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

from jqd.domain.errors import StoreAway
from jqd.domain.job import Fate as How
from jqd.notify import loop
from jqd.notify.board import Notice
from jqd.notify.config import NotifyConfig
from jqd.notify.loop import HOLD_S, NoticeLoop
from jqd.notify.rule import Fate, Result
from jqd.store import StoreConfig
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench, outcome
from tests.loops.conftest import threads_in_place
from tests.loops.house import TrioClock

__all__ = ["threads_in_place"]

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


async def test_two_daemons_send_one_notice(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    for sysid in ("one", "two"):
        await site.daemon(sysid)
    await site.fail("no", "no", "other")
    await trio.sleep(600)
    assert site.told.new == [{"no": 2, "other": 1}]


async def test_old_failures_are_told_when_notices_are_switched_on(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    await site.fail(*["no"] * 250)
    await trio.sleep(86_400)
    await site.daemon()
    await trio.sleep(600)
    assert site.told.new == [{"no": 250}]
    assert site.told.notices[0].rows[0].is_over


async def test_many_of_one_moment_are_counted_exactly(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    await site.daemon(resolved_s=600)
    for _ in range(2):
        await site.fail(*["no"] * 1_100)
    await trio.sleep(60)
    await site.fail(*["no"] * 10)
    await trio.sleep(1_000)
    assert sum(each["no"] for each in site.told.new) == 2_210


@pytest.mark.parametrize("is_other", [True, False], ids=["another goes on", "it comes back"])
async def test_a_daemon_that_dies_while_it_sends(autojump_clock: None, nursery: trio.Nursery, is_other: bool) -> None:
    site = Site(nursery)
    await site.look()
    site.told.within_s = 20
    one = await site.daemon("one")
    await trio.sleep(1)
    if is_other:
        await site.daemon("two")
    await site.fail("no")
    await trio.sleep(45)
    assert len(site.told.notices) == 1
    one.scope.cancel()
    if not is_other:
        await site.daemon("one")
    await trio.sleep(HOLD_S + 10 if is_other else 5)
    first, second = site.told.notices
    assert (first.id, first.rows) == (second.id, second.rows), "it may have arrived, and is the same"
    await trio.sleep(3_000)
    assert len(site.told.notices) == 2


async def test_the_holder_goes_on_while_it_sends_for_long(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    site.told.within_s = 29
    for sysid in ("one", "two", "three"):
        await site.daemon(sysid)
    for n in range(5):
        await site.fail(f"error {n}")
        await trio.sleep(70)
    await trio.sleep(200)
    assert site.told.new == [{f"error {n}": 1} for n in range(5)]


async def test_a_daemon_that_was_suspended_while_it_sent_changes_nothing(
    autojump_clock: None, nursery: trio.Nursery
) -> None:
    site = Site(nursery)
    await site.look()
    slow, quick = Told(), Told()
    slow.within_s = 500
    await site.daemon("one", slow)
    await trio.sleep(1)
    await site.daemon("two", quick)
    await site.fail("no")
    await trio.sleep(1_000)
    await site.fail("more")
    await trio.sleep(100)
    assert (slow.new, quick.new) == ([{"no": 1}], [{"no": 1}, {"more": 1}])


async def test_one_that_is_late_with_the_exchange_sends_nothing(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    late, other = Told(), Told()
    one = await site.daemon("one", late)
    await trio.sleep(1)
    await site.daemon("two", other)
    await trio.sleep(9)
    client = one.stores[0].client
    call: Callable[..., Any] = client.call

    async def stalls(name: str, *arguments: Any) -> object:
        if name == "swap_notices" and b"is_out" in arguments[-1]:
            await trio.sleep(200)
        return await call(name, *arguments)

    client.call = stalls  # type: ignore[method-assign]
    await site.fail("no")
    await trio.sleep(1_000)
    assert (late.new, other.new) == ([], [{"no": 1}])


@pytest.mark.parametrize("nth", range(4))
@pytest.mark.parametrize("is_applied", [True, False], ids=["applied", "not applied"])
async def test_calls_that_are_lost_lose_nothing(
    autojump_clock: None, nursery: trio.Nursery, nth: int, is_applied: bool
) -> None:
    site = Site(nursery)
    await site.look()
    daemon = await site.daemon()
    await trio.sleep(10)
    lose_one(daemon, nth, is_applied=is_applied)
    await site.fail("no")
    await trio.sleep(1)
    await site.fail(*["no"] * 1_200, "other")
    await trio.sleep(400)
    told = {line: sum(each.get(line, 0) for each in site.told.new) for line in ("no", "other")}
    assert told == {"no": 1_201, "other": 1}
    assert len({notice.id for notice in site.told.notices}) == 1


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


async def test_a_partition_that_is_away_holds_up_no_other(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery, partitions=2)
    await site.look()
    daemon = await site.daemon(resolved_s=600)
    await site.fail("here")
    await site.fail("there", partition=1)
    daemon.stores[1].away = "cable pulled"
    await trio.sleep(3_000)
    assert site.told.new == [{"here": 1}], "and nothing is over: it may go on there"
    daemon.stores[1].away = None
    await trio.sleep(100)
    assert site.told.new[1:] == [{"here": 0, "there": 1}]


async def test_a_clock_that_is_set_back_loses_nothing(autojump_clock: None, nursery: trio.Nursery) -> None:
    for back_s in (1, 4, 9, 60, 3_600, 86_400):
        site = Site(nursery)
        await site.look()
        await site.daemon()
        await site.fail("old")
        await trio.sleep(100)
        site.clock.set_wall_ms(site.clock.wall_ms() - round(trio.current_time() * 1000) - back_s * 1000)
        await site.fail("new")
        await trio.sleep(100)
        assert site.told.new == [{"old": 1}, {"new": 1}], f"{back_s} s"


async def test_a_clock_that_is_set_back_while_a_notice_is_sent(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    await site.daemon()
    site.told.within_s = 25
    await site.fail("old")
    await trio.sleep(36)
    assert site.told.new == [{"old": 1}]
    site.clock.set_wall_ms(site.clock.wall_ms() - round(trio.current_time() * 1000) - 20_000)
    await site.fail("new")
    await trio.sleep(100)
    assert site.told.new == [{"old": 1}, {"new": 1}]


async def test_a_clock_that_was_set_back_while_nobody_looked(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    one = await site.daemon()
    await site.fail("old")
    await trio.sleep(100)
    one.scope.cancel()
    site.clock.set_wall_ms(site.clock.wall_ms() - round(trio.current_time() * 1000) - 3_600_000)
    await site.fail("new")
    await trio.sleep(100)
    await site.daemon()
    await trio.sleep(100)
    assert site.told.new == [{"old": 1}, {"new": 1}]


async def test_an_emptied_store_is_told_anew(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    daemon = await site.daemon()
    await site.fail("no")
    await trio.sleep(100)
    site.stores[0].wipe()
    await site.stores[0].look(fresh=True)
    for store in daemon.stores:
        await store.look(fresh=False)
    site.benches[0] = StoreBench(site.stores[0], site.clock)
    await site.fail("new")
    await trio.sleep(100)
    assert site.told.new == [{"no": 1}, {"new": 1}]


async def test_a_store_that_is_emptied_while_a_notice_is_out(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    daemon = await site.daemon()
    site.told.within_s = 20
    await site.fail("no")
    await trio.sleep(40)
    site.stores[0].wipe()
    for store in (site.stores[0], *daemon.stores):
        await store.look(fresh=True)
    site.benches[0] = StoreBench(site.stores[0], site.clock)
    await site.fail("new")
    await trio.sleep(100)
    assert site.told.new == [{"no": 1}, {"new": 1}], "it goes on to count"


@pytest.mark.parametrize("ahead_s", [-900, -30, 30, 900])
async def test_partitions_whose_clocks_differ(autojump_clock: None, nursery: trio.Nursery, ahead_s: int) -> None:
    site = Site(nursery, partitions=2)
    other = TrioClock(wall_ms=1_800_000_000_000 + ahead_s * 1000 - round(trio.current_time() * 1000))
    site.stores[1] = FakeStore(other, STORE)
    site.benches[1] = StoreBench(site.stores[1], other)
    await site.look()
    await site.daemon(resolved_s=600)
    await site.fail("no", partition=1)
    await trio.sleep(60)
    await site.fail("no", partition=1)
    await trio.sleep(2_000)
    assert site.told.new == [{"no": 1}, {"no": 1}]
    assert site.told.notices[-1].rows[0].is_over


async def test_a_partition_that_hangs_keeps_no_notice_from_being_noted(
    autojump_clock: None, nursery: trio.Nursery
) -> None:
    site = Site(nursery, partitions=2)
    await site.look()
    site.told.within_s = 29
    one = await site.daemon("one")
    await trio.sleep(1)
    await site.daemon("two")
    hang(one)
    await site.fail("no")
    await trio.sleep(600)
    assert site.told.new == [{"no": 1}]


def hang(daemon: Running) -> None:
    """The second partition takes long to say that it is away."""
    client = daemon.stores[1].client

    async def hangs(name: str, *arguments: Any) -> object:
        await trio.sleep(40)
        raise StoreAway("it hangs")

    client.call = hangs  # type: ignore[method-assign]


async def test_a_state_of_a_newer_daemon_is_left_alone_and_told(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    await site.stores[0].swap_notices(0, b"\x93newer")
    daemon = await site.daemon()
    await site.fail("no")
    await trio.sleep(200)
    assert site.told.notices == []
    assert "is not understood" in daemon.notices.complaints()[0]
    assert (await site.stores[0].swap_notices(0)).state == b"\x93newer"


async def test_what_is_wrong_is_told_at_all_daemons_and_counted(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    one = await site.daemon("one")
    await trio.sleep(1)
    two = await site.daemon("two")
    site.told.result = Result(Fate.REFUSED, "550 no such user")
    await site.fail("no")
    await trio.sleep(1_800)
    assert one.notices.complaints() == two.notices.complaints() == ["notices: 550 no such user"]
    assert len(site.told.notices) == 1, "no loop"
    assert one.notices.counts["hook"] == {"sent": 0, "later": 0, "unknown": 0, "refused": 1}
    site.told.result = SENT
    await trio.sleep(3_600)
    assert one.notices.complaints() == two.notices.complaints() == []


async def test_a_store_that_comes_and_goes_brings_no_second_try(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    daemon = await site.daemon()
    site.told.result = Result(Fate.REFUSED, "550 no")
    await site.fail("no")
    await trio.sleep(60)
    for _ in range(5):
        daemon.stores[0].away = "cable pulled"
        await trio.sleep(60)
        daemon.stores[0].away = None
        await trio.sleep(60)
    assert len(site.told.notices) == 1


async def test_what_was_sent_is_noted_when_the_store_is_back(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    daemon = await site.daemon()
    site.told.within_s = 10
    await site.fail("no")
    await trio.sleep(35)
    assert len(site.told.notices) == 1
    daemon.stores[0].away = "cable pulled"
    await trio.sleep(600)
    daemon.stores[0].away = None
    await trio.sleep(600)
    assert len(site.told.notices) == 1


async def test_the_quiet_state_is_written_rarely(autojump_clock: None, nursery: trio.Nursery) -> None:
    site = Site(nursery)
    await site.look()
    await site.daemon()
    await trio.sleep(60)
    before = (await site.stores[0].swap_notices(0)).version
    writes = 0
    for _ in range(150):
        await trio.sleep(1)
        now = (await site.stores[0].swap_notices(0)).version
        writes, before = writes + (now != before), now
    assert writes <= 150 / loop.BEAT_S + 1
