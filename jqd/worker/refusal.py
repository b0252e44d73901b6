"""The answer to a request that is refused: problem details, in the encoding that its client speaks."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from jqd.domain import media

RETRY_AFTER_S = 5  # how long a daemon is asked to stay away

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Told(msgspec.Struct, frozen=True):
    """Problem details (RFC 9457)."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"


class Refusal(Exception):
    """A request is answered with `status` instead of outcomes."""

    def __init__(self, status: int, title: str, detail: str, *, retry_after_s: int = RETRY_AFTER_S) -> None:
        """`retry_after_s`: sent with a 503."""
        super().__init__(detail)
        self.status, self.title, self.retry_after_s = status, title, retry_after_s


async def refuse(refusal: Refusal, headers: dict[bytes, str], send: Send) -> None:
    """Problem details (RFC 9457) in the encoding the client speaks."""
    told = Told(refusal.title, refusal.status, str(refusal))
    accept = headers.get(b"accept", "")
    as_json = "json" in accept or ("msgpack" not in accept and "json" in headers.get(b"content-type", ""))
    body = msgspec.json.encode(told) if as_json else msgspec.msgpack.encode(told)
    content_type = media.PROBLEM if as_json else media.MSGPACK
    retry_after = refusal.retry_after_s if refusal.status == 503 else None
    await start_response(send, refusal.status, content_type, len(body), retry_after)
    await send({"type": "http.response.body", "body": body})


async def start_response(
    send: Send, status: int, content_type: str, length: int | None, retry_after: int | None = None
) -> None:
    """Begin an answer; `length`: of its body, None when it is not known yet."""
    headers = [(b"content-type", content_type.encode())]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % retry_after))
    await send({"type": "http.response.start", "status": status, "headers": headers})
