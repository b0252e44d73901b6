"""Reads the body of a request to a worker, within limits, and decodes a batch. Answers bad requests with problem
details."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
import trio

from jqd.domain import media
from jqd.worker.wire import BatchIn, Codec

DIGITS_MAX = 18  # of a Content-Length: more is above any limit, and Python cannot parse thousands of digits
RETRY_AFTER_S = 5  # how long a daemon is asked to stay away

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class RefusalAnswer(msgspec.Struct, frozen=True):
    title: str
    status: int
    detail: str
    type: str = "about:blank"


class Refusal(Exception):
    """A request that is refused with an HTTP error. The message says why."""

    def __init__(self, status: int, title: str, detail: str, *, retry_after_s: int = RETRY_AFTER_S) -> None:
        """`retry_after_s`: value of the Retry-After header, sent only with status 503."""
        super().__init__(detail)
        self.status, self.title, self.retry_after_s = status, title, retry_after_s


class Body:
    """Collects the body of a request. Raises Refusal if it is larger than a limit, as anybody may send a body before
    its signature is checked."""

    def __init__(self, length: str, bytes_max: int, too_large: str) -> None:
        """`length`: the Content-Length header, or empty. `too_large`: the error message for a larger body."""
        self._left, self._chunks, self._too_large = bytes_max, list[bytes](), too_large
        if length.isdecimal() and (len(length) > DIGITS_MAX or int(length) > bytes_max):
            raise Refusal(413, "Batch too large", too_large)

    def add(self, chunk: bytes) -> None:
        self._left -= len(chunk)
        if self._left < 0:
            raise Refusal(413, "Batch too large", self._too_large)
        self._chunks.append(chunk)

    def whole(self) -> bytes:
        return b"".join(self._chunks)


async def refuse(refusal: Refusal, headers: dict[bytes, str], send: Send) -> None:
    refused = RefusalAnswer(refusal.title, refusal.status, str(refusal))
    accept = headers.get(b"accept", "")
    as_json = "json" in accept or ("msgpack" not in accept and "json" in headers.get(b"content-type", ""))
    body = msgspec.json.encode(refused) if as_json else msgspec.msgpack.encode(refused)
    content_type = media.PROBLEM if as_json else media.MSGPACK
    retry_after = refusal.retry_after_s if refusal.status == 503 else None
    await start_response(send, refusal.status, content_type, len(body), retry_after)
    await send({"type": "http.response.body", "body": body})


async def start_response(
    send: Send, status: int, content_type: str, length: int | None, retry_after: int | None = None
) -> None:
    """Send status and headers of an answer. `length`: size of the body; None: not known yet."""
    headers = [(b"content-type", content_type.encode())]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % retry_after))
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def read_body(headers: dict[bytes, str], receive: Receive, *, bytes_max: int, timeout_s: float) -> bytes | None:
    """Read the whole body of a request; None: the client disconnected. Raises Refusal if the body has more than
    `bytes_max`, or is not complete after `timeout_s`."""
    too_large = f"this worker takes batches of up to {bytes_max} bytes; send fewer jobs"
    body = Body(headers.get(b"content-length", ""), bytes_max, too_large)
    with trio.move_on_after(timeout_s):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body.add(message.get("body", b""))
            if not message.get("more_body", False):
                return body.whole()
    raise Refusal(408, "Body too slow", f"the batch was not complete after {timeout_s:g} s; send it again")


def parse_batch(codec: Codec, body: bytes) -> BatchIn:
    """Decode a body as a batch. Raises Refusal if it is not one."""
    try:
        return codec.decode_batch(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        detail = (
            f"the body is no batch of jobs ({error}); it is a map with `jobs`, a list of maps with `job_id` and `name`"
        )
        raise Refusal(400, "Batch not understood", detail) from None
