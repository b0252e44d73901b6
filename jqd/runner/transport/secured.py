"""TLS on a connection to a worker.

The TLS library works on two memory buffers, and this file copies bytes between them and the socket. So unexpected bytes
are noticed, decrypted or not, and an answer can be read even if its request was not sent as a whole.
"""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

import trio

from jqd.runner.transport.http1 import RECEIVE_BYTES, Line

RECORD_HEAD_BYTES = 5  # a type, a version, and in two bytes how many bytes follow

T = TypeVar("T")


class Secured(Line):
    def __init__(self, raw: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """`host`: the name that the certificate must be valid for."""
        super().__init__(raw)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._head = b""  # the part that has come of a record's head
        self._next_at = 0  # bytes until the next record begins

    async def do_handshake(self) -> None:
        await self._act(self._tls.do_handshake)
        await self._flush()

    async def send(self, data: bytes, within_s: float) -> None:
        with trio.fail_after(within_s):
            left = memoryview(data)
            while left:
                left = left[await self._act(partial(self._tls.write, left)) :]
            await self._flush()

    async def receive(self) -> bytes:
        """Wait for data and return what one TLS record holds. Empty: the worker closed its side, even without a TLS
        close; HTTP tells whether the answer is complete."""
        try:
            return await self._act(partial(self._tls.read, RECEIVE_BYTES))
        except ssl.SSLEOFError:
            return b""

    def is_quiet(self) -> bool:
        """Return whether nothing has arrived unread, decrypted or not. If False, the caller closes the connection,
        because the check may have dropped data."""
        if self._head or self._next_at or not super().is_quiet():
            return False
        try:
            self._tls.read(1)  # also handles TLS messages without data
        except ssl.SSLWantReadError:
            return True
        except OSError:
            return False
        return False

    async def _act(self, act: Callable[[], T]) -> T:
        """Call `act` (an operation of the TLS library), again and again while it needs bytes sent or received first."""
        while True:
            try:
                return act()
            except ssl.SSLWantReadError:
                with suppress(OSError):  # what the worker sent before the connection broke is still to be read
                    await self._flush()
                self._take_in(await super().receive())

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await super().send(self._outgoing.read(), float("inf"))

    def _take_in(self, data: bytes) -> None:
        """Pass received bytes to the TLS library; empty: the worker closed its side. Keeps track of partly received
        records for `is_quiet`."""
        if not data:
            self._incoming.write_eof()
            return
        self._incoming.write(data)
        at, data = self._next_at, self._head + data
        while at + RECORD_HEAD_BYTES <= len(data):
            at += RECORD_HEAD_BYTES + int.from_bytes(data[at + RECORD_HEAD_BYTES - 2 : at + RECORD_HEAD_BYTES])
        self._head, self._next_at = data[at:], max(0, at - len(data))
