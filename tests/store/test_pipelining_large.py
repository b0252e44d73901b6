"""Calls and answers that are cut, large, or half sent."""

import pytest
import redis
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.store.pipelined import CALLS_MAX, LARGE, OK, Calls, calls

__all__ = ["calls"]


ANSWERS = {b"+OK\r\n": b"OK", b":-12\r\n": -12, b"$5\r\na\r\nbc\r\n": b"a\r\nbc", b"$-1\r\n": None}
ANSWERS |= {b"*3\r\n$1\r\nx\r\n*1\r\n:1\r\n$-1\r\n": [b"x", [1], None], b"-JQD_POSITION 7 x\r\n": "JQD_POSITION 7 x"}


async def test_an_answer_may_be_cut_at_any_byte(calls: Calls) -> None:
    number = 0
    for raw, answer in ANSWERS.items():
        for at in range(1, len(raw)):
            await calls.begin(number := number + 1)
            await calls.wire.say(raw[:at])
            await wait_all_tasks_blocked()
            assert number not in calls.ended
            await calls.wire.say(raw[at:])
            await wait_all_tasks_blocked()
            assert calls.ended[number] == answer, (raw, at)
    assert len(calls.opened) == 1


async def test_calls_and_answers_may_be_larger_than_all_buffers(calls: Calls) -> None:
    """Neither side waits for the other to read first."""
    words, ended = [b"%d" % n + b"x" * 1_000_000 for n in range(CALLS_MAX)], list[object]()

    async def call(word: bytes) -> None:
        ended.append(await calls.link.call(("ECHO", word)))

    async with trio.open_nursery() as nursery:
        for word in words:
            nursery.start_soon(call, word)
            await wait_all_tasks_blocked()
        for word in words:
            assert await calls.wire.next() == f"ECHO {word.decode()}"
            await calls.wire.say(b"*%d\r\n" % 3, *[b"$%d\r\n%s\r\n" % (len(word), word)] * 3)
    assert ended == [[word] * 3 for word in words]


async def test_a_call_that_is_half_sent_goes_on_when_its_caller_is_cancelled(calls: Calls) -> None:
    answers: list[object] = []

    async def call() -> None:
        answers.append(await calls.link.call(("ECHO", LARGE)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await wait_all_tasks_blocked()
            assert await calls.wire.next() == f"ECHO {LARGE.decode()}"
            await calls.wire.say(OK)
    assert answers == [b"OK"]
    assert not calls.wire.cut


async def test_a_call_that_is_half_sent_ends_when_the_connection_breaks(calls: Calls) -> None:
    """At once, although nobody reads it at the other end."""
    await calls.begin(1)
    failed: list[redis.RedisError] = []

    async def call() -> None:
        with pytest.raises(redis.InvalidResponse) as raised:
            await calls.link.call(("ECHO", LARGE))
        failed.append(raised.value)

    calls._nursery.start_soon(call)
    await wait_all_tasks_blocked()
    await calls.wire.say(b"noise\r\n")
    await wait_all_tasks_blocked()
    assert len(failed) == 1
    assert calls.ended[1] == str(failed[0])


async def test_a_server_that_takes_nothing_breaks_the_connection(calls: Calls, autojump_clock: MockClock) -> None:
    with pytest.raises(redis.TimeoutError, match="no more was taken"):
        await calls.link.call(("ECHO", LARGE))
    assert calls.wire.cut
