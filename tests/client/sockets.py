"""A connection of a client whose socket says what a test has it say, when that says so."""

from collections.abc import Iterable, Iterator

from jqd.client.http1 import Connection
from jqd.testing.clock import ManualClock

URL = "http://h/at"
Piece = bytes | float | BaseException
"""A number: seconds until the next."""


class Scripted:
    """A socket that says its pieces and notes what is written. An error is raised."""

    def __init__(
        self, *pieces: Piece, more: Iterable[Piece] = (), refuses: bool = False, takes: int = 1000, each_s: float = 0.0
    ) -> None:
        """`more`: said behind the pieces, and may have no end. `takes`: bytes at once, and one such in `each_s`."""
        self.pieces, self.sent, self.refuses = self._script(pieces, more), list[bytes](), refuses
        self.clock = ManualClock()
        self.timeouts: list[float] = []
        self._takes, self._each_s = takes, each_s

    @staticmethod
    def _script(pieces: Iterable[Piece], more: Iterable[Piece]) -> Iterator[Piece]:
        yield from pieces
        yield from more

    def send(self, data: bytes | memoryview) -> int:
        if self.refuses and self.sent:
            raise BrokenPipeError
        if self._each_s:
            self._wait(self._each_s)
        self.sent.append(bytes(data[: self._takes]))
        return min(len(data), self._takes)

    def recv(self, _: int) -> bytes:
        for piece in self.pieces:
            if isinstance(piece, BaseException):
                raise piece
            if isinstance(piece, bytes):
                return piece
            self._wait(piece)
        return b""

    def settimeout(self, timeout_s: float) -> None:
        self.timeouts.append(timeout_s)

    def _wait(self, seconds: float) -> None:
        timeout_s = self.timeouts[-1]
        self.clock.advance(min(seconds, timeout_s))
        if seconds >= timeout_s:
            raise TimeoutError("timed out")


def connection(script: Scripted) -> Connection:
    made = Connection.__new__(Connection)
    made._socket, made._base, made._own = script, "/at", {"host": "h"}  # type: ignore[assignment]
    made._left, made._timeout_s, made._clock, made.url = b"", 0.0, script.clock, URL
    return made
