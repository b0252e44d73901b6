"""Opens connections to workers: looks up the host name once, checks its addresses, and connects to one that is allowed.

Proxies named in the environment are not used, so the address that was checked is the one connected to.
"""

import errno
import functools
import math
import socket
import ssl
from collections.abc import Sequence

import trio

from jqd.domain.address import ip_of
from jqd.domain.errors import JqdError
from jqd.runner.look_up import look_up
from jqd.runner.ssrf import NOT_PUBLIC, AddressPolicy, SsrfGuard
from jqd.runner.transport.http1 import Line, Origin, describe
from jqd.runner.transport.secured import Secured

# With these a connection notices within about a minute that its peer vanished, however long its jobs take.
OPTIONS = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
]


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
        raw = await dial_first(allowed, port)
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


async def dial_first(addresses: Sequence[str], port: int) -> socket.socket:
    """Connect to one of the addresses, tried one after the other. Each has an equal share of the time that is left to
    the caller, so a slow network is reached whatever the place of its address. Raises OSError: of an address that
    refused, if there is one."""
    until_s, errors = trio.current_effective_deadline(), list[OSError]()
    for left in range(len(addresses), 0, -1):
        now_s = trio.current_time()
        try:
            with trio.move_on_at(now_s + (until_s - now_s) / left if left > 1 else math.inf):
                return await dial(addresses[-left], port)
        except OSError as error:
            errors.append(error)
    raise min(errors, key=lambda error: error.errno != errno.ECONNREFUSED)


@functools.cache
def tls_context() -> ssl.SSLContext:
    """Return the TLS context with the root certificates of the system or of SSL_CERT_FILE. It is made once, because
    reading them takes tens of milliseconds."""
    return ssl.create_default_context()
