"""What an application gets and returns: the request and the response. Also the limit of memory for all bodies
together."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec
import trio
from msgspec import Struct

from jqd.domain import json_ext, media
from jqd.domain.errors import JqdError
from jqd.domain.media import Language

SOME_BYTES = 4_096  # a body up to this size is small: nearly all are one job
PUSHES, REPORTS = 12 / 16, 15 / 16  # shares of the budget up to which larger bodies of each kind are taken
AGAIN_S = 1  # the `Retry-After` if there is no room for a body: most others are answered by then
_msgpack_encoder = msgspec.msgpack.Encoder()
_json_encoder = msgspec.json.Encoder()

Owner = tuple[str, bool]
"""(name of a request's owner, whether the request is a worker's report). The owner is a tenant or an address."""


class Refused(JqdError):
    """A request that the server itself refuses. It is answered with `status`, and the connection is closed."""

    def __init__(self, status: int, detail: str, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s


class Foreign(Refused):
    """The refusal of a request that a foreign web page may have sent; its body is not read."""


@dataclass(slots=True, eq=False)
class RequestHead:
    """The head of a request, for the application. Requests with equal heads share one object."""

    method: str
    path: str
    """The decoded path."""
    raw_path: str
    """The path as the client sent it, percent-encoded."""
    query: bytes
    headers: Mapping[str, str]
    """Name in lower case → value. If a name occurs twice, it has the last value."""
    admission: Any = None
    """Any value that the application derives from this head, and wants to find again for later requests with an equal
    head."""


class Request:
    """A request whose head has arrived. Its body is read when it is asked for, once."""

    whole = False
    """Whether the body was read to its end."""
    held_bytes = 0
    """How many bytes of the `BodyBudget` the body uses."""
    owner: Owner | None = None
    """The owner for which `held_bytes` are counted; only set for bodies above SOME_BYTES."""
    packed: bytes | None = None
    """The body as MessagePack, if the application converted it in a thread."""
    plain: Mapping[str, str] = MappingProxyType({})
    """Media type of the body ("" for none) → the type as which the body is read. Set by the application."""
    hurried = False
    """Whether the application must not wait for anything, because the client has closed its sending side. Set by the
    application."""
    held_s = 0.0
    """The longest processor time (s) for which reading the body blocked the event loop at once. Set by the
    application."""
    breathe: Callable[[], Awaitable[None]] = staticmethod(trio.lowlevel.checkpoint)
    """A function to await between two steps of long work, so that other tasks run."""

    def __init__(self, heading: RequestHead, peer: str | None = None, body: bytes = b"") -> None:
        """`peer`: the client's address; None: the request did not come by the network. `body`: the body, if it was read
        already."""
        self.heading = heading
        self.method, self.path, self.headers = heading.method, heading.path, heading.headers
        self.peer = peer
        self.body = body

    def read_nowait(self) -> bytes:
        """Return what has already arrived of the body and was not read; it may be empty."""
        return b""

    async def read(self) -> bytes | None:
        """Wait for the next part of the body, and return it; None if the client left before the end.

        If a body arrives too slowly, the server itself answers, and cancels the application.
        """
        await trio.lowlevel.checkpoint()
        return None

    async def wait_left(self) -> None:
        """Wait until the client closes its sending side. Most such clients have left, but some still read. Must only be
        called after the whole body was read."""
        await trio.sleep_forever()

    def while_there(self) -> AbstractContextManager[trio.CancelScope]:
        """Return a context manager that cancels its `with` block about a second after the client has left. Quick
        requests pay nothing for it, because connections are checked only now and then."""
        return trio.CancelScope()

    def wait_s(self, asked_s: float, max_s: float) -> float:
        """Return for how many seconds the request may wait: `asked_s`, but at least 0 and at most `max_s`; 0 if the
        request is `hurried`."""
        return 0.0 if self.hurried else min(max(asked_s, 0.0), max_s)

    def media_type(self) -> str:
        """Return the media type in the Content-Type header, without parameters and in lower case; empty if there is
        none. If the route reads bodies of this type as another one (`self.plain`), return that one."""
        kind = media.bare(self.headers.get("content-type", ""))
        return self.plain.get(kind, kind)

    def answer_language(self, otherwise: Language = "json") -> Language:
        """Return the format that the client wants: by Accept, else by its Content-Type, else `otherwise`."""
        headers = self.headers
        return media.answer_language(headers.get("content-type", ""), headers.get("accept", ""), otherwise)


class BodyBudget:
    """The memory for the bodies of all requests together. A request for which there is no memory is refused.

    Small bodies may use all of it, larger reports of workers 15/16, and larger pushes 12/16, so that pushes cannot keep
    out reports. While several owners send requests, larger bodies of one owner may wait long for processing. So
    together they may take at most half of what the other owners leave. But one body of each owner is always accepted if
    there is memory.
    """

    def __init__(self, bytes_max: int, whose: Callable[["Request"], Owner], shared: Callable[[], bool]) -> None:
        """`whose`: a function that returns a request's owner. `shared`: a function that returns whether several owners
        send requests."""
        self.bytes, self.bytes_max = 0, bytes_max
        self._whose, self._shared = whose, shared
        self._owners: Counter[Owner] = Counter()

    async def read(self, request: Request, bytes_max: int) -> bytes | None:
        """Read and return the whole body; None if the client left before its end. The body is counted until `release`.

        Raises Refused 413 for more than `bytes_max`, 503 if there is no memory for it.
        """
        piece: bytes | None = request.read_nowait()
        pieces: list[bytes] = []
        while piece is not None:
            if request.held_bytes + len(piece) > bytes_max:
                raise too_large(bytes_max)
            self.take(request, len(piece))
            pieces.append(piece)
            if request.whole:
                return b"".join(pieces)
            piece = await request.read()
        return None

    def take(self, request: Request, size: int) -> None:
        """Count `size` more bytes for a request. Raises Refused 503 if there is no memory for them."""
        held, most = request.held_bytes, self.bytes_max
        if held + size > SOME_BYTES:
            if request.owner is None:
                request.owner = self._whose(request)
                self._owners[request.owner] += held
            own, most = self._owners[request.owner], int(most * (REPORTS if request.owner[1] else PUSHES))
            if own > held and self._shared():
                most = min(most, self.bytes + (most - self.bytes - own) // 2)
        if self.bytes + size > most:
            raise Refused(503, "too many bodies are being read already; try again", AGAIN_S)
        self._add(request, size)

    def release(self, request: Request) -> None:
        """Drop a request's body and count it no longer. To be called before the answer is sent, which may take long."""
        request.body, request.packed = b"", None
        self._add(request, -request.held_bytes)

    def _add(self, request: Request, size: int) -> None:
        self.bytes += size
        request.held_bytes += size
        if request.owner is not None:
            self._owners[request.owner] += size
            if not self._owners[request.owner]:
                del self._owners[request.owner]


def too_large(bytes_max: int) -> Refused:
    """Return the error for a body that is larger than its route allows."""
    return Refused(413, f"the body has more than {bytes_max} bytes; push smaller jobs, or fewer in one request")


Write = Callable[[bytes], Awaitable[bool]]
"""A function that sends a part of a body, which may be empty. It returns False if no more is to be sent: the client has
left, or the server is shutting down."""
Stream = Callable[[Write], Awaitable[str | None]]
"""A function that writes a body. It returns None, or why it could not write the whole body. In this case the connection
is closed, so that the client notices."""


class Response(Struct, gc=False):
    """A response. The server adds its Content-Length."""

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: dict[str, str] = {}
    """Name in lower case → value. `connection: close` closes the connection after the response."""
    lost: Sequence[Callable[[], None]] = ()
    """Functions to call if the client did not get the response."""
    stream: Stream | None = None
    """Writes the body, if `body` is not used. It must return soon when `Write` returns False."""

    def fields(self) -> list[tuple[str, str]]:
        """Return all headers, including the Content-Type."""
        fields = [*self.headers.items()]
        return [*fields, ("content-type", self.content_type)] if self.content_type else fields


def answer(status: int, value: Any, language: Language, headers: dict[str, str] | None = None) -> Response:
    """Return a response with `value` encoded. A `msgspec.Raw` in the value is MessagePack; `json_ext.show` says how it
    becomes JSON."""
    if language == "msgpack":
        return Response(status, _msgpack_encoder.encode(value), media.MSGPACK, headers or {})
    return Response(status, _json_encoder.encode(json_ext.show(value)), media.JSON, headers or {})
