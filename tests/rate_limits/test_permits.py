"""Permits over three partitions: the real scripts, and what carries numbers between them, one step after the other."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from msgspec import Raw

from jqd.domain.job import Fate, Held, Job
from jqd.domain.queue_name import home_of
from jqd.domain.record import Lane
from jqd.domain.settings import Setting
from jqd.rate_limits.permits import SILENT_S, Permits
from jqd.store import Claimed, Owner, Permit, RateWanted, StoreConfig
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import ALL, JOURNAL, StoreBench, outcome

DIGEST, COUNT, MOST = 7, 3, 2
QUEUE = f"\x1e{DIGEST}\x1er\x1d1\x1d"
HOME = home_of("r", "", COUNT)
HERE, THERE = ((HOME + 1) % COUNT, (HOME + 2) % COUNT)
AGAIN_MS, KEPT_MS = 150, 350  # behind that a bucket is looked at again; behind that what got free is kept for nobody
FORGOTTEN_S = 61.0  # so is what nobody used


class Parts:
    """Three partitions, and a daemon that has a seat in each."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall_ms=1_800_000_000_000)
        parts = StoreConfig(url="redis://fake", partitions=COUNT).parts()
        self.stores = [FakeStore(self.clock, part) for part in parts]
        self.benches = [StoreBench(store, self.clock) for store in self.stores]
        self.owners: list[Owner] = []
        self.permits = [Permits(number, self.stores, self.clock) for number in range(COUNT)]
        self.body: dict[str, Any] = {}

    async def join(self, number: int) -> None:
        """Come to a store that is new, or that was emptied."""
        bench, store = self.benches[number], self.stores[number]
        bench.at = dict.fromkeys(Lane, 0)
        await store.look(fresh=True)
        owner = await bench.join()
        self.owners[number : number + 1] = [owner]
        await store.renew_sysid(owner, through=True, settle=True)
        await self.say(number)

    async def say(self, number: int, revision: int = 1) -> None:
        """Tell a partition of the constraint, said long before it began."""
        bench = self.benches[number]
        start = bench.at[Lane.RULES]
        bench.at[Lane.RULES] = start + 100
        raw = Raw(msgspec.msgpack.encode({"digest": DIGEST, **self.body}))
        await bench.store.apply_settings(JOURNAL, start, start + 100, [Setting("constraint", "r", revision, 1, raw)])

    async def push(self, number: int, count: int) -> list[Job]:
        return [await self.benches[number].push(queue=QUEUE) for _ in range(count)]

    async def ask(
        self, number: int, *permits: Permit, asks: bool = True, limit: int = 100, looks: bool = True, **wish: Any
    ) -> Claimed:
        """One call of a claim, behind a look at what is due."""
        store: Any = self.stores[number]
        if looks:
            await store.promote(100)
        claimed = await store.get_waiting_jobs(
            self.owners[number], "mail", limit, version=str(DIGEST), permits=permits, asks=asks, **{**ALL, **wish}
        )
        assert isinstance(claimed, Claimed)
        return claimed

    async def claim(self, number: int, limit: int = 100, **wish: Any) -> list[Held]:
        """All calls of a claim."""
        told: list[Permit] = []
        for left in (3, 2, 1, 0):
            claimed = await self.ask(number, *told, asks=left > 0, limit=limit, **wish)
            if not claimed.lacking:
                break
            told += await self.permits[number].get(claimed.lacking)
        return list(claimed)

    async def end(self, number: int, held: Sequence[Held]) -> None:
        await self.benches[number].settle(*(outcome(one, Fate.SUCCEEDED) for one in held))

    async def lose(self, number: int, held: Sequence[Held]) -> None:
        """Empty a partition; its daemon comes through the barrier with what it has in flight, and tells it anew."""
        self.stores[number].wipe()
        self.stores[number].restart()
        self.clock.advance(1.0)
        await self.join(number)
        await self.benches[number].add(*(one.job for one in held))
        await self.stores[number].reassert(self.owners[number], {one.job.id: one.fence for one in held})


@asynccontextmanager
async def parts(**body: Any) -> AsyncIterator[Parts]:
    its = Parts()
    its.body = body
    async with trio.open_nursery() as nursery:
        for permits in its.permits:
            await nursery.start(permits.run)
        for number in range(COUNT):
            await its.join(number)
            its.clock.advance(0.1)
        yield its
        nursery.cancel_scope.cancel()


async def test_slots_stay_where_they_are_used_and_go_where_they_are_lacking() -> None:
    async with parts(concurrency=MOST) as its:
        for number in (HERE, THERE):
            await its.push(number, 5)
        first = await its.claim(HERE)
        assert len(first) == MOST
        await its.end(HERE, first[:1])
        again = await its.ask(HERE, asks=False)
        assert len(again) == 1, "what got free is taken without a question"
        assert await its.claim(THERE) == []
        await its.end(HERE, again)
        its.clock.advance(AGAIN_MS / 1000)
        (there,) = await its.claim(THERE)
        assert await its.claim(HERE) == []
        await its.end(HERE, first[1:])
        assert await its.claim(HERE) == [], "it is kept for the other one, which asked"
        await its.end(THERE, [there])
        its.clock.advance(KEPT_MS / 1000)
        assert len(await its.claim(HERE)) == MOST


@pytest.mark.parametrize("lost", [HOME, HERE, THERE])
async def test_a_partition_that_is_emptied_lets_no_more_start_and_loses_no_slot(lost: int) -> None:
    async with parts(concurrency=MOST) as its:
        held = {HERE: (await its.push(HERE, 5), await its.claim(HERE, 1))[1]}
        held[THERE] = (await its.push(THERE, 5), await its.claim(THERE, 1))[1]
        assert {len(its) for its in held.values()} == {1}
        await its.lose(lost, held.get(lost, ()))
        await its.push(lost, 5)
        for number in range(COUNT):
            assert await its.claim(number) == []
        for number in (HERE, THERE):
            await its.end(number, held[number])
        its.clock.advance(KEPT_MS / 1000)
        await its.push(HOME, 1)
        assert len(await its.claim(HOME, 1)) == 1
        assert len(await its.claim(THERE)) == 1


async def test_a_home_that_forgot_grants_nothing_before_all_have_said_what_they_have() -> None:
    async with parts(concurrency=MOST) as its:
        for number in (HERE, THERE):
            await its.push(number, 5)
        held = await its.claim(HERE)
        image = its.stores[HOME].image()
        await its.end(HERE, held[:1])
        its.clock.advance(KEPT_MS / 1000)
        assert len(await its.claim(THERE)) == 1
        its.stores[HOME].restart(image)  # it knows of the slots HERE alone
        its.clock.advance(1.0)
        await its.stores[HOME].look(fresh=False)
        its.owners[HOME] = await its.benches[HOME].join()
        await its.stores[HOME].renew_sysid(its.owners[HOME], through=True, settle=True)
        its.stores[HERE].away = "cable pulled"
        its.clock.advance(SILENT_S)
        assert await its.claim(THERE) == [], "what is in hands there nobody knows"
        its.stores[HERE].away = None
        its.clock.advance(SILENT_S)
        await its.end(HERE, held[1:])
        assert len(await its.claim(THERE)) == 1


async def test_what_was_granted_before_its_home_forgot_is_void_when_it_comes_late() -> None:
    async with parts(concurrency=MOST) as its:
        for number in (HERE, THERE):
            await its.push(number, 5)
        late = await its.permits[HERE].get((await its.ask(HERE)).lacking)
        assert late[0].flag is False
        await its.lose(HOME, ())
        its.clock.advance(SILENT_S)  # it did not answer as who it was
        assert len(await its.claim(THERE)) == MOST
        assert list(await its.ask(HERE, *late, asks=False)) == []


async def test_what_was_granted_before_a_partition_forgot_the_bucket_is_void_when_it_comes_late() -> None:
    async with parts(concurrency=MOST) as its:
        await its.push(HERE, MOST)
        late = await its.permits[HERE].get((await its.ask(HERE, limit=1)).lacking)
        await its.end(HERE, await its.claim(HERE))
        await its.push(THERE, MOST)
        there = await its.claim(THERE)
        assert (late[0].flag, len(there)) == (False, MOST)
        its.clock.advance(FORGOTTEN_S)
        await its.stores[HERE].promote(100)
        await its.push(HERE, 5)
        started = list(await its.ask(HERE, *late, asks=False))
        for _ in range(3):
            its.clock.advance(KEPT_MS / 1000)
            started += await its.claim(HERE)
        assert started == [], "all of them are in hands there"
        await its.end(THERE, there[:1])
        its.clock.advance(KEPT_MS / 1000)
        assert len(await its.claim(HERE)) == 1


async def test_a_partition_that_is_older_than_it_was_takes_nothing_twice() -> None:
    async with parts(concurrency=MOST) as its:
        for number in (HERE, THERE):
            await its.push(number, 5)
        held = await its.claim(HERE)
        assert await its.claim(HERE) == []
        image = its.stores[HERE].image()
        await its.end(HERE, held)
        its.clock.advance(KEPT_MS / 1000)
        assert len(await its.claim(THERE)) == MOST
        its.stores[HERE].restart(image)
        its.clock.advance(1.0)
        await its.stores[HERE].look(fresh=False)
        its.owners[HERE] = await its.benches[HERE].join()
        await its.stores[HERE].renew_sysid(its.owners[HERE], through=True, settle=True)
        its.benches[HERE].at[Lane.OUTCOMES] = 0
        await its.end(HERE, held)
        its.clock.advance(SILENT_S)
        assert await its.claim(HERE) == []


async def test_a_lower_limit_holds_for_slots_that_are_free() -> None:
    async with parts(concurrency=MOST) as its:
        held = {number: (await its.push(number, 9), await its.claim(number, 1))[1] for number in (HERE, THERE)}
        assert [await its.claim(number) for number in held] == [[], []]
        its.clock.advance(KEPT_MS / 1000)
        its.body = {"concurrency": 1}
        for number in range(COUNT):
            await its.say(number, 2)
        await its.end(HERE, held[HERE])
        assert list(await its.ask(HERE, looks=False)) == [], "from the moment on that it is said"
        assert await its.claim(HERE) == []
        await its.end(THERE, held[THERE])
        its.clock.advance(KEPT_MS / 1000)
        assert len(await its.claim(HERE)) == 1


async def test_a_rate_is_spent_at_home_and_what_is_used_too_late_is_asked_for_again() -> None:
    async with parts(rate={"limit": MOST, "per_s": 1.0}) as its:
        its.clock.advance(4.0)  # what an earlier life let through is out of the window
        for number in (HERE, THERE):
            await its.push(number, 9)
        assert (len(await its.claim(HERE)), len(await its.claim(THERE))) == (MOST, 0)
        its.clock.advance(1.0)
        assert await its.claim(THERE) == [], "those may have started a moment after they were spent"
        its.clock.advance(0.2)
        claimed = await its.ask(THERE)
        told = await its.permits[THERE].get(claimed.lacking)
        its.clock.advance(0.2)
        assert (await its.ask(THERE, *told)).lacking, "that is too late"
        assert list(await its.ask(THERE, *told, asks=False)) == []
        assert await its.claim(HERE) == [], "it is spent all the same"
        its.clock.advance(1.3)
        assert len(await its.claim(THERE)) == MOST


async def test_what_a_partition_counts_that_does_not_answer_waits_and_all_else_goes_on() -> None:
    async with parts(concurrency=MOST) as its:
        await its.push(HERE, 2)
        free = await its.benches[HERE].push(queue=f"\x1e{DIGEST}")
        its.stores[HOME].away = "cable pulled"
        assert [one.job.id for one in await its.claim(HERE)] == [free.id]
        assert HOME in its.permits[HERE].silent
        its.stores[HOME].away = None
        its.clock.advance(SILENT_S)
        assert len(await its.claim(HERE)) == MOST
        assert not its.permits[HERE].silent


async def test_who_takes_one_at_a_time_does_not_wait_while_slots_are_free() -> None:
    async with parts(concurrency=5) as its:
        await its.push(HERE, 5)
        assert [len(await its.claim(HERE, 1)) for _ in range(5)] == [1] * 5


async def test_what_a_claim_has_no_room_for_is_not_spent_of_a_rate() -> None:
    async with parts(rate={"limit": 9, "per_s": 3600.0}) as its:
        its.clock.advance(3700.0)  # what an earlier life let through is out of the window
        bench = its.benches[HERE]
        for _ in range(9):
            await bench.push(queue=QUEUE, argument=b"\xc5\x27\x10" + bytes(10_000))
        assert [len(await its.claim(HERE, bytes_max=35_000)) for _ in range(3)] == [3, 3, 3]


async def test_what_was_spent_of_a_rate_and_came_too_late_is_for_the_next_claim() -> None:
    async with parts(rate={"limit": 9, "per_s": 3600.0}) as its:
        its.clock.advance(3700.0)
        await its.push(HERE, 9)
        grant, answer, told = its.stores[HOME].grant_rates, trio.Event(), trio.Event()

        async def slow(*args: Any) -> Any:
            granted = await grant(*args)
            await answer.wait()
            told.set()
            return granted

        its.stores[HOME].grant_rates = slow  # type: ignore[method-assign, assignment]
        assert await its.claim(HERE) == []
        answer.set()
        await told.wait()
        await trio.testing.wait_all_tasks_blocked()
        its.clock.advance(1.1)
        assert (len(await its.claim(HERE)), len(await its.claim(HERE))) == (9, 0)


async def test_the_only_start_of_a_day_is_not_lost_by_a_slow_answer() -> None:
    async with parts(rate={"limit": 1, "per_s": 86_400.0}) as its:
        its.clock.advance(90_000.0)
        await its.push(HERE, 1)
        told = await its.permits[HERE].get((await its.ask(HERE)).lacking)
        its.clock.advance(1.5)
        assert len(await its.ask(HERE, *told, asks=False)) == 1


async def test_a_home_that_knows_no_rate_yet_lets_nothing_start() -> None:
    async with parts(concurrency=99) as its:
        its.body = {"concurrency": 99, "rate": {"limit": 1, "per_s": 3600.0}}
        await its.say(HERE, 2)
        its.clock.advance(3700.0)
        await its.push(HERE, 9)
        assert await its.claim(HERE) == []
        await its.say(HOME, 2)
        its.clock.advance(AGAIN_MS / 1000)
        assert len(await its.claim(HERE)) == 1


async def test_a_partition_that_is_not_settled_is_asked_all_else() -> None:
    async with parts(concurrency=MOST, rate={"limit": 9, "per_s": 1.0}) as its:
        its.clock.advance(4.0)
        await its.stores[HOME].reassert(its.owners[HOME], {its.benches[HOME].make().id: 5})  # it has not come yet
        await its.push(HERE, 1)
        (lack,) = (await its.ask(HERE)).lacking
        assert (await its.permits[HERE].get([lack]))[0].flag, "who is in a hand there nobody knows"
        rate = RateWanted(lack.bucket, HOME, 1, 1, its.clock.wall_ms() * 1000, 1_000_000)
        assert (await its.permits[HERE].get([rate]))[0].numbers[0] == 1
