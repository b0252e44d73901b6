"""Connected sockets. Data that has arrived is read, and data that the kernel takes is written, without waiting for the
event loop."""

import select
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

STRAIGHT_MAX = 16  # reads in a row before other tasks have their turn
_LEFT = getattr(select, "POLLRDHUP", select.POLLHUP)  # the peer closed its side (some systems: both sides)
_RESET = struct.pack("ii", 1, 0)  # the value of SO_LINGER with which closing resets the connection

Turn = Callable[[], Awaitable[None]]
"""A function that waits until expensive work may begin."""


class NotAgreedError(Exception):
    """The TLS handshake failed. `why`: OpenSSL's reason. `last`: the TLS alert to send to the peer."""

    def __init__(self, why: str, last: bytes) -> None:
        super().__init__(why)
        self.why = why
        self.last = last


class Transport(Protocol):
    """Sends and receives the data of one connection."""

    async def begin(self, turn: Turn) -> None:
        """Do the TLS handshake, if the connection uses TLS; to be called first. When the peer has sent something,
        awaits `turn`, which delays addresses with many handshakes, before the expensive part.

        Raises Refused if the peer speaks plain HTTP, NotAgreedError if the handshake fails, trio.BrokenResourceError if
        the connection breaks."""
        ...

    async def receive_some(self, size: int) -> bytes:
        """Wait for data, and return up to `size` bytes; b"" if the peer will send no more.

        Raises trio.BrokenResourceError.
        """
        ...

    async def receive_next(self, size: int) -> bytes:
        """Return up to `size` bytes, as `receive_some` does, but wait for them first: faster if no data has arrived
        yet."""
        ...

    def has_left(self) -> bool:
        """Return whether the peer has closed its sending side. There may still be unread data."""
        ...

    def send_now(self, data: bytes) -> int:
        """Send as many bytes as possible without waiting, and return their number. Raises trio.BrokenResourceError."""
        ...

    async def send_all(self, data: bytes | memoryview) -> None:
        """Send data; wait until the kernel has taken all of it. Raises trio.BrokenResourceError."""
        ...

    async def finish(self) -> None:
        """Close the sending side. Raises trio.BrokenResourceError if the connection is broken."""
        ...

    def close(self) -> None: ...

    def abort(self) -> None:
        """Reset the connection, so that the peer notices that a response was cut off."""
        ...


class SocketTransport:
    """A Transport over a non-blocking socket."""

    __slots__ = ("_sock", "_straight")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._straight = 0

    async def begin(self, turn: Turn) -> None:
        """Do nothing, because plain HTTP has no handshake."""

    async def receive_some(self, size: int) -> bytes:
        self._straight += 1
        if self._straight >= STRAIGHT_MAX:  # a client that sends without a pause must not take the whole loop
            self._straight = 0
            await trio.lowlevel.checkpoint()
        try:
            while True:
                try:
                    return self._sock.recv(size)  # nothing may be awaited after it: if cancelled, data would be lost
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
                    continue  # woken without data
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
        unsent = memoryview(data)
        while unsent := unsent[self.send_now(unsent) :]:
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
