"""One connection with a clock that jumps: order, ends, deadlines, and what an application may do wrong."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from jqd.http.connection import KEPT_BYTES
from jqd.http.exchange import AHEAD_BYTES, Exchange
from jqd.http.request import Response
from tests.http.requests import GET, LAST, answered, answers, post, refused
from tests.http.transports import PATIENCE_S, echo, talking


async def test_requests_that_come_at_once_are_answered_in_order(autojump_clock: None) -> None:
    async with talking(echo) as talk:
        talk.pipe.feed(GET + post(5) + b"hello" + b"\r\n" + post(0) + LAST)
        assert await answered(talk) == [(200, b"/a "), (200, b"/p hello"), (200, b"/p "), (200, b"/z ")]
        assert talk.pipe.finished


async def test_requests_that_come_byte_by_byte_too(autojump_clock: None) -> None:
    async with talking(echo) as talk:
        chunks = b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n"
        for byte in chunks + GET + post(2) + b"ok":
            talk.pipe.feed(bytes([byte]))
            await wait_all_tasks_blocked()
        talk.pipe.feed_eof()
        assert await answered(talk) == [(200, b"/c hi!"), (200, b"/a "), (200, b"/p ok")]


async def test_what_an_application_made_of_a_head_comes_again_with_the_same_head_only(autojump_clock: None) -> None:
    """A head is kept by all of its bytes, for one door; a longer one is not kept."""
    seen: list[tuple[str, object]] = []

    async def judge(exchange: Exchange) -> Response:
        heading = exchange.heading
        seen.append((heading.path, heading.admission))
        heading.admission = heading.path + heading.headers.get("x-a", "")[:1]
        return Response(200)

    other, long = GET[:-2] + b"X-A: 1\r\n\r\n", GET[:-2] + b"X-A: " + b"2" * KEPT_BYTES + b"\r\n\r\n"
    async with talking(echo) as talk:
        talk.house.app = judge
        talk.pipe.feed(GET + other + GET + long + other + long + LAST)
        await answered(talk)
    assert [admission for _, admission in seen] == [None, None, "/a", None, "/a1", None, None]
    async with talking(echo) as talk:
        talk.house.app = judge
        talk.pipe.feed(GET + LAST)
        await answered(talk)
    assert seen[-2:] == [("/a", None), ("/z", None)]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (LAST, b"connection: close"),
        (b"GET / HTTP/1.0\r\n\r\n", b"connection: close"),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"connection: keep-alive"),
        (GET, None),
    ],
)
async def test_who_does_not_keep_it_sees_it_closed_at_once(
    autojump_clock: None, request_: bytes, says: bytes | None
) -> None:
    async with talking(echo) as talk:
        talk.pipe.feed(request_)
        sent = await talk.pipe.wait_sent(b"\r\n\r\n")
        assert (says or b"connection:") in sent if says else b"connection:" not in sent
        await wait_all_tasks_blocked()
        assert talk.pipe.finished is (says == b"connection: close")


@pytest.mark.parametrize("stray", [b"\r\n", b"\r\nGET / HTTP/1.1\r\n", b"\0" * 200_000])
async def test_what_comes_behind_the_last_request_takes_no_answer_back(autojump_clock: None, stray: bytes) -> None:
    """The kernel drops what it has not delivered when a socket is closed with something unread."""
    async with talking(echo) as talk:
        talk.pipe.feed(post(2, b"Connection: close\r\n") + b"ok" + stray)
        await wait_all_tasks_blocked()
        talk.pipe.feed(stray)
        await wait_all_tasks_blocked()
        assert talk.pipe.closed != "abort"
        assert not talk.over.is_set(), "it listens on"
        talk.pipe.feed_eof()
        assert await answered(talk) == [(200, b"/p ok")]
        assert talk.pipe.closed == "close"


async def test_a_head_has_no_body_and_nothing_has_none(autojump_clock: None) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        status = int(scope["path"][1:])
        await send({"type": "http.response.start", "status": status, "headers": [(b"Content-Length", b"5")]})
        await send({"type": "http.response.body", "body": b"hello" if status == 200 else b""})

    async with talking(app) as talk:
        talk.pipe.feed(b"HEAD /200 HTTP/1.1\r\nHost: a\r\n\r\n")
        sent = await talk.pipe.wait_sent(b"\r\n\r\n")
        assert sent.endswith(b"content-length: 5\r\n\r\n")
        talk.pipe.sent.clear()
        talk.pipe.feed(b"GET /204 HTTP/1.1\r\nHost: a\r\n\r\n")
        sent = await talk.pipe.wait_sent(b"\r\n\r\n")
        assert sent.startswith(b"HTTP/1.1 204 No Content\r\ndate: ")
        assert b"content-length" not in sent


async def streams(scope: Any, receive: Any, send: Any) -> None:
    """Three pieces, of a length nobody knows."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in (b"one", b"", b"two"):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


async def test_a_stream_ends_with_its_last_chunk_or_with_the_connection(autojump_clock: None) -> None:
    async with talking(streams) as talk:
        talk.pipe.feed(GET)
        sent = await talk.pipe.wait_sent(b"0\r\n\r\n")
        assert sent.endswith(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
        talk.pipe.sent.clear()
        talk.pipe.feed(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
        sent = await talk.pipe.wait_sent(b"\r\n\r\n")
        assert sent.endswith(b"transfer-encoding: chunked\r\n\r\n")
        talk.pipe.sent.clear()
        talk.pipe.feed(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        talk.pipe.feed_eof()
        sent = await talk.wait_over()
        assert sent.endswith(b"connection: close\r\n\r\nonetwo")


async def test_a_body_is_asked_for_when_somebody_reads_it(autojump_clock: None) -> None:
    async with talking(echo) as talk:
        talk.pipe.feed(post(2, b"Expect: 100-continue\r\n"))
        assert await talk.pipe.wait_sent(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        talk.pipe.feed(b"ok" + post(2, b"Expect: 100-continue\r\n") + b"no")
        await talk.pipe.wait_sent(b"/p no")
        assert talk.pipe.sent.count(b"100 Continue") == 1, "who did not wait needs no word"


async def refuses(scope: Any, receive: Any, send: Any) -> None:
    """Answers by the head alone."""
    await send({"type": "http.response.start", "status": 413, "headers": []})
    await send({"type": "http.response.body", "body": b"too large"})


async def test_a_body_that_nobody_wants_is_not_asked_for(autojump_clock: None) -> None:
    async with talking(refuses) as talk:
        talk.pipe.feed(post(1 << 20, b"Expect: 100-continue\r\n"))
        talk.pipe.feed_eof()
        sent = await talk.wait_over()
        assert answers(sent) == [(413, b"too large")]
        assert b"connection: close" in sent


async def test_a_refusal_can_be_read_while_the_body_still_comes(autojump_clock: None) -> None:
    async with talking(refuses) as talk:
        talk.pipe.feed(post(20 << 20) + b"x" * 100_000)
        await talk.pipe.wait_sent(b"too large")
        for _ in range(200):
            talk.pipe.feed(b"x" * 100_000)
            await wait_all_tasks_blocked()
        assert not talk.over.is_set()
        talk.pipe.feed_eof()
        await talk.wait_over()
        assert talk.pipe.closed == "close"


async def test_what_is_no_request_is_told_so(autojump_clock: None) -> None:
    for data, status in (
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"\x16\x03", 400),
    ):
        async with talking(echo) as talk:
            talk.pipe.feed(data)
            await refused(talk, status)
    async with talking(echo) as talk:
        talk.pipe.feed(b"GET /" + b"a" * 30_000)
        await refused(talk, 414)
    async with talking(echo) as talk:
        talk.pipe.feed(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5_000)
        await refused(talk, 431)
    async with talking(echo) as talk:
        talk.pipe.feed(GET + b"nonsense\r\n\r\n" + GET)
        assert [status for status, _ in await answered(talk)] == [200, 400]


async def test_a_body_that_is_none(autojump_clock: None) -> None:
    async with talking(echo) as talk:
        talk.pipe.feed(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab")
        await refused(talk, 400)
    async with talking(echo) as talk:
        talk.pipe.feed(post(5) + b"hi")
        talk.pipe.feed_eof()
        assert "before it was whole" in (await refused(talk, 400))["detail"]
    async with talking(echo) as talk:
        talk.pipe.feed(b"GET / HT")
        talk.pipe.feed_eof()
        await refused(talk, 400)


@pytest.mark.parametrize("how", ["feed_eof", "reset"])
async def test_an_application_hears_that_its_client_has_gone(autojump_clock: None, how: str) -> None:
    heard = trio.Event()

    async def poll(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        assert (await receive())["type"] == "http.disconnect"
        heard.set()

    async with talking(poll) as talk:
        talk.pipe.feed(GET)
        await wait_all_tasks_blocked()
        getattr(talk.pipe, how)()
        with trio.fail_after(PATIENCE_S):
            await heard.wait()
        assert await talk.wait_over() == b""
    assert talk.log.lines == []


@pytest.mark.parametrize("how", ["read", "reset", "stalled"])
async def test_an_application_is_told_of_an_answer_that_was_lost(autojump_clock: None, how: str) -> None:
    lost: list[str] = []

    async def give(exchange: Exchange) -> Response:
        await trio.sleep(1)
        return Response(200, body=b"x" * 100_000, lost=(lambda: lost.append(exchange.heading.path),))

    async with talking(echo) as talk:
        talk.house.app = give
        talk.pipe.feed(LAST)
        await wait_all_tasks_blocked()
        if how == "reset":
            talk.pipe.reset()
        talk.pipe.reads = how != "stalled"
        await talk.wait_over()
    assert lost == ["/z"] * (how != "read")


async def test_a_request_that_comes_meanwhile_waits(autojump_clock: None) -> None:
    async def both(scope: Any, receive: Any, send: Any) -> None:
        async with trio.open_nursery() as nursery:
            await receive()
            nursery.start_soon(receive)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async with talking(both) as talk:
        talk.pipe.feed(GET)
        await wait_all_tasks_blocked()
        talk.pipe.feed(LAST)
        talk.pipe.feed_eof()
        assert await answered(talk) == [(200, b"/a"), (200, b"/z")]


async def test_who_leaves_in_the_middle_of_an_answer_is_no_mistake(autojump_clock: None) -> None:
    async with talking(echo) as talk:
        talk.pipe.reads = False
        talk.pipe.feed(GET)
        await wait_all_tasks_blocked()
        talk.pipe.reset()
        await talk.wait_over()
    assert talk.log.lines == []


async def test_many_requests_at_once_do_not_have_the_loop_for_themselves(autojump_clock: None) -> None:
    seen = []

    async def quick(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with talking(quick) as talk:
        talk.pipe.feed(GET * 100)
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        assert 0 < len(seen) < 50
        await wait_all_tasks_blocked()
        assert len(seen) == 100


async def test_who_sends_ahead_without_an_end_has_to_wait(autojump_clock: None) -> None:
    async def poll(scope: Any, receive: Any, send: Any) -> None:
        async with trio.open_nursery() as nursery:
            await receive()
            nursery.start_soon(receive)
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    requests = 3 * AHEAD_BYTES // len(GET)
    async with talking(poll) as talk:
        talk.pipe.feed(GET)
        await wait_all_tasks_blocked()
        talk.pipe.feed(GET * requests)
        await wait_all_tasks_blocked()
        assert len(talk.connection._wire.buffer) <= AHEAD_BYTES
        talk.pipe.feed_eof()
        sent = await talk.wait_over()
        assert sent.count(b" 204 ") == requests + 1


async def test_an_answer_to_nobody_goes_nowhere(autojump_clock: None) -> None:
    async with talking(streams) as talk:
        talk.pipe.reads = False
        talk.pipe.feed(GET)
        await wait_all_tasks_blocked()
        talk.pipe.reset()
        await talk.wait_over()
        assert not talk.pipe.sent
    assert talk.log.lines == []
