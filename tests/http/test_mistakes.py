"""Mistakes of an application: what its client is told, and what the log says."""

from typing import Any

import pytest
import trio

from tests.http.requests import GET, answered, refused
from tests.http.transports import MemoryPipe, talking

SECRET = "a-secret-of-the-request"


def failing(*messages: dict[str, Any]) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)
        raise ValueError(SECRET)

    return app


START = {"type": "http.response.start", "status": 200, "headers": [(b"x", b"y")]}
PIECE = {"type": "http.response.body", "body": b"half", "more_body": True}
BODY = {"type": "http.response.body", "body": b"whole"}


@pytest.mark.parametrize("messages", [(), (START,)])
async def test_a_mistake_before_the_answer_is_a_500_with_the_id_of_its_line(
    autojump_clock: None, messages: tuple[dict[str, Any], ...]
) -> None:
    async with talking(failing(*messages)) as talk:
        talk.pipe.feed(GET.replace(b"\r\n\r\n", b"\r\nAuthorization: " + SECRET.encode() + b"\r\n\r\n") + GET)
        talk.pipe.feed_eof()
        told = await refused(talk, 500)
    (line,) = talk.log.lines
    assert (line["event"], line["error"], line["id"]) == ("http.app_failed", "ValueError", told["id"])
    assert "test_mistakes.py" in str(line["place"])
    assert SECRET not in str(line)
    assert SECRET not in str(told)


@pytest.mark.parametrize("request_", [GET, b"GET / HTTP/1.0\r\n\r\n"])
async def test_a_mistake_within_the_answer_cuts_it(autojump_clock: None, request_: bytes) -> None:
    async with talking(failing(START, PIECE)) as talk:
        talk.pipe.feed(request_)
        sent = await talk.wait_over()
        assert b"half" in sent
        assert b"0\r\n\r\n" not in sent
        assert (talk.pipe.finished, talk.pipe.closed) == (False, "abort")


async def test_a_mistake_behind_the_answer_leaves_it_whole(autojump_clock: None) -> None:
    async with talking(failing(START, BODY)) as talk:
        talk.pipe.feed(GET)
        talk.pipe.feed_eof()
        assert await answered(talk) == [(200, b"whole")]
        assert talk.pipe.closed == "close"


WRONG: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "start only": [START],
    "no start": [BODY],
    "header injection": [{**START, "headers": [(b"location", b"/\r\nset-cookie: a=b")]}, BODY],
    "header injection by name": [{**START, "headers": [(b"a: b\r\nc", b"d")]}, BODY],
    "header with a bare LF": [{**START, "headers": [(b"a", b"b\nc: d")]}, BODY],
    "too long": [{**START, "headers": [(b"content-length", b"3")]}, BODY],
    "too short": [{**START, "headers": [(b"content-length", b"30")]}, BODY],
    "no length": [{**START, "headers": [(b"content-length", b"x")]}, BODY],
    "no bytes": [START, {**BODY, "body": "text"}],
    "no message": [{"type": "websocket.accept"}],
}


@pytest.mark.parametrize("name", WRONG)
async def test_an_answer_that_is_none(autojump_clock: None, name: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in WRONG[name]:
            await send(message)

    async with talking(app) as talk:
        talk.pipe.feed(GET)
        talk.pipe.feed_eof()
        told = await refused(talk, 500)
        assert b"set-cookie" not in talk.pipe.sent
    (line,) = talk.log.lines
    assert line["id"] == told["id"]


async def test_an_answer_is_given_once(autojump_clock: None) -> None:
    for extra in (START, BODY):
        async with talking(failing(START, BODY, extra)) as talk:
            talk.pipe.feed(GET)
            talk.pipe.feed_eof()
            assert await answered(talk) == [(200, b"whole")]


async def test_exceptions_of_several_tasks_are_a_mistake_like_any_other(autojump_clock: None) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def fail() -> None:
            raise KeyError(SECRET)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            nursery.start_soon(trio.sleep_forever)

    async with talking(app, pipe=MemoryPipe()) as talk:
        talk.pipe.feed(GET)
        talk.pipe.feed_eof()
        await refused(talk, 500)
    assert [line["error"] for line in talk.log.lines] == ["KeyError"]


async def test_the_last_word_on_a_head_has_no_body(autojump_clock: None) -> None:
    async with talking(failing()) as talk:
        talk.pipe.feed(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
        talk.pipe.feed_eof()
        sent = await talk.wait_over()
        assert sent.startswith(b"HTTP/1.1 500 ")
        assert sent.endswith(b"\r\n\r\n")
        assert sent.count(b"\r\n\r\n") == 1
