"""The request that an application gets, the response that it returns, and the memory limit for all bodies together."""

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

SOME_BYTES = 4_096  # a body up to this size is small. It may have a hundred wrong jobs, as much work as 2,000 requests
PUSHES, REPORTS = 12 / 16, 15 / 16  # shares of the budget up to which larger bodies of each kind are taken
AGAIN_S = 1  # the `Retry-After` if there is no room for a body: most others are answered by then
_msgpack_encoder = msgspec.msgpack.Encoder()
_json_encoder = msgspec.json.Encoder()

Owner = tuple[str, bool]
"""(owner of a request, whether it is a worker's report)."""


class Refused(JqdError):
    """A request that the server itself refuses: it is answered with `status`, and the connection is closed."""

    def __init__(self, status: int, detail: str, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s


class Foreign(Refused):
    """A request that a foreign web page may have sent, refused before its body is read."""


@dataclass(slots=True, eq=False)
class RequestHead:
    """The head of a request, for the application. Requests with the same head share one object."""

    method: str
    path: str
    """The decoded path."""
    raw_path: str
    """The path as the client sent it, percent-encoded."""
    query: bytes
    headers: Mapping[str, str]
    """Name in lower case → value; if a name occurs twice, the last one."""
    admission: Any = None
    """A place where the application keeps what follows from this head, for later requests with it."""


class Request:
    """One request whose head has come. Its body is read on demand, once."""

    whole = False
    """Whether the body was read to its end."""
    patient = False
    """Whether the request may wait a bit longer: it waited behind others of its owner, while other owners ask, too."""
    held_bytes = 0
    """Bytes that the body takes of the `BodyBudget`."""
    owner: Owner | None = None
    """The owner of these bytes; set for bodies above SOME_BYTES."""
    packed: bytes | None = None
    """The body as MessagePack, if the application converted it in a thread."""
    plain: Mapping[str, str] = MappingProxyType({})
    """Media type of the body, "" for none → the type that it counts as; set by the application."""
    hurried = False
    """Whether the application must not wait, as the client has closed its side; set by the application."""
    held_s = 0.0
    """Processor time for which reading the body held the event loop in one piece; set by the application."""
    breathe: Callable[[], Awaitable[None]] = staticmethod(trio.lowlevel.checkpoint)
    """To be awaited between two pieces of work, so that other tasks run."""

    def __init__(self, heading: RequestHead, peer: str | None = None, body: bytes = b"") -> None:
        """`peer`: the client's address; None: no network is used. `body`: if it was read already."""
        self.heading = heading
        self.method, self.path, self.headers = heading.method, heading.path, heading.headers
        self.peer = peer
        self.body = body

    def read_nowait(self) -> bytes:
        """Return the next piece of the body that has already come, perhaps nothing."""
        return b""

    async def read(self) -> bytes | None:
        """Wait for the next piece of the body, and return it; None if the client left before its end.

        If a body is too slow, the server itself answers, and cancels the application."""
        await trio.lowlevel.checkpoint()
        return None

    async def wait_left(self) -> None:
        """Wait until the client closes its side: most have left then, some still read. Only after the whole body."""
        await trio.sleep_forever()

    def while_there(self) -> AbstractContextManager[trio.CancelScope]:
        """Cancel the `with` block within a second after the client left. Quick requests cost nothing, as connections
        are only checked now and then."""
        return trio.CancelScope()

    def wait_s(self, asked_s: float, max_s: float) -> float:
        """Return for how many seconds the request may wait: as asked, but at most `max_s`; 0 if it is `hurried`."""
        return 0.0 if self.hurried else min(max(asked_s, 0.0), max_s)

    def media_type(self) -> str:
        """Return the Content-Type without parameters, in lower case; empty if there is none. See `plain`."""
        kind = media.bare(self.headers.get("content-type", ""))
        return self.plain.get(kind, kind)

    def answer_language(self, otherwise: Language = "json") -> Language:
        """Return the format that the client wants: by Accept, else by its Content-Type, else `otherwise`."""
        headers = self.headers
        return media.answer_language(headers.get("content-type", ""), headers.get("accept", ""), otherwise)


class BodyBudget:
    """The memory for the bodies of all requests together. A request for which there is no room is refused.

    Small bodies may use all of it, larger reports of workers 15/16, and larger pushes 12/16: so pushes cannot keep out
    reports. Larger bodies may wait long for their turn. So while several owners ask, one owner's may take at most half
    of what the others leave; but one body of each owner is always taken if there is room.
    """

    def __init__(self, bytes_max: int, whose: Callable[["Request"], Owner], shared: Callable[[], bool]) -> None:
        """`whose`: returns a request's owner. `shared`: returns whether several owners ask."""
        self.bytes, self.bytes_max = 0, bytes_max
        self._whose, self._shared = whose, shared
        self._owners: Counter[Owner] = Counter()

    async def read(self, request: Request, bytes_max: int) -> bytes | None:
        """Read and return the whole body, which counts until `release`; None if the client left before its end.

        Raises Refused 413 for more than `bytes_max`, 503 if there is no room.
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
        """Count `size` more bytes for a request. Raises Refused 503 if there is no room."""
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
        """Drop a request's body, as its answer may take long to be sent."""
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
    """Return the error for a body that is too long for its route."""
    return Refused(413, f"the body has more than {bytes_max} bytes; push smaller jobs, or fewer in one request")


Write = Callable[[bytes], Awaitable[bool]]
"""Sends a piece of a body, which may be empty. Returns False if no more is wanted: the client left, or the server
closes."""
Stream = Callable[[Write], Awaitable[str | None]]
"""Writes a body. Returns None, or why it could not be written to its end: then the connection is closed, so that the
client notices."""


class Response(Struct, gc=False):
    """A response. The server adds its Content-Length."""

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: dict[str, str] = {}
    """Name in lower case → value. `connection: close` closes the connection after the response."""
    lost: Sequence[Callable[[], None]] = ()
    """Functions to be called if the client did not get the response."""
    stream: Stream | None = None
    """Writes the body, instead of `body`. It must return soon after no more is wanted."""

    def fields(self) -> list[tuple[str, str]]:
        """Return all headers."""
        fields = [*self.headers.items()]
        return [*fields, ("content-type", self.content_type)] if self.content_type else fields


def answer(status: int, value: Any, language: Language, headers: dict[str, str] | None = None) -> Response:
    """Return a response with `value` encoded. A `msgspec.Raw` in it is MessagePack; for JSON see `json_ext.show`."""
    if language == "msgpack":
        return Response(status, _msgpack_encoder.encode(value), media.MSGPACK, headers or {})
    return Response(status, _json_encoder.encode(json_ext.show(value)), media.JSON, headers or {})


Core = Callable[[Request], Awaitable[Response | None]]
"""An application. Returns None if the client has left."""
