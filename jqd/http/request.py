"""What a door hands to an application, and what it takes back: plain values, whichever door it is."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import trio
from msgspec import Struct

from jqd.domain import media
from jqd.domain.media import Language


@dataclass(slots=True, eq=False)
class RequestHead:
    """What the head of a request says. Requests with the same head share it: it is not changed, but for its verdict."""

    method: str
    path: str
    """Decoded."""
    raw_path: str
    """As it came."""
    query: bytes
    headers: Mapping[str, str]
    """Names in lower case; of one that stands there twice the last."""
    verdict: Any = None
    """What the application makes of it, kept for the next request with this head; the application's alone."""


class Request:
    """One request whose head has come. Its body is read by who wants it, once.

    What is not of the connection is put in by the application that answers it.
    """

    whole = False
    """Whether its body was read to its end."""
    patient = False
    """Whether it waited behind others of whoever makes it, while somebody else asks, too: it may wait for more."""
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
        """`peer`: the address it came from; None: through no network. `body`: once it was read."""
        self.heading = heading
        self.method, self.path, self.headers = heading.method, heading.path, heading.headers
        self.peer = peer
        self.body = body

    def read_nowait(self) -> bytes:
        """What has come of the body already; nothing perhaps."""
        return b""

    async def read(self) -> bytes | None:
        """The next piece of the body; None when no more will come though it is not whole: nobody waits for an answer.

        Who sends it too slowly is told so by the door, which cancels the application.
        """
        await trio.lowlevel.checkpoint()
        return None

    async def wait_left(self) -> None:
        """Return when the client sends no more. Most have gone then, some listen on. Only behind a whole body."""
        await trio.sleep_forever()

    def while_there(self) -> AbstractContextManager[trio.CancelScope]:
        """What is done within is given up within a second after the client left, wherever it is: no commit is.

        Most requests are over before anybody looks, so nothing has to watch each of them.
        """
        return trio.CancelScope()

    def wait_s(self, asked_s: float, max_s: float) -> float:
        """How long it may wait of what it asks for: at most `max_s`."""
        return 0.0 if self.hurried else min(max(asked_s, 0.0), max_s)

    def media_type(self) -> str:
        """The Content-Type without its parameters, lower case; empty when there is none."""
        kind = media.bare(self.headers.get("content-type", ""))
        return self.plain.get(kind, kind)

    def answer_language(self, otherwise: Language = "json") -> Language:
        """What the client wants to read: by Accept, else the language it wrote in."""
        headers = self.headers
        return media.answer_language(headers.get("content-type", ""), headers.get("accept", ""), otherwise)


Write = Callable[[bytes], Awaitable[bool]]
"""Sends a piece of a body, nothing perhaps; whether more of it is wanted: the client listens, and the door is open."""
Stream = Callable[[Write], Awaitable[None]]


class Response(Struct, gc=False):
    """A whole answer. Its length is the door's to say."""

    status: int
    body: bytes = b""
    content_type: str = ""
    headers: dict[str, str] = {}
    """Names in lower case. `connection: close` ends the connection with it."""
    lost: Sequence[Callable[[], None]] = ()
    """Each is called when it is known that the client has not got this answer."""
    stream: Stream | None = None
    """Writes the body, in place of one that is whole: it returns when a piece is not wanted any more, soon."""

    def fields(self) -> list[tuple[bytes, bytes]]:
        """The headers as they go over the wire."""
        told = {**self.headers, "content-type": self.content_type} if self.content_type else self.headers
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told.items()]


Core = Callable[[Request], Awaitable[Response | None]]
"""An application. None: there is nobody to answer, or nothing to say."""
