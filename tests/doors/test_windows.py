"""Bodies over HTTP/2: no more comes than is read, also of a request in line, and nobody is called too slow for that."""

import tracemalloc
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from jqd.doors import Answer, Asked, to_asgi
from jqd.doors.classic import UNREAD_BYTES
from tests.doors.streams import LEAN, Talk, talking


@asynccontextmanager
async def waiting_in_line(clock: trio.testing.MockClock, wide: int) -> AsyncIterator[Talk]:
    """The clock stands: streams 1 to 7 are under way, their bodies not whole, somebody else asks, and 9 waits."""
    async with talking(wide=wide) as talk:
        for stream in (1, 3, 5, 7):
            talk.ask(stream, "/b", method="POST", body=b"x", end=False)
        await talk.turn()
        talk.house.lines.requests.others.note("192.0.2.99")
        talk.ask(9, "/c", method="POST", end=False)
        await talk.turn()
        yield talk


@pytest.mark.parametrize("wide", [0, 1])
async def test_of_a_body_in_line_no_more_comes_than_its_window(mock_clock: trio.testing.MockClock, wide: int) -> None:
    """64 MiB of a request that waited for its turn lay in memory, and nobody had looked at its token."""
    async with waiting_in_line(mock_clock, wide) as talk:
        sent = 0
        for _ in range(4):
            sent += talk.send_all_it_may(9, bytes(16_000))
            await talk.turn()
        assert UNREAD_BYTES - 4 <= sent <= UNREAD_BYTES, "the connection's window has less, without room for more"
        assert talk.wide.value == 0, "it is lent while the connection lasts"
        if wide:  # the others have room of their own
            begun = talk.send_all_it_may(1, bytes(16_000))
            await talk.turn()
            begun += talk.send_all_it_may(1, bytes(16_000))
            assert begun > UNREAD_BYTES
        for _ in range(60):
            mock_clock.jump(0.1)  # its turn comes
            await talk.turn()
            sent += talk.send_all_it_may(9, bytes(16_000), (1 << 20) - sent)
        talk.client.end_stream(9)
        for _ in range(60):
            await talk.turn()
        assert talk.bodies[9] == b"/c " + bytes(sent)
        assert sent >= 1 << 20
        talk.pipe.feed_eof()
        await talk.wait_over()
        assert talk.wide.value == wide
    assert talk.log.lines == []


async def test_a_body_in_line_is_kept_as_its_bytes(mock_clock: trio.testing.MockClock) -> None:
    """A message for each frame of a byte, or of none, is far more than its bytes."""
    async with waiting_in_line(mock_clock, 1) as talk:
        tracemalloc.start()
        try:
            for byte in (b"", b"x"):
                for _ in range(10):
                    for _ in range(200):
                        talk.client.send_data(9, byte)
                    await talk.turn()
            kept_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept_bytes < 256 << 10, "of 4,000 messages"


async def test_who_is_refused_unread_is_heard_to_its_end(autojump_clock: None) -> None:
    """Its window was shut when it was refused, and reset streams hold nothing of the connection's."""
    async with talking(wide=0) as talk:
        for stream in range(1, 32, 2):
            talk.ask(stream, "/refuse", method="POST", end=False)
            talk.send_all_it_may(stream, bytes(16_000))
            if stream % 4 == 1:
                talk.client.reset_stream(stream)
            await talk.turn()
            if stream % 4 == 3:
                assert (talk.statuses[stream], talk.bodies[stream]) == ("413", b"too large")
                assert stream in talk.resets or talk.send_all_it_may(stream, bytes(16_000), 1)
    assert talk.log.lines == []


async def test_who_waits_in_line_is_not_too_slow(autojump_clock: None) -> None:
    """Its time begins when somebody reads what it sends."""
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": [], "http_version": "2"}
    sent: list[MutableMapping[str, Any]] = []
    slow: list[float] = []

    async def later(asked: Asked) -> Answer | None:
        await trio.sleep(LEAN.body_grace_s + LEAN.request_s)
        return Answer(201, (), await asked.read() or b"")

    async def receive() -> dict[str, object]:
        await trio.sleep(slow.pop())
        return {"type": "http.request", "body": b"jobs", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    for waits_s in (1.0, LEAN.body_grace_s + 1):
        slow.append(waits_s)
        await to_asgi(later, LEAN)(scope, receive, send)
    assert [message["status"] for message in sent if "status" in message] == [201, 408]


async def test_what_came_whole_as_its_time_ran_out_is_not_taken_in_silence(mock_clock: trio.testing.MockClock) -> None:
    """Its client is told that nothing was taken."""
    taken: list[bytes] = []

    async def take(asked: Asked) -> Answer | None:
        body = await asked.read()
        taken.append(body or b"")
        await trio.lowlevel.checkpoint()  # as who waits for the store
        return Answer(201)

    async def receive() -> dict[str, object]:
        mock_clock.jump(LEAN.request_s)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return {"type": "http.request", "body": b"jobs", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    sent: list[MutableMapping[str, Any]] = []
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": [], "http_version": "2"}
    await to_asgi(take, LEAN)(scope, receive, send)
    assert (sent[0]["status"], taken) == (408, [])
