"""Calls sent without waiting for the answers before them: in order, each with its own answer, none behind a break."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from jqd.store import pipeline as link_module
from tests.store.pipelined import MISSING, OK, TIMEOUT_S, Calls, calls

__all__ = ["calls"]


async def sent_three(calls: Calls) -> None:
    """Three are sent, the fourth waits for its turn, and the fifth behind it."""
    await calls.begin(1, 2, 3, 4, 5)
    assert [await calls.wire.next() for _ in range(3)] == ["CALL 1", "CALL 2", "CALL 3"]
    assert calls.wire.heard_nothing()


async def test_the_next_are_sent_before_the_first_is_answered(calls: Calls) -> None:
    await sent_three(calls)
    await calls.wire.say(b"+one\r\n")
    assert await calls.wire.next() == "CALL 4"
    await calls.wire.say(b"+two\r\n", b"+three\r\n")
    assert await calls.wire.next() == "CALL 5"
    await calls.wire.say(b":4\r\n", b"*-1\r\n")
    await calls.until({1: b"one", 2: b"two", 3: b"three", 4: 4, 5: None})
    assert len(calls.opened) == 1
    assert not calls.wire.cut


async def test_what_the_server_says_of_one_call_is_of_that_call_alone(calls: Calls) -> None:
    await sent_three(calls)
    await calls.wire.say(OK, b"-ERR two is wrong\r\n", OK)
    await calls.until({1: b"OK", 2: "two is wrong", 3: b"OK"})
    await calls.wire.say(b"-WRONGTYPE four too\r\n", OK)
    await calls.until({1: b"OK", 2: "two is wrong", 3: b"OK", 4: "WRONGTYPE four too", 5: b"OK"})
    assert len(calls.opened) == 1


async def silence(calls: Calls) -> None:
    await trio.sleep(TIMEOUT_S)


async def hang_up(calls: Calls) -> None:
    await calls.wire.far.aclose()


# How the connection breaks, and what is said of it.
BREAKS: dict[str, tuple[Callable[[Calls], Awaitable[None]], str]] = {
    "silence": (silence, "no answer for 5.0 s"),
    "closed": (hang_up, "the server closed the connection"),
    "noise": (lambda calls: calls.wire.say(b"HTTP/1.1 400 Bad Request\r\n"), "Protocol error, got"),
    "loading": (lambda calls: calls.wire.say(b"-LOADING the data\r\n"), "the data"),
    "half": (lambda calls: calls.wire.say(b"$7\r\nhal"), "no answer for 5.0 s"),
}


@pytest.mark.parametrize("how", BREAKS)
async def test_with_the_connection_breaks_all_that_is_unanswered_or_was_to_follow(
    calls: Calls, how: str, autojump_clock: MockClock
) -> None:
    breaks, says = BREAKS[how]
    await sent_three(calls)
    await calls.wire.say(OK)
    assert await calls.wire.next() == "CALL 4"
    await breaks(calls)
    await trio.sleep(2 * TIMEOUT_S)
    told = {number: str(answer) for number, answer in calls.ended.items()}
    assert sorted(told) == [1, 2, 3, 4, 5]
    assert told[1] == "b'OK'"
    assert all(told[number].startswith(says) for number in (2, 3, 4)), told
    assert told[5].startswith(f"not sent, for the connection broke before: {says}")
    assert calls.wire.cut
    await calls.begin(6)
    assert await calls.wire.next() == "CALL 6"
    await calls.wire.say(OK)
    await wait_all_tasks_blocked()
    assert (calls.ended[6], len(calls.opened)) == (b"OK", 2)


async def test_answers_that_nobody_asked_for_break_it_for_nobody_else(calls: Calls) -> None:
    await sent_three(calls)
    await calls.wire.say(OK, OK, OK, OK)
    await wait_all_tasks_blocked()
    assert calls.opened[0].cut
    assert [await calls.wire.next(), await calls.wire.next()] == ["CALL 4", "CALL 5"]
    await calls.wire.say(b"+four\r\n", b"+five\r\n")
    await calls.until({1: b"OK", 2: b"OK", 3: b"OK", 4: b"four", 5: b"five"})


async def test_who_waited_while_it_could_not_be_opened_is_refused_with_the_first(calls: Calls) -> None:
    """Each of them would try for seconds, one behind the other."""
    calls.refusal = redis.ConnectionError("refused")
    async with trio.open_nursery() as nursery:
        for number in (1, 2, 3):
            nursery.start_soon(calls._call, number)
    assert sorted(map(str, calls.ended.values())) == [
        *["not sent, for the connection broke before: refused"] * 2,
        "refused",
    ]
    calls.refusal = None
    await calls.begin(4)
    await calls.wire.say(OK)
    await wait_all_tasks_blocked()
    assert calls.ended[4] == b"OK"


@pytest.mark.parametrize("says", [b"", OK], ids=["closed", "said something"])
async def test_a_connection_that_the_server_is_through_with_is_not_used(calls: Calls, says: bytes) -> None:
    await calls.begin(1)
    await calls.wire.say(OK)
    await wait_all_tasks_blocked()
    await (calls.wire.say(says) if says else calls.wire.far.aclose())
    await calls.begin(2)
    assert await calls.wire.next() == "CALL 2"
    await calls.wire.say(b"+two\r\n")
    await calls.until({1: b"OK", 2: b"two"})
    assert [one.cut for one in calls.opened] == [True, False]


@pytest.mark.parametrize("loaded", [OK, b"-ERR Library 'x' already exists\r\n"], ids=["loaded", "by another"])
async def test_a_server_that_lost_our_functions_gets_them_and_the_calls_in_the_same_order(
    calls: Calls, loaded: bytes
) -> None:
    await sent_three(calls)
    await calls.wire.say(OK, MISSING)
    await wait_all_tasks_blocked()
    assert calls.wire.heard_nothing(), "nothing is sent before it is known who else met that"
    await calls.wire.say(MISSING)
    assert [await calls.wire.next() for _ in range(3)] == ["LOAD library", "CALL 2", "CALL 3"]
    await calls.wire.say(loaded, b"+two\r\n", b"-ERR three is wrong\r\n")
    assert [await calls.wire.next() for _ in range(2)] == ["CALL 4", "CALL 5"]
    await calls.wire.say(OK, MISSING)
    assert [await calls.wire.next() for _ in range(2)] == ["LOAD library", "CALL 5"]
    await calls.wire.say(OK, MISSING)
    await calls.until({1: b"OK", 2: b"two", 3: "three is wrong", 4: b"OK", 5: "Function not found"})


async def test_where_they_cannot_be_loaded_the_calls_say_why(calls: Calls) -> None:
    await calls.begin(1, 2)
    await calls.wire.say(MISSING, MISSING)
    assert [await calls.wire.next() for _ in range(5)][2:] == ["LOAD library", "CALL 1", "CALL 2"]
    await calls.wire.say(b"-OOM command not allowed\r\n", MISSING, b"+by another\r\n")
    await calls.until({1: "command not allowed", 2: b"by another"})
    await calls.begin(3)
    assert await calls.wire.next() == "CALL 3"
    await calls.wire.say(OK)
    await calls.until({1: "command not allowed", 2: b"by another", 3: b"OK"})


async def test_calls_that_were_to_be_sent_again_break_with_the_connection(calls: Calls) -> None:
    await sent_three(calls)
    await calls.wire.say(MISSING, MISSING)
    await calls.wire.far.aclose()
    await wait_all_tasks_blocked()
    assert [calls.ended[number] for number in (1, 2, 3)] == ["the server closed the connection"] * 3


async def test_one_that_got_through_between_keeps_its_answer(calls: Calls) -> None:
    """Somebody else loaded the library just before it."""
    await calls.begin(1, 2)
    await calls.wire.say(MISSING, b"-ERR too early\r\n")
    assert [await calls.wire.next() for _ in range(3)] == ["CALL 1", "CALL 2", "LOAD library"]
    assert await calls.wire.next() == "CALL 1"
    await calls.wire.say(OK, OK)
    await calls.until({1: b"OK", 2: "too early"})


async def test_a_caller_who_is_cancelled_waits_for_what_was_sent(calls: Calls) -> None:
    """What came of it is known to him, and its answer is nobody else's. What was not sent is not sent any more."""
    await sent_three(calls)
    for number in (1, 2, 4):
        calls.scopes[number].cancel()
    await wait_all_tasks_blocked()
    assert calls.ended == {}
    await calls.wire.say(b"+one\r\n", b"+two\r\n", b"+three\r\n")
    assert await calls.wire.next() == "CALL 5"
    await calls.wire.say(b"+five\r\n")
    await calls.until({1: b"one", 2: b"two", 3: b"three", 5: b"five"})


async def test_a_call_of_one_who_is_cancelled_already_is_not_sent(calls: Calls) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await calls.link.call(("CALL", 1))
    assert scope.cancelled_caught
    assert not calls.opened


async def test_cancelled_at_any_step_a_call_takes_nobody_elses_answer(calls: Calls) -> None:
    """Each call is answered with its number, whoever leaves at whatever step."""

    async def serve() -> None:
        while not calls.opened:
            await trio.lowlevel.checkpoint()
        while True:
            await calls.wire.say(f"+{await calls.wire.next()}\r\n".encode())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        for step in itertools.count():
            first = 10 * step
            numbers = range(first, first + 5)
            async with trio.open_nursery() as callers:
                for number in numbers:
                    callers.start_soon(calls._call, number)
                for _ in range(step):
                    await trio.lowlevel.checkpoint()
                left = [number for number in numbers[1::2] if number not in calls.ended]
                for number in left:
                    if number in calls.scopes:
                        calls.scopes[number].cancel()
            for number in numbers:
                assert calls.ended.get(number, b"") in (f"CALL {number}".encode(), b""), number
            assert all(number in calls.ended for number in numbers[::2])
            if not left and step:
                break
        nursery.cancel_scope.cancel()
    assert step > 3
    assert len(calls.opened) == 1


async def test_a_link_that_is_through_closes_when_all_is_answered(calls: Calls) -> None:
    await sent_three(calls)
    calls.link.retire()
    for _ in range(5):
        assert not calls.wire.cut
        await calls.wire.say(OK)
        await wait_all_tasks_blocked()
    assert calls.wire.cut
    assert calls.ended == dict.fromkeys(range(1, 6), b"OK")


async def test_a_mistake_of_ours_ends_all_calls_and_is_told(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(wire: Any, answer: object) -> None:
        raise AssertionError("a bug")

    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            calls._nursery = nursery
            monkeypatch.setattr(link_module.PipelinedConnection, "_take", forget)
            await calls.begin(1, 2)
            await calls.wire.say(OK)
    assert calls.ended == {2: "whoever read the answers died of an internal error"}
