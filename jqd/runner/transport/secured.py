"""TLS on a connection to a worker.

Both buffers of TLS are ours, and it reads and writes nothing else: so what has come and was not asked for is seen,
decrypted or not, and a request that does not go out leaves its answer to be read.
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
        """`host`: whose certificate it has to be."""
        super().__init__(raw)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._head = b""  # of a record that has come in part
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
        """Return what came, of one record; empty when the worker closed its side, be it without a word in TLS: what is
        whole, HTTP says."""
        try:
            return await self._act(partial(self._tls.read, RECEIVE_BYTES))
        except ssl.SSLEOFError:
            return b""

    def is_quiet(self) -> bool:
        """Return whether nothing unread has come, decrypted or not, be it a part. If it has, it is lost."""
        if self._head or self._next_at or not super().is_quiet():
            return False
        try:
            self._tls.read(1)  # passes over what TLS says to itself
        except ssl.SSLWantReadError:
            return True
        except OSError:
            return False
        return False

    async def _act(self, act: Callable[[], T]) -> T:
        """Do something for which TLS may have to say or hear something first."""
        while True:
            try:
                return act()
            except ssl.SSLWantReadError:
                with suppress(OSError):  # what the worker said before it broke off is still to be read
                    await self._flush()
                self._take_in(await super().receive())

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await super().send(self._outgoing.read(), float("inf"))

    def _take_in(self, data: bytes) -> None:
        """Hand on what came; nothing: the end. TLS does not tell that it has a part of a record, so that is counted."""
        if not data:
            self._incoming.write_eof()
            return
        self._incoming.write(data)
        at, data = self._next_at, self._head + data
        while at + RECORD_HEAD_BYTES <= len(data):
            at += RECORD_HEAD_BYTES + int.from_bytes(data[at + RECORD_HEAD_BYTES - 2 : at + RECORD_HEAD_BYTES])
        self._head, self._next_at = data[at:], max(0, at - len(data))
