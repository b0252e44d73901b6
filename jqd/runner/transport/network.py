"""Opens connections to workers: looks up the host name once, checks its addresses, and connects to one that is allowed.

Proxies named in the environment are not used, so the address that was checked is the one connected to.
"""

import errno
import functools
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import trio

from jqd.domain.address import ip_of
from jqd.domain.errors import JqdError
from jqd.runner.look_up import look_up
from jqd.runner.ssrf import NOT_PUBLIC, AddressPolicy, SsrfGuard
from jqd.runner.transport.http1 import Line, Origin, describe
from jqd.runner.transport.secured import Secured

NEXT_ADDRESS_S = 0.25  # for one address of several, until the next is tried beside it (RFC 8305)
TRIED_AT_ONCE = 2  # addresses of one name: few, because a request counts as one connection
# With these a connection notices within about a minute that its peer vanished, however long its jobs take.
OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
]

Dial = Callable[[str], Awaitable[socket.socket]]

# Errors of the kernel when this process or machine has no more sockets: no worker is to blame.
OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class UnsentError(JqdError):
    """A request was not sent, so its jobs are handed back."""

    def __init__(self, message: str, kind: str) -> None:
        """`kind`: see `LostError`."""
        super().__init__(message)
        self.kind = kind


class CrowdedError(UnsentError):
    """All connections are in use, or this process may not open more: no worker is to blame."""


class UnreachedError(UnsentError):
    """A worker could not be connected to."""

    def __init__(self, message: str, kind: str, *, is_shared: bool = True) -> None:
        """`is_shared`: whether the failure concerns every worker at the host and port. False: perhaps only workers of
        this tenant, of this address policy, or with TLS."""
        super().__init__(message, kind)
        self.is_shared = is_shared


class Network:
    def __init__(self, ssrf: SsrfGuard) -> None:
        self._ssrf = ssrf

    async def connect(self, origin: Origin, within_s: float) -> Line:
        """Open a connection. Raises UnreachedError, also if SsrfGuard forbids the address; CrowdedError if this process
        has no more sockets."""
        host, port = origin.host, origin.port
        found = [host] if ip_of(host) is not None else []
        with trio.move_on_after(within_s):
            try:
                found = found or await _find(host, port, origin.tenant)
                return await self._connect(origin, found)
            except OSError as error:
                message, kind = describe(error)
                if error.errno in OURS:
                    raise CrowdedError(message, kind) from error
                if isinstance(error, socket.gaierror) and origin.standing is AddressPolicy.CALLBACK:
                    message = f"not connected to: {NOT_PUBLIC}"
                raise UnreachedError(message, kind, is_shared=bool(found)) from error
        # If no address was found, perhaps only this tenant's look-ups are slow: each tenant has its own threads.
        message = f"{host} port {port} was not reached within {within_s:g} s"
        raise UnreachedError(message, "too slow", is_shared=bool(found))

    async def _connect(self, origin: Origin, found: Sequence[str]) -> Line:
        host, port = origin.host, origin.port
        refused = {address: self._ssrf.why_not(address, origin.standing) for address in found}
        allowed = [address for address, why in refused.items() if why is None]
        if not allowed:
            why = next(iter(refused.values()), "it has no address")
            raise UnreachedError(f"not connected to: {why}", "forbidden", is_shared=False)
        raw = await first(functools.partial(dial, port=port), allowed)
        if origin.scheme != "https":
            return Line(raw)
        line = Secured(raw, tls_context(), host)
        try:
            await line.do_handshake()
        except BaseException as error:
            line.close()
            if isinstance(error, OSError):
                raise UnreachedError(*describe(error), is_shared=False) from error
            raise
        return line


async def _find(host: str, port: int, tenant: str) -> list[str]:
    """Look up a host name and return its addresses. Raises OSError, also if this process cannot open sockets, which a
    look-up alone does not report."""
    try:
        return await look_up(host, port, tenant)
    except OSError:
        socket.socket().close()
        raise


async def dial(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    raw = socket.socket(family, socket.SOCK_STREAM)
    try:
        for option in OPTIONS:
            raw.setsockopt(*option)
        raw.setblocking(False)
        # The wrapper is only used to wait for the connection; it shares the socket.
        await trio.socket.from_stdlib_socket(raw).connect((address, port))
    except BaseException:
        raw.close()
        raise
    return raw


async def first(dial: Dial, addresses: Sequence[str]) -> socket.socket:
    """Connect to the first address that accepts, and return the socket. Raises OSError if
    none accepts: of an address that refused, if there is one.

    If an address does not accept within NEXT_ADDRESS_S, the next is tried beside it. At most two are tried at once: a
    third try ends the older one."""
    if len(addresses) == 1:
        return await dial(addresses[0])
    found: list[socket.socket] = []
    errors: list[OSError] = []
    trying: deque[tuple[trio.CancelScope, trio.Event]] = deque()
    try:
        async with trio.open_nursery() as nursery:

            async def attempt(address: str, scope: trio.CancelScope, over: trio.Event) -> None:
                try:
                    with scope:
                        found.append(await dial(address))
                        nursery.cancel_scope.cancel()
                except OSError as error:
                    errors.append(error)
                finally:
                    if (scope, over) in trying:
                        trying.remove((scope, over))
                    over.set()

            for address in addresses:
                if len(trying) == TRIED_AT_ONCE:
                    oldest, ended = trying.popleft()
                    oldest.cancel()
                    await ended.wait()
                scope, over = trio.CancelScope(), trio.Event()
                trying.append((scope, over))
                nursery.start_soon(attempt, address, scope, over)
                with trio.move_on_after(NEXT_ADDRESS_S):
                    await over.wait()
        if not found:
            raise min(errors, key=lambda error: error.errno != errno.ECONNREFUSED)
        return found.pop(0)
    finally:
        for raw in found:  # a second one that connected at the same moment, or all if the caller was cancelled
            raw.close()


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Return the TLS context with the root certificates of the system or of SSL_CERT_FILE. It is made once, because
    reading them takes tens of milliseconds."""
    return ssl.create_default_context()
