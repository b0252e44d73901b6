"""What a door hands to an application, and what it takes back: plain values, whichever door it is."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import trio
from msgspec import Struct


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


class Request(Protocol):
    """One request whose head has come. Its body is read by who wants it, once."""

    @property
    def heading(self) -> RequestHead: ...

    @property
    def peer(self) -> str | None:
        """The address it came from; None: through no network."""
        ...

    @property
    def whole(self) -> bool:
        """Whether its body was read to its end."""
        ...

    @property
    def patient(self) -> bool:
        """Whether it waited behind others of whoever makes it, while somebody else asks, too: it may wait for more."""
        ...

    def read_nowait(self) -> bytes:
        """What has come of the body already; nothing perhaps."""
        ...

    async def read(self) -> bytes | None:
        """The next piece of the body; None when no more will come though it is not whole: nobody waits for an answer.

        Who sends it too slowly is told so by the door, which cancels the application.
        """
        ...

    async def wait_left(self) -> None:
        """Return when the client sends no more. Most have gone then, some listen on. Only behind a whole body."""
        ...

    def while_there(self) -> AbstractContextManager[trio.CancelScope]:
        """What is done within is given up within a second after the client left, wherever it is: no commit is.

        Most requests are over before anybody looks, so nothing has to watch each of them.
        """
        ...


Write = Callable[[bytes], Awaitable[bool]]
"""Sends a piece of a body, nothing perhaps; whether more of it is wanted: the client listens, and the door is open."""
Stream = Callable[[Write], Awaitable[None]]


class Response(Struct, frozen=True, gc=False):
    """A whole answer. Its length is the door's to say."""

    status: int
    headers: Sequence[tuple[bytes, bytes]] = ()
    """Names in lower case. `connection: close` ends the connection with it."""
    body: bytes = b""
    lost: Sequence[Callable[[], None]] = ()
    """Each is called when it is known that the client has not got this answer."""
    stream: Stream | None = None
    """Writes the body, in place of one that is whole: it returns when a piece is not wanted any more, soon."""


Core = Callable[[Request], Awaitable[Response | None]]
"""An application. None: there is nobody to answer, or nothing to say."""
