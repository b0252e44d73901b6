"""Calls sent without waiting for the answers before them: in order, each with its own answer, none behind a break."""

import queue
from collections.abc import Mapping, Sequence
from typing import Any

import hiredis
import pytest
import redis
import trio
from redis.exceptions import NoScriptError
from trio.testing import wait_all_tasks_blocked

from jqd.store.line import Line
from jqd.store.scripts import load_scripts
from jqd.words.errors import JqdError, PositionMismatch, StoreAway
from jqd.words.job import Job
from jqd.words.record import Lane
from tests.contract.bench import JOURNAL, StoreBench
from tests.store.proxy import Proxy

PATIENCE_S = 30.0
SHA = load_scripts()["apply_jobs"].sha.encode()


class Wire:
    """A pool and its one connection, whose other end is the test."""

    def __init__(self) -> None:
        self.sent: queue.Queue[str] = queue.Queue()
        self.answers: queue.Queue[object] = queue.Queue()
        self.waits: queue.Queue[None] = queue.Queue()
        self.borrowed = self.cuts = 0
        self.dead = False

    def get_connection(self) -> "Wire":
        self.borrowed += 1
        return self

    def release(self, connection: object) -> None:
        assert connection is self
        self.borrowed -= 1

    def send_packed_command(self, command: Sequence[bytes], check_health: bool) -> None:
        if self.dead:
            raise redis.ConnectionError("broken pipe")
        reader = hiredis.Reader(encoding="utf-8")
        reader.feed(b"".join(command))
        self.sent.put(" ".join(reader.gets()))

    def read_response(self) -> object:
        self.waits.put(None)
        answer = self.answers.get(timeout=PATIENCE_S)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def disconnect(self) -> None:
        self.cuts += 1

    async def next(self) -> str:
        """What is sent next."""
        return await trio.to_thread.run_sync(self.sent.get, True, PATIENCE_S)

    async def reading(self) -> None:
        """Return when somebody waits for the next answer."""
        await trio.to_thread.run_sync(self.waits.get, True, PATIENCE_S)


class Calls:
    """Calls by number, and what came of each."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.wire = Wire()
        pool: Any = self.wire
        self.line = Line(pool)
        self.ended: dict[int, object] = {}
        self.scopes: dict[int, trio.CancelScope] = {}
        self._nursery = nursery

    async def begin(self, *numbers: int) -> None:
        """One after the other."""
        for number in numbers:
            self._nursery.start_soon(self._call, number)
            await wait_all_tasks_blocked()

    async def _call(self, number: int) -> None:
        with trio.CancelScope() as self.scopes[number]:
            try:
                answer = await self.line.call(("SHA", number), lambda: ("SOURCE", number))
            except redis.RedisError as error:
                answer = str(error)
            self.ended[number] = answer

    async def until(self, ended: Mapping[int, object]) -> None:
        """Wait for these ends. Who are answered at once may learn it in any order."""
        with trio.fail_after(PATIENCE_S):
            while len(self.ended) < len(ended):
                await wait_all_tasks_blocked(0.001)
        assert self.ended == ended


@pytest.fixture
def calls(nursery) -> Calls:
    return Calls(nursery)


async def sent_one(calls: Calls) -> None:
    """Somebody waits for the answer to it."""
    await calls.begin(1)
    assert await calls.wire.next() == "SHA 1"
    await calls.wire.reading()


async def sent_three(calls: Calls) -> None:
    """The first answered, the second and third sent, the fourth waiting for its turn."""
    await sent_one(calls)
    await calls.begin(2, 3, 4)
    calls.wire.answers.put("one")
    assert [await calls.wire.next(), await calls.wire.next()] == ["SHA 2", "SHA 3"]
    assert calls.wire.sent.empty(), "two are at the server: one at work, one at hand"
    await calls.wire.reading()


async def test_the_next_is_sent_before_the_one_before_it_is_answered(calls: Calls) -> None:
    await sent_three(calls)
    for answer in ("two", "three", "four"):
        calls.wire.answers.put(answer)
    await calls.until({1: "one", 2: "two", 3: "three", 4: "four"})
    assert (calls.wire.borrowed, calls.wire.cuts) == (0, 0)


async def test_what_the_server_says_of_one_call_is_of_that_call_alone(calls: Calls) -> None:
    await sent_three(calls)
    for answer in (redis.ResponseError("two is wrong"), "three", redis.ResponseError("four is wrong")):
        calls.wire.answers.put(answer)
    await calls.until({1: "one", 2: "two is wrong", 3: "three", 4: "four is wrong"})
    assert (calls.wire.borrowed, calls.wire.cuts) == (0, 0)


async def test_with_the_connection_breaks_all_that_is_unanswered_or_was_to_follow(calls: Calls) -> None:
    await sent_three(calls)
    calls.wire.answers.put(redis.TimeoutError("no answer"))
    ended = {1: "one", 2: "no answer", 3: "no answer"}
    ended |= {4: "a call before this one broke the connection, so it was not sent"}
    await calls.until(ended)
    assert calls.wire.sent.empty()
    assert (calls.wire.borrowed, calls.wire.cuts) == (0, 1)
    calls.wire.answers.put("five")
    await calls.begin(5)
    await calls.until(ended | {5: "five"})


async def test_a_call_that_cannot_be_sent_breaks_it_too(calls: Calls) -> None:
    await sent_one(calls)
    await calls.begin(2)
    calls.wire.dead = True
    calls.wire.answers.put("one")
    await calls.until({1: "one", 2: "broken pipe"})
    assert (calls.wire.borrowed, calls.wire.cuts) == (0, 1)


async def test_a_server_that_lost_its_scripts_gets_their_source_in_the_same_order(calls: Calls) -> None:
    await sent_three(calls)
    for answer in (NoScriptError("?"), NoScriptError("?"), "two", redis.ResponseError("three is wrong"), "four"):
        calls.wire.answers.put(answer)
    assert [await calls.wire.next(), await calls.wire.next()] == ["SOURCE 2", "SOURCE 3"]
    assert await calls.wire.next() == "SHA 4"
    await calls.until({1: "one", 2: "two", 3: "three is wrong", 4: "four"})


async def test_one_that_got_through_between_keeps_its_answer(calls: Calls) -> None:
    """Somebody else loaded the script just before it."""
    await sent_three(calls)
    for answer in (NoScriptError("?"), redis.ResponseError("three is too early"), "two", "four"):
        calls.wire.answers.put(answer)
    assert [await calls.wire.next(), await calls.wire.next()] == ["SOURCE 2", "SHA 4"]
    await calls.until({1: "one", 2: "two", 3: "three is too early", 4: "four"})


async def test_the_answer_to_a_caller_who_left_is_nobody_elses(calls: Calls) -> None:
    await sent_three(calls)
    calls.scopes[2].cancel()
    calls.scopes[4].cancel()
    for answer in ("two", "three"):
        calls.wire.answers.put(answer)
    await calls.until({1: "one", 3: "three"})
    assert calls.wire.sent.empty(), "the fourth was never sent"
    assert calls.wire.borrowed == 0


async def test_an_answer_that_nobody_waited_for_is_read_before_the_next(calls: Calls) -> None:
    await sent_three(calls)
    for number in (2, 3, 4):
        calls.scopes[number].cancel()
    calls.wire.answers.put("two")
    await wait_all_tasks_blocked(0.001)
    assert calls.wire.borrowed == 1, "a connection with an answer on its way does not go back"
    await calls.begin(5)
    for answer in ("three", "five"):
        calls.wire.answers.put(answer)
    await calls.until({1: "one", 5: "five"})
    assert calls.wire.borrowed == 0


# ---------------------------------------------------------------- through the store, to a real server


class Batch:
    """Applies of one lane that are made at once, one behind the other."""

    def __init__(self, bench: StoreBench, count: int) -> None:
        self._store, self._jobs = bench.store, [bench.make() for _ in range(count)]
        self.failed: dict[int, JqdError] = {}

    async def apply(self) -> None:
        async with trio.open_nursery() as nursery:
            for number, job in enumerate(self._jobs):
                nursery.start_soon(self._apply, number, job)
                await trio.lowlevel.checkpoint()

    async def _apply(self, number: int, job: Job) -> None:
        try:
            await self._store.apply_jobs(JOURNAL, number, number + 1, [job])
        except JqdError as error:
            self.failed[number] = error
        else:
            self.failed.pop(number, None)


async def test_calls_of_a_lane_are_done_in_the_order_in_which_they_are_made(bench: StoreBench) -> None:
    batch = Batch(bench, 20)
    await batch.apply()
    assert batch.failed == {}
    assert (await bench.store.applied(JOURNAL))[Lane.JOBS] == 20
    assert (await bench.store.stats()).waiting == 20


async def test_flushed_scripts_are_loaded_again_for_all_of_them(bench: StoreBench, client: "redis.Redis") -> None:
    batch = Batch(bench, 5)
    client.script_flush()
    await batch.apply()
    assert batch.failed == {}
    assert (await bench.store.stats()).waiting == 5


async def test_a_lost_answer_leaves_all_behind_it_to_be_sent_again(bench: StoreBench, proxy: Proxy) -> None:
    batch = Batch(bench, 5)
    proxy.lose_answer(SHA)
    await batch.apply()
    assert set(batch.failed) == set(range(5))
    assert all(isinstance(error, StoreAway) for error in batch.failed.values())
    # Some behind the lost one may have been done before the break: whoever sends them again is told where to go on.
    done = (await bench.store.applied(JOURNAL))[Lane.JOBS]
    assert done >= 1
    await batch.apply()
    assert set(batch.failed) == set(range(done - 1))
    assert all(isinstance(error, PositionMismatch) for error in batch.failed.values())
    assert (await bench.store.stats()).waiting == (await bench.store.applied(JOURNAL))[Lane.JOBS] == 5


async def test_a_call_under_way_is_answered_while_the_store_is_looked_at(bench: StoreBench) -> None:
    """`look` exchanges all connections."""
    store = bench.store
    await store.look(fresh=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.apply_jobs, JOURNAL, 0, 1, [bench.make()])
        await trio.lowlevel.checkpoint()
        await store.look(fresh=False)
    await store.apply_jobs(JOURNAL, 1, 2, [bench.make()])
    assert (await store.stats()).waiting == 2
