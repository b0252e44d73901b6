"""The interface that carries a client's requests, and its errors, which decide whether a push may be sent again:

UnreachedError   nothing was sent      no such name; nobody listens; not connected in time; no TLS agreed on;
                                       no connection was free in time
SilentError      it may have arrived   nothing could be written or read for as long as the timeout; or so little
                                       that the whole exchange took too long
LostError        it may have arrived   the connection broke or ended before the answer was whole, perhaps a kept
                                       one that was just being closed; or the answer is no HTTP
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol


class TransportError(Exception):
    """Base of the errors of a `Transport`. `__cause__` is the OSError that broke the connection, if any."""


class UnreachedError(TransportError):
    """Nothing was sent."""


class CrowdedError(UnreachedError):
    """No connection was free: as many requests as the client sends at once were under way. Nothing was sent."""


class SilentError(TransportError):
    """No answer came in time; the request may have arrived."""


class LostError(TransportError):
    """No whole answer came; the request may have arrived."""


@dataclass(slots=True)
class Request:
    method: str
    url: str
    """The daemon's URL."""
    target: str
    """Path and query, quoted."""
    headers: dict[str, str]
    """Without `host` and `content-length`; in lower case."""
    body: bytes | None
    connect_s: float
    """Timeout to connect, and to wait for a free connection."""
    read_s: float
    """Timeout of each write and read; unless it is a stream also of the whole exchange, plus some time per byte."""
    waits: bool = False
    """It is a long poll, and does not count for the limit of connections."""
    streams: bool = False
    """Whether the caller reads the answer as it comes, from `pieces`."""


@dataclass(slots=True)
class Response:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    """In lower case."""
    body: bytes = b""
    pieces: Iterator[bytes] | None = None
    """A stream's body, as it comes, instead of `body`. Raises TransportError."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Transport(Protocol):
    """Carries requests, as `Connections` does; safe between threads."""

    def send(self, request: Request, /) -> Response:
        """Send a request and return the answer. Raises TransportError."""
        ...

    def close(self) -> None: ...
