"""How long a connection is waited for: what comes too slowly, who says nothing, and who does not read."""

from typing import Any

import pytest
import trio

from jqd.http.config import ListenerConfig
from tests.http.requests import CONFIG, GET, LAST, answered, answers, post, refused
from tests.http.transports import echo, talking


async def test_it_does_not_listen_for_ever(autojump_clock: None) -> None:
    async with talking(echo, ListenerConfig(linger_bytes=1_000)) as talk:
        talk.pipe.feed(LAST)
        await talk.pipe.wait_sent(b"/z ")
        began_s = trio.current_time()
        await talk.wait_over()
        assert trio.current_time() - began_s == pytest.approx(CONFIG.linger_s)
    async with talking(echo, ListenerConfig(linger_bytes=1_000)) as talk:
        talk.pipe.feed(LAST + b"x" * 70_000)
        began_s = trio.current_time()
        await talk.wait_over()
        assert trio.current_time() == began_s


@pytest.mark.parametrize(
    ("data", "after_s"),
    [
        (b"GET / HTTP/1.1\r\nHost", CONFIG.head_s),
        (post(5), CONFIG.body_grace_s),
        (post(5) + b"hi", CONFIG.body_grace_s),
        (post(1 << 20) + b"x" * 10_240, CONFIG.body_grace_s + 10.0),
        (post(1 << 20) + b"x" * 1_000_000, CONFIG.request_s),
        (GET + b"GET", CONFIG.head_s),
    ],
)
async def test_what_comes_too_slowly_is_told_so(autojump_clock: None, data: bytes, after_s: float) -> None:
    async with talking(echo) as talk:
        began_s = trio.current_time()
        talk.pipe.feed(data)
        sent = await talk.pipe.wait_sent(b" 408 ")
        assert after_s <= trio.current_time() - began_s <= after_s + 1.0
        assert answers(sent)[-1][0] == 408
        talk.pipe.feed_eof()
        await talk.wait_over()


async def test_a_body_that_drips_is_too_slow(autojump_clock: None) -> None:
    async with talking(echo) as talk:
        talk.pipe.feed(post(1_000))
        for _ in range(12):
            talk.pipe.feed(b"x")
            await trio.sleep(1)
        talk.pipe.feed_eof()
        await refused(talk, 408)


@pytest.mark.parametrize("first", [b"", GET])
async def test_who_says_nothing_is_let_go_without_a_word(autojump_clock: None, first: bytes) -> None:
    async with talking(echo) as talk:
        began_s = trio.current_time()
        talk.pipe.feed(first)
        sent = await talk.wait_over()
        idle_s = trio.current_time() - began_s
        assert CONFIG.idle_s <= idle_s <= CONFIG.idle_s + CONFIG.linger_s + 1.0
        assert len(answers(sent)) == (1 if first else 0)


async def test_who_does_not_read_is_cut_off(autojump_clock: None) -> None:
    async def big(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(1 << 20)})

    async with talking(big) as talk:
        talk.pipe.reads = False
        began_s = trio.current_time()
        talk.pipe.feed(GET)
        await talk.wait_over()
        due_s = CONFIG.send_s + (1 << 20) / CONFIG.send_rate
        assert due_s <= trio.current_time() - began_s <= due_s + 2.0
        assert talk.pipe.closed == "abort"
    assert talk.log.lines == []


async def test_an_application_that_thinks_has_all_the_time(autojump_clock: None) -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await trio.sleep(10 * CONFIG.idle_s)
        await echo(scope, receive, send)

    async with talking(slow) as talk:
        talk.pipe.feed(LAST)
        talk.pipe.feed_eof()
        assert await answered(talk) == [(200, b"/z ")]
