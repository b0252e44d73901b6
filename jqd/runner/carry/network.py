"""Connections to workers. A name is looked up once, its addresses are judged, and those allowed are connected to."""

import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore2
import trio

from jqd.runner.reach import Reach, look_up, present
from jqd.words.address import ip_of

NEXT_ADDRESS_S = 0.25  # for one address of several, until the next is tried beside it (RFC 8305)

HEAD_BYTES_MAX = 131_072  # before the status of an answer, notes of status 1xx among them: many times what a proxy adds
HEAD_READ_BYTES = 8_192  # of these at a time: each note takes time, and others have a turn in between

Connect = Callable[[str], Awaitable[httpcore2.AsyncNetworkStream]]


class Awaited:
    """An answer whose status has not come yet."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes that have come instead."""
        self.is_here = False

    def take(self, count: int) -> None:
        """Raises RemoteProtocolError when it is too much."""
        self.size += count
        if self.size > HEAD_BYTES_MAX:
            raise httpcore2.RemoteProtocolError(f"more than {HEAD_BYTES_MAX} bytes came, and no status of an answer")


_awaited: ContextVar[Awaited | None] = ContextVar("awaited", default=None)


@contextmanager
def awaiting() -> Iterator[Awaited]:
    """In this block this task reads one answer."""
    awaited = Awaited()
    token = _awaited.set(awaited)
    try:
        yield awaited
    finally:
        _awaited.reset(token)


class Stream(httpcore2.AsyncNetworkStream):
    """A connection that bounds what is read before the status of an answer: the client reads notes for ever."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """See httpcore2. Raises RemoteProtocolError also where there is no end of what comes before an answer."""
        awaited = _awaited.get()
        if awaited is None or awaited.is_here:
            return await self._inner.read(max_bytes, timeout)
        data = await self._inner.read(min(max_bytes, HEAD_READ_BYTES), timeout)
        awaited.take(len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """See httpcore2."""
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """See httpcore2."""
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """See httpcore2."""
        return Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """See httpcore2."""
        return self._inner.get_extra_info(info)


class Backend(httpcore2.AsyncNetworkBackend):
    """Connects to what may be reached, and to nothing else."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._inner = httpcore2.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """See httpcore2. Raises ConnectError also for an address that may not be reached."""
        options = list(socket_options or ())

        async def connect(address: str) -> httpcore2.AsyncNetworkStream:
            return Stream(await self._inner.connect_tcp(address, port, timeout, local_address, options))

        standing = present.get()
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            try:
                found = [host] if ip_of(host) is not None else await look_up(host, port)
            except OSError as error:
                raise httpcore2.ConnectError(str(error)) from error
            refused = {address: self._reach.why_not(address, standing) for address in found}
            allowed = [address for address, why in refused.items() if why is None]
            if not allowed:
                raise httpcore2.ConnectError(f"not connected to: {next(iter(refused.values()), 'it has no address')}")
            return await _first(connect, allowed)
        raise httpcore2.ConnectTimeout(f"{host} port {port} was not reached within {timeout:g} s")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """No worker's URL leads to one."""
        raise httpcore2.ConnectError(f"{path} is a unix socket; workers are reached by TCP")

    async def sleep(self, seconds: float) -> None:
        """See httpcore2."""
        await trio.sleep(seconds)


async def _first(connect: Connect, addresses: Sequence[str]) -> httpcore2.AsyncNetworkStream:
    """The first that answers. Each gets a moment before the next is tried beside it. Raises the last one's error."""
    if len(addresses) == 1:
        return await connect(addresses[0])
    streams: list[httpcore2.AsyncNetworkStream] = []
    errors: list[Exception] = []
    try:
        async with trio.open_nursery() as nursery:

            async def attempt(address: str, failed: trio.Event) -> None:
                try:
                    streams.append(await connect(address))
                except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
                    errors.append(error)
                    failed.set()
                else:
                    nursery.cancel_scope.cancel()

            for address in addresses:
                failed = trio.Event()
                nursery.start_soon(attempt, address, failed)
                with trio.move_on_after(NEXT_ADDRESS_S):
                    await failed.wait()
        if not streams:
            raise errors[-1]
        return streams.pop(0)
    finally:
        for stream in streams:  # a second one that answered at once, or all when the caller gave up
            with trio.CancelScope(shield=True):
                await stream.aclose()
