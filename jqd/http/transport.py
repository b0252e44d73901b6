"""A connected socket that costs few turns of the loop: available data is read, and what fits is written, at once."""

import select
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

STRAIGHT_MAX = 16  # reads in a row without letting others on
_LEFT = getattr(select, "POLLRDHUP", select.POLLHUP)  # where a system does not know that: what has gone altogether
_RESET = struct.pack("ii", 1, 0)

Turn = Callable[[], Awaitable[None]]
"""Returns when it is somebody's turn."""


class NotAgreedError(Exception):
    """The handshake failed; `why`, and the bytes that the peer gets in its protocol."""

    def __init__(self, why: str, last: bytes) -> None:
        super().__init__(why)
        self.why = why
        self.last = last


class Transport(Protocol):
    """Both directions of one connection."""

    async def begin(self, turn: Turn) -> None:
        """Do the TLS handshake, before anything else. `turn` is awaited before its work, once the peer has sent
        something. Raises Refused, NotAgreedError for a peer that cannot read a refusal, trio.BrokenResourceError."""
        ...

    async def receive_some(self, size: int) -> bytes:
        """Return available data, up to `size` bytes; b"" when the peer sends no more.

        Raises trio.BrokenResourceError.
        """
        ...

    async def receive_next(self, size: int) -> bytes:
        """As `receive_some`, for a peer whose turn it is: most likely nothing is there yet."""
        ...

    def has_left(self) -> bool:
        """Return whether the peer sends no more, apart from unread data. Most have left then."""
        ...

    def send_now(self, data: bytes) -> int:
        """Send what can be sent without waiting. Returns how many bytes. Raises trio.BrokenResourceError."""
        ...

    async def send_all(self, data: bytes | memoryview) -> None:
        """Return when the kernel has taken all of it. Raises trio.BrokenResourceError."""
        ...

    async def finish(self) -> None:
        """Say that nothing more is sent. Raises trio.BrokenResourceError when the peer has gone."""
        ...

    def close(self) -> None: ...

    def abort(self) -> None:
        """Break the connection off, so that the peer cannot take a part for the whole."""
        ...


class SocketTransport:
    """A Transport over a socket that does not block."""

    __slots__ = ("_sock", "_straight")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._straight = 0

    async def begin(self, turn: Turn) -> None:
        """See Transport. There is no handshake."""

    async def receive_some(self, size: int) -> bytes:
        self._straight += 1
        if self._straight >= STRAIGHT_MAX:  # who sends without a pause does not have the loop for itself
            self._straight = 0
            await trio.lowlevel.checkpoint()
        try:
            while True:
                try:
                    return self._sock.recv(size)  # nothing may be awaited behind it: what came would be lost
                except (BlockingIOError, InterruptedError):
                    self._straight = 0
                    await trio.lowlevel.wait_readable(self._sock)
        except OSError as error:
            raise trio.BrokenResourceError(f"reading failed: errno {error.errno}") from error

    async def receive_next(self, size: int) -> bytes:
        self._straight = 0
        try:
            while True:
                await trio.lowlevel.wait_readable(self._sock)
                try:
                    return self._sock.recv(size)
                except (BlockingIOError, InterruptedError):
                    continue  # it was readable for somebody else
        except OSError as error:
            raise trio.BrokenResourceError(f"reading failed: errno {error.errno}") from error

    def has_left(self) -> bool:
        asked = select.poll()
        asked.register(self._sock, _LEFT)
        return bool(asked.poll(0))

    def send_now(self, data: bytes | memoryview) -> int:
        try:
            return self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(f"writing failed: errno {error.errno}") from error

    async def send_all(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest := rest[self.send_now(rest) :]:
            try:
                await trio.lowlevel.wait_writable(self._sock)
            except OSError as error:
                raise trio.BrokenResourceError(f"writing failed: errno {error.errno}") from error

    async def finish(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise trio.BrokenResourceError(f"closing failed: errno {error.errno}") from error

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._sock)
        self._sock.close()

    def abort(self) -> None:
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        finally:
            self.close()
