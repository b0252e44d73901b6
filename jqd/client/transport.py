"""What carries a client's requests, and what it says of those that have no answer.

It decides whether a push may be sent again:

    UnreachedError   nothing was sent      no such name; nobody listens; not connected in time; no TLS agreed on;
                                           no connection was free in time
    SilentError      it may have arrived   it could not be written, or nothing came, for as long as the timeout; or
                                           so little at once that the whole took longer
    LostError        it may have arrived   the connection broke or ended before the answer was whole, be it a kept one
                                           that was closed just then; or what came is no HTTP
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol


class TransportError(Exception):
    """Root of the three. An OSError that broke the connection is the cause."""


class UnreachedError(TransportError):
    """Nothing was sent."""


class CrowdedError(UnreachedError):
    """No connection was free: the client has as many requests under way as it sends at once."""


class SilentError(TransportError):
    """No answer in time; it may have arrived."""


class LostError(TransportError):
    """No whole answer; it may have arrived."""


@dataclass(slots=True)
class Request:
    method: str
    url: str
    """Of the daemon; what follows is the rest, as it is sent."""
    target: str
    headers: dict[str, str]
    """Without `host` and `content-length`; in lower case."""
    body: bytes | None
    connect_s: float
    """For a connection, and for the wait until one is free."""
    read_s: float
    """For each piece of the request that is written, and of the answer that comes; but for a stream also for all of
    them, with some more for each byte."""
    waits: bool = False
    """It has a connection beyond the limit, for it may take long."""
    streams: bool = False
    """The answer is wanted as it comes."""


@dataclass(slots=True)
class Response:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    """In lower case."""
    body: bytes = b""
    pieces: Iterator[bytes] | None = None
    """Of a stream, instead of the body. Raises TransportError."""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Transport(Protocol):
    """Carries requests; safe between threads. Tests have others than `Connections`."""

    def send(self, request: Request, /) -> Response:
        """Raises TransportError."""
        ...

    def close(self) -> None: ...
