"""The request that a listener hands to an application, and the response that it takes back.

No body is in memory outside of the one budget that all requests share.
"""

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

SOME_BYTES = 4_096  # of a body: a hundred wrong jobs, of which each takes as long as twenty good requests
PUSHES, REPORTS = 12 / 16, 15 / 16  # of the budget, up to which such bodies are taken that are larger than that
AGAIN_S = 1  # until a body may be sent again for which there was no room: most are answered within it
_msgpack_encoder = msgspec.msgpack.Encoder()
_json_encoder = msgspec.json.Encoder()

Owner = tuple[str, bool]
"""Who makes a request, and whether it is a worker's report of its jobs."""


class Refused(JqdError):
    """The bytes are no request that we take: it is answered with `status`, and the connection closed."""

    def __init__(self, status: int, detail: str, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry_after_s = retry_after_s


class Foreign(Refused):
    """A request that a foreign web page may have sent, refused before its body is read."""


@dataclass(slots=True, eq=False)
class RequestHead:
    """The head of a request. Requests with the same head share it; only its verdict is set."""

    method: str
    path: str
    """Decoded."""
    raw_path: str
    """The path as the client sent it, still percent-encoded."""
    query: bytes
    headers: Mapping[str, str]
    """Names in lower case; of one that stands there twice the last."""
    admission: Any = None
    """What the application makes of it, kept for the next request with this head; the application's alone."""


class Request:
    """One request whose head has come. Its body is read on demand, once. Fields that are not of the connection are set
    by the application."""

    whole = False
    """Whether its body was read to its end."""
    patient = False
    """Whether it waited behind other requests of its owner while other owners have some, too: it may wait longer."""
    held_bytes = 0
    """What its body takes of the budget."""
    owner: Owner | None = None
    """The owner of the reserved bytes; set for bodies above SOME_BYTES."""
    packed: bytes | None = None
    """The body as MessagePack, where it was large and was made so aside."""
    plain: Mapping[str, str] = MappingProxyType({})
    """Types of bodies that are taken for others, "" for none."""
    hurried = False
    """Its client has left, or only listens on: nothing is waited for."""
    held_s = 0.0
    """For how long the loop did nothing but read its body, in one piece."""
    breathe: Callable[[], Awaitable[None]] = staticmethod(trio.lowlevel.checkpoint)
    """Leaves the loop to others between two pieces."""

    def __init__(self, heading: RequestHead, peer: str | None = None, body: bytes = b"") -> None:
        """`peer`: the address it came from; None: through no network. `body`: if it was read already."""
        self.heading = heading
        self.method, self.path, self.headers = heading.method, heading.path, heading.headers
        self.peer = peer
        self.body = body

    def read_nowait(self) -> bytes:
        """Return what has come of the body already; perhaps nothing."""
        return b""

    async def read(self) -> bytes | None:
        """Return the next piece of the body; None when no more will come although it is incomplete: nobody waits for a
        response. For a body that is too slow the listener answers itself, and cancels the application."""
        await trio.lowlevel.checkpoint()
        return None

    async def wait_left(self) -> None:
        """Return when the client sends no more: most have left then, some only listen. Only after a whole body."""
        await trio.sleep_forever()

    def while_there(self) -> AbstractContextManager[trio.CancelScope]:
        """Cancel the block within a second after the client left; a commit is never cancelled. Most requests end before
        the first look, so they cost no watcher."""
        return trio.CancelScope()

    def wait_s(self, asked_s: float, max_s: float) -> float:
        """Return how long it may wait: as asked, at most `max_s`."""
        return 0.0 if self.hurried else min(max(asked_s, 0.0), max_s)

    def media_type(self) -> str:
        """Return the Content-Type without parameters, in lower case; empty when there is none."""
        kind = media.bare(self.headers.get("content-type", ""))
        return self.plain.get(kind, kind)

    def answer_language(self, otherwise: Language = "json") -> Language:
        """Return the format that the client wants to read: by Accept, else the one it wrote in."""
        headers = self.headers
        return media.answer_language(headers.get("content-type", ""), headers.get("accept", ""), otherwise)


class BodyBudget:
    """The memory that the bodies of all requests take together: one number. Requests above it are refused.

    Large pushes are refused first, so that they fail no worker's report; then reports, so that small bodies have room.
    Large ones may wait in line for a turn, and stay for long: so while others ask, too, each owner's take at most half
    of what those of other owners leave. One always may, if there is room.
    """

    def __init__(self, bytes_max: int, whose: Callable[["Request"], Owner], shared: Callable[[], bool]) -> None:
        """`shared`: whether requests of several owners are under way."""
        self.bytes, self.bytes_max = 0, bytes_max
        self._whose, self._shared = whose, shared
        self._owners: Counter[Owner] = Counter()

    async def read(self, request: Request, bytes_max: int) -> bytes | None:
        """The whole body, which is held until `release`; None: the client has left, and a cut body is no body.

        Raises Refused 413, 503.
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
        """Hold so many bytes more. Raises Refused 503 when there is no room."""
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
        """Let go of its body: its answer may be written for long."""
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
    """Return the error for a body that is longer than its call takes."""
    return Refused(413, f"the body has more than {bytes_max} bytes; push smaller jobs, or fewer in one request")


Write = Callable[[bytes], Awaitable[bool]]
"""Sends a piece of a body, nothing perhaps; whether more of it is wanted: the client listens, and the door is open."""
Stream = Callable[[Write], Awaitable[str | None]]
"""Writes a body. Why it could not be written to its end: the connection ends then, so that the client notices."""


class Response(Struct, gc=False):
    """A whole response. The connection sets its length."""

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: dict[str, str] = {}
    """Names in lower case. `connection: close` ends the connection with it."""
    lost: Sequence[Callable[[], None]] = ()
    """Each is called when it is known that the client has not got this answer."""
    stream: Stream | None = None
    """Writes the body, in place of one that is whole: it returns when a piece is not wanted any more, soon."""

    def fields(self) -> list[tuple[str, str]]:
        """Return all headers."""
        return (
            [*self.headers.items(), ("content-type", self.content_type)]
            if self.content_type
            else [*self.headers.items()]
        )


def answer(status: int, value: Any, language: Language, headers: dict[str, str] | None = None) -> Response:
    """Render `value`. MessagePack values inside are `msgspec.Raw`; what JSON cannot say is as `json_ext` has it."""
    if language == "msgpack":
        return Response(status, _msgpack_encoder.encode(value), media.MSGPACK, headers or {})
    return Response(status, _json_encoder.encode(json_ext.show(value)), media.JSON, headers or {})


Core = Callable[[Request], Awaitable[Response | None]]
"""An application. None: there is nobody to answer, or nothing to say."""
