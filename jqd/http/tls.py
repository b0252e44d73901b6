"""TLS by trio's own streams, as a Transport; and its certificate files."""

import ssl
from pathlib import Path
from typing import Any

import trio

from jqd.domain.errors import ConfigError
from jqd.http.request import Refused
from jqd.http.transport import NotAgreedError, Transport, Turn

HELLO = b"\x16"  # the first byte of a handshake
FIRST_BYTES = 4_096  # read at first: a hello has some 500
PLAIN = "this port speaks TLS; ask for https:// instead of http://"


def tls_context(cert: Path, key: Path, clients: Path | None = None) -> ssl.SSLContext:
    """Return the TLS context: 1.2 or later, with this certificate.

    Raises ConfigError naming the file. `clients`: clients need a certificate of one of these authorities.
    """
    files = (("http.tls_cert", cert), ("http.tls_key", key), ("http.tls_clients", clients))
    for name, path in files:
        if path is None:
            continue
        try:
            path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{name} = {path} cannot be read: {error.strerror or error}") from error
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise ConfigError(
            f"http.tls_cert = {cert} and http.tls_key = {key} do not go together: {why}. The first is a certificate "
            "and those that vouch for it, the second its key without a password, both PEM"
        ) from error
    if clients is not None:
        try:
            context.load_verify_locations(clients)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"http.tls_clients = {clients} has no certificate of an authority, PEM: {error}"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")


class TlsTransport:
    """A Transport through TLS, over another."""

    __slots__ = ("_ended", "_kept", "_plain", "_raw", "_stream", "_under")

    def __init__(self, raw: Transport, context: ssl.SSLContext) -> None:
        self._raw = raw
        self._under = _Under(raw)
        self._kept = _Context(context)
        as_context: Any = self._kept
        self._stream = trio.SSLStream(self._under, as_context, server_side=True)
        self._plain = False
        """Whether the peer speaks no TLS, or no version of ours, and can only get an error."""
        self._ended = False

    async def begin(self, turn: Turn) -> None:
        first = await self._raw.receive_some(FIRST_BYTES)
        if not first.startswith(HELLO):
            self._plain = True
            if first:
                raise Refused(400, PLAIN)
            return
        await turn()
        self._under.ahead = first
        try:
            await self._stream.do_handshake()
        except trio.BrokenResourceError as error:
            alert = self._kept.outgoing.read()
            if not alert:
                raise
            self._plain = True
            raise NotAgreedError(getattr(error.__cause__, "reason", None) or str(error.__cause__), alert) from error

    async def receive_some(self, size: int) -> bytes:
        if self._plain or self._ended:  # behind our last word what comes is only read over
            return await self._raw.receive_some(size)
        try:
            return bytes(await self._stream.receive_some(size))
        except trio.BrokenResourceError as error:
            if isinstance(error.__cause__, ssl.SSLEOFError):
                return b""  # without a goodbye: lengths and chunks tell what is whole
            raise

    async def receive_next(self, size: int) -> bytes:
        return await self.receive_some(size)

    def has_left(self) -> bool:
        return self._raw.has_left()

    def send_now(self, data: bytes) -> int:
        """See Transport. A TLS record has to be sent as a whole."""
        return 0

    async def send_all(self, data: bytes | memoryview) -> None:
        await (self._raw if self._plain else self._stream).send_all(data)

    async def finish(self) -> None:
        self._ended = True
        if self._plain:
            await self._raw.finish()
        else:
            await self._stream.aclose()

    def close(self) -> None:
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()


class _Context:
    """A context that keeps what is to be sent: when a handshake fails trio's stream does not send the alert, and
    without it the peer only sees a broken connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.outgoing = ssl.MemoryBIO()

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any) -> ssl.SSLObject:
        self.outgoing = outgoing
        return self._context.wrap_bio(incoming, outgoing, **options)


class _Under(trio.abc.Stream):
    """The transport under trio's stream. Closing it only says that nothing more comes: its owner closes it."""

    def __init__(self, raw: Transport) -> None:
        self._raw = raw
        self.ahead = b""
        """What was read already."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self.ahead:
            ahead, self.ahead = self.ahead, b""
            return ahead
        return await self._raw.receive_some(max_bytes or FIRST_BYTES)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._raw.send_all(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await self._raw.finish()
