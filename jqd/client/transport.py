"""The interface through which a client's requests are sent. Its errors decide whether a push may be sent again:

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
    """Base class of the errors of a `Transport`. `__cause__` is the OSError behind it, if any."""


class UnreachedError(TransportError):
    """No connection could be made, so nothing was sent."""


class CrowdedError(UnreachedError):
    """No connection was free, because the client had as many requests under way as it may. Nothing was sent."""


class SilentError(TransportError):
    """No answer came in time. The request may have arrived."""


class LostError(TransportError):
    """The answer did not come completely. The request may have arrived."""


@dataclass(slots=True)
class Request:
    method: str
    url: str
    """The daemon's URL."""
    target: str
    """Path and query, quoted for a URL."""
    headers: dict[str, str]
    """Names in lower case, without `host` and `content-length`."""
    body: bytes | None
    connect_s: float
    """Timeout for connecting, and for waiting until a connection is free."""
    read_s: float
    """Timeout of each write and read. Also for the whole exchange, plus some time per byte, unless it is a stream."""
    waits: bool = False
    """Whether it is a long poll, which does not count against the limit of connections."""
    streams: bool = False
    """Whether the caller reads the answer from `pieces` while it comes."""


@dataclass(slots=True)
class Response:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    """Names in lower case."""
    body: bytes = b""
    pieces: Iterator[bytes] | None = None
    """The body of a stream, as it comes, instead of `body`. Raises TransportError."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Transport(Protocol):
    """Sends requests to daemons and returns their answers. Threads may share it."""

    def send(self, request: Request, /) -> Response:
        """Send a request and return the answer. Raises TransportError."""
        ...

    def close(self) -> None: ...
