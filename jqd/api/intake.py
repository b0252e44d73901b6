"""Requests in from ASGI, answers out: the one place that reads bodies.

A body that stalls, drips, is too large, lies about its length or is cut off ends here, and never reaches a component.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import trio

from jqd.api.message import Request, Response
from jqd.api.problems import RETRY_AFTER_S, Problem

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

HEADERS_MAX = 100  # more is no client of ours
HEADER_BYTES_MAX = 16_384  # of all of them, as common servers have it
TARGET_LENGTH_MAX = 16_384  # path and query: a list's cursor has a place in each queue, 9 KB for 1,000
LENGTH_DIGITS_MAX = 18  # of a Content-Length: more is no length, whatever the limit


class Disconnected(Exception):
    """The client went away before its request was whole: nobody is left to answer."""


class Room:
    """The memory that bodies of requests may take, all together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max

    @contextmanager
    def part(self) -> Iterator[Callable[[int], None]]:
        """One request's part: call it with the bytes that came. It raises Problem 503 when there is no room."""
        mine = 0

        def take(size: int) -> None:
            nonlocal mine
            if self.bytes + size > self._bytes_max:
                raise Problem(503, "too many bodies are being read already; try again", retry_after_s=RETRY_AFTER_S)
            mine += size
            self.bytes += size

        try:
            yield take
        finally:
            self.bytes -= mine


def head_of(scope: Any) -> Request:
    """What an ASGI http scope says; the body is still to be read."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    client = scope.get("client")
    return Request(
        scope["method"], scope["path"], scope["query_string"], headers, b"", str(client[0]) if client else None
    )


async def read_request(
    scope: Any, receive: Receive, take: Callable[[int], None], *, bytes_max: int, within_s: float
) -> Request:
    """The whole request; `take` is told of every piece. A cut body is no body.

    Raises Problem 400, 408, 413, 414, 415, 431, 503, or Disconnected.
    """
    request = head_of(scope)
    check_head(request, scope["headers"], len(scope["path"]) + len(scope["query_string"]), bytes_max)
    body: bytes | None = None
    with trio.move_on_after(within_s):
        body = await _read_body(receive, take, bytes_max)
    if body is None:
        raise Problem(408, f"the request was not complete after {within_s:g} s; nothing was taken")
    declared = request.headers.get("content-length")
    if declared is not None and declared.isdecimal() and int(declared) != len(body):
        raise Problem(400, f"the body has {len(body)} bytes, Content-Length said {declared}; nothing was taken")
    return replace(request, body=body)


def check_head(request: Request, headers: Sequence[tuple[bytes, bytes]], target_length: int, bytes_max: int) -> None:
    """Refuse by the head what need not be read. `headers`: as they came. Raises Problem 413, 414, 415, 431."""
    if target_length > TARGET_LENGTH_MAX:
        raise Problem(414, f"path and query have {target_length} characters; a request may have {TARGET_LENGTH_MAX}")
    header_bytes = sum(len(name) + len(value) for name, value in headers)
    if len(headers) > HEADERS_MAX or header_bytes > HEADER_BYTES_MAX:
        raise Problem(
            431, f"{len(headers)} headers of {header_bytes} bytes; there may be {HEADERS_MAX} of {HEADER_BYTES_MAX}"
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > LENGTH_DIGITS_MAX or int(declared) > bytes_max):
        raise _too_large(bytes_max)
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise Problem(415, f"Content-Encoding {encoding[:32]!r} is not taken; send the body as it is")


def raw_path_of(scope: Any) -> str:
    """The path as it came."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")


async def wait_left(receive: Receive) -> None:
    """Return when the client sends no more, behind its whole request."""
    while (await receive())["type"] != "http.disconnect":
        continue  # a server may repeat the end of the body


async def send_response(send: Send, response: Response) -> None:
    """Send a whole answer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    if response.content_type:
        headers.append((b"content-type", response.content_type.encode("latin-1")))
    headers.append((b"content-length", str(len(response.body)).encode("latin-1")))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


async def _read_body(receive: Receive, take: Callable[[int], None], bytes_max: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > bytes_max:
            raise _too_large(bytes_max)
        take(len(chunk))
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks)


def _too_large(bytes_max: int) -> Problem:
    return Problem(413, f"the body has more than {bytes_max} bytes; push smaller jobs, or fewer in one request")
