"""Large results take turns while they are read, so that they are in memory a few at a time."""

from typing import Any, cast

import pytest
import trio
import trio.testing

from jqd.domain.errors import AnswerGarbled
from jqd.domain.job import Fate
from jqd.domain.results import LARGE_BYTES, LARGE_READ_MAX
from jqd.runner.transport.http1 import Origin, Wire
from jqd.runner.transport.large_reads import READ_S, LargeReads, ReadPermit
from jqd.runner.transport.pool import Pool
from tests.loops.house import TrioClock
from tests.runner.conftest import House, OpenHouse, hold
from tests.runner.test_http1 import Script

LARGE = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n"
PIECE = b"x" * 65_536
JOB_S = 5.0  # in which a job has to be done


class Slow:
    """A worker that sends nothing more."""

    async def read(self) -> bytes:
        await trio.sleep(2 * READ_S)
        return b""


SLOW = cast("Wire", cast("Any", Slow()))


async def test_so_many_are_read_at_once_and_the_next_one_waits(autojump_clock: object) -> None:
    reads = LargeReads(lambda: False, lambda: 1)
    permits = [ReadPermit(reads, "") for _ in range(LARGE_READ_MAX + 1)]
    for permit in permits[:-1]:
        await permit.check_size(LARGE_BYTES + 1)
    with trio.move_on_after(1) as waits:
        await permits[-1].check_size(LARGE_BYTES + 1)
    assert waits.cancelled_caught
    await permits[0].check_size(0)  # it is complete
    await permits[-1].check_size(LARGE_BYTES + 1)
    for permit in permits:
        permit.release()
    assert not reads.granted


async def test_small_ones_wait_for_nobody() -> None:
    reads = LargeReads(lambda: True, lambda: 1)
    await ReadPermit(reads, "").check_size(LARGE_BYTES)
    assert not reads.granted


async def test_none_is_read_on_while_the_disk_has_enough(autojump_clock: object) -> None:
    full = [True]
    permit = ReadPermit(LargeReads(lambda: full[0], lambda: 1), "")
    with trio.move_on_after(1) as waits:
        await permit.check_size(LARGE_BYTES + 1)
    assert waits.cancelled_caught
    full[0] = False
    permit.release()
    await permit.check_size(LARGE_BYTES + 1)


async def test_a_worker_that_sends_too_slowly_loses_its_turn(autojump_clock: trio.testing.MockClock) -> None:
    reads = LargeReads(lambda: False, lambda: 1)
    permit = ReadPermit(reads, "")
    await permit.check_size(LARGE_BYTES + 1)
    began_s = trio.current_time()
    with pytest.raises(AnswerGarbled, match=f"did not come within {READ_S:g} s"):
        await permit.read(SLOW)
    assert trio.current_time() - began_s == READ_S
    permit.release()
    assert not reads.granted


async def take(reads: LargeReads, tenant: str, count: int) -> list[ReadPermit]:
    """Those of so many that have a permit at once."""
    permits = [ReadPermit(reads, tenant) for _ in range(count)]
    with trio.move_on_after(1):
        async with trio.open_nursery() as nursery:
            for permit in permits:
                nursery.start_soon(permit.check_size, LARGE_BYTES + 1)
    has = [permit for permit in permits if permit in reads.granted]
    for permit in permits:
        if permit not in has:
            permit.release()
    return has


async def test_a_tenant_with_slow_workers_takes_no_turns_from_another(autojump_clock: object) -> None:
    """Four slow senders of one tenant had all permits, each for a minute."""
    tenants = [1]
    reads = LargeReads(lambda: False, lambda: tenants[0])
    alone = await take(reads, "a", 9)
    assert len(alone) == LARGE_READ_MAX, "nobody else is here"
    for permit in alone:
        permit.release()
    tenants[0] = 2
    slow = await take(reads, "a", 9)
    assert (len(slow), len(await take(reads, "b", 9))) == (2, 2)
    tenants[0] = 100
    assert not await take(reads, "c", 1)
    slow[0].release()
    assert len(await take(reads, "a", 1)) == 0, "it has its share"
    assert len(await take(reads, "c", 1)) == 1


async def test_who_waited_first_has_the_next_turn(autojump_clock: object) -> None:
    reads, order = LargeReads(lambda: False, lambda: 1), list[int]()
    first = await take(reads, "", LARGE_READ_MAX)

    async def wait(number: int) -> None:
        permit = ReadPermit(reads, "")
        await permit.check_size(LARGE_BYTES + 1)
        order.append(number)
        permit.release()

    async with trio.open_nursery() as nursery:
        for number in range(9):
            nursery.start_soon(wait, number)
            await trio.testing.wait_all_tasks_blocked()
        first[0].release()
    assert order == [*range(9)]


async def test_the_time_of_a_result_begins_when_the_disk_takes_it(autojump_clock: trio.testing.MockClock) -> None:
    """A disk that was full for a minute was charged to the worker: its result did not come in time."""
    full = [True]
    permit = ReadPermit(LargeReads(lambda: full[0], lambda: 1), "")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(permit.check_size, LARGE_BYTES + 1)
        await trio.sleep(READ_S + 1)
        full[0] = False
    began_s = trio.current_time()
    with pytest.raises(AnswerGarbled):
        await permit.read(SLOW)
    assert trio.current_time() - began_s == pytest.approx(READ_S)


class Answers:
    """A network where each worker answers with a large result, and sends the last of it when it may."""

    def __init__(self, size: int, last: trio.Event) -> None:
        self._size, self._last = size, last

    async def connect(self, origin: Origin, within_s: float) -> Script:
        await trio.lowlevel.checkpoint()
        line = Script([LARGE % self._size, *[PIECE] * (self._size // len(PIECE))])
        receive = line.receive

        async def patient() -> bytes:
            if len(line._pieces) == 1:
                await self._last.wait()
            return await receive()

        line.receive = patient  # type: ignore[method-assign]
        return line


async def begin(house: House, last: trio.Event) -> None:
    """A worker has done a job in time, and sends its result."""
    house.runner._pool = house.runner._post._pool = Pool(Answers(2 * LARGE_BYTES, last), 8, 4.0)  # type: ignore[arg-type]
    house.register("http://127.0.0.1:80/", style="webhook")
    house.run(hold(1, timeout=JOB_S, keep_result=True))


@pytest.mark.parametrize("why", ["turns", "disk"])
async def test_a_worker_whose_result_waits_for_us_does_not_pay_for_it(
    open_house: OpenHouse, autojump_clock: object, why: str
) -> None:
    """The job ran out of time, and its work was done again, or was in vain."""
    last, full = trio.Event(), [why == "disk"]
    last.set()
    async with open_house(clock=TrioClock()) as house:
        reads = house.runner._post._large
        reads.is_full = lambda: full[0]
        others = [] if full[0] else await take(reads, "", LARGE_READ_MAX)
        await begin(house, last)
        await trio.sleep(4 * JOB_S)
        house.take()
        assert not house.outcomes
        full[0] = False
        for permit in others:
            permit.release()
        await house.stopped(1)
        (outcome,) = house.outcomes.values()
        assert outcome.fate is Fate.SUCCEEDED, outcome.message


async def test_its_time_runs_on_when_it_waits_no_more_for_us(open_house: OpenHouse, autojump_clock: object) -> None:
    async with open_house(clock=TrioClock()) as house:
        others = await take(house.runner._post._large, "", LARGE_READ_MAX)
        await begin(house, trio.Event())
        await trio.sleep(4 * JOB_S)
        others[0].release()
        began_s = trio.current_time()
        await house.stopped(1)
        (outcome,) = house.outcomes.values()
        assert outcome.message.startswith("TIMEOUT"), outcome.message
        assert JOB_S - 1 <= trio.current_time() - began_s <= JOB_S + 1
