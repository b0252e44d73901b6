"""TLS for connections, by trio's streams; and the certificate of a listener, which is read again when its files change.

If new files cannot be used, or their certificate is not valid now, the previous certificate stays in use, and the files
are tried again. Health checks report this, and also when the certificate in use will expire soon.
"""

import re
import ssl
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trio

from jqd.domain.clock import Clock
from jqd.domain.dates import iso, ms_of
from jqd.domain.errors import ConfigError
from jqd.http.config import ListenerConfig
from jqd.http.request import Refused
from jqd.http.transport import NotAgreedError, Transport, Turn

HELLO = b"\x16"  # the first byte of a TLS handshake
FIRST_BYTES = 4_096  # of the first read: the first message of a handshake has some 500
PLAIN = "this port speaks TLS; ask for https:// instead of http://"


def tls_context(cert: Path, key: Path, clients: Path | None = None) -> ssl.SSLContext:
    """Return a TLS context (version 1.2 or later) for a certificate and its key. `clients`: a file with certificate
    authorities; each client needs a certificate from one of them. Raises ConfigError, which names the file."""
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
    """A Transport that speaks TLS over another Transport."""

    __slots__ = ("_ended", "_kept", "_plain", "_raw", "_stream", "_under")

    def __init__(self, raw: Transport, context: ssl.SSLContext) -> None:
        self._raw = raw
        self._under = _Under(raw)
        self._kept = _Context(context)
        as_context: Any = self._kept
        self._stream = trio.SSLStream(self._under, as_context, server_side=True)
        self._plain = False
        """Whether the peer does not speak TLS, or no accepted version of it, so that it can only be sent an error."""
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
        if self._plain or self._ended:  # after `finish`, data is only read to be dropped
            return await self._raw.receive_some(size)
        try:
            return bytes(await self._stream.receive_some(size))
        except trio.BrokenResourceError as error:
            if isinstance(error.__cause__, ssl.SSLEOFError):
                return b""  # closed without TLS's goodbye: HTTP's lengths tell whether a request is whole
            raise

    async def receive_next(self, size: int) -> bytes:
        return await self.receive_some(size)

    def has_left(self) -> bool:
        return self._raw.has_left()

    def send_now(self, data: bytes) -> int:
        """Send nothing and return 0, because a TLS record has to be sent as a whole. Callers then use `send_all`."""
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
    """An SSL context that remembers its outgoing buffer. If a handshake fails, this buffer has an alert for the peer,
    which trio's stream does not send. Without the alert the peer would only see a broken connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.outgoing = ssl.MemoryBIO()

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any) -> ssl.SSLObject:
        self.outgoing = outgoing
        return self._context.wrap_bio(incoming, outgoing, **options)


class _Under(trio.abc.Stream):
    """Makes a Transport usable as a stream by trio's SSLStream. `aclose` only ends the sending side; the owner of the
    Transport closes it."""

    def __init__(self, raw: Transport) -> None:
        self._raw = raw
        self.ahead = b""
        """Data that was read before, and is returned first."""

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


SOON_DAYS = 14  # before expiry there is a warning: renewals are usually tried each day from 30 days before
_DAY_MS = 86_400_000
_PEM = re.compile(r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END ", re.DOTALL)
_SEQUENCE, _UTC_TIME, _VERSION = 0x30, 0x17, 0xA0
_BEFORE_VALIDITY = 3  # items before the validity: serial number, algorithm, issuer; a version may be before these


class Certificate:
    """The certificate in use, which is replaced when its files change, and what is wrong with newer files."""

    def __init__(self, config: ListenerConfig, log: Any, clock: Clock) -> None:
        """Read the certificate from the configured files. Raises ConfigError."""
        self._config, self._log, self._clock = config, log, clock
        self._wrong = ""
        self._warned_ms = 0
        self._seen = _look_at(config)
        self.context = _context(config)
        """The TLS context for new connections; None: the listener does not use TLS."""
        self._begins_ms, self._ends_ms = _dates(config)

    def change(self, config: ListenerConfig) -> None:
        """Read the certificate's files again and use them. If they cannot be used, raise ConfigError and keep the
        previous certificate."""
        seen = _look_at(config)
        try:
            context, dates = _context(config), _dates(config)
            if context is not None:
                self._refuse_worse(config, *dates)
        except ConfigError as error:
            self._wrong = str(error)
            raise
        self.context, self._config = context, config
        self._begins_ms, self._ends_ms = dates
        self._seen, self._wrong = seen, ""

    def _refuse_worse(self, config: ListenerConfig, begins_ms: int, ends_ms: int) -> None:
        """Raise ConfigError if the new certificate is not valid now, while the one in use is valid. `begins_ms`,
        `ends_ms`: validity of the new one."""
        now = self._clock.wall_ms()
        if self.context is None or not self._begins_ms <= now < self._ends_ms or begins_ms <= now < ends_ms:
            return
        when = f"ended at {iso(ends_ms)}" if ends_ms <= now else f"is not valid before {iso(begins_ms)}"
        assert config.certificate is not None
        raise ConfigError(f"http.tls_cert = {config.certificate[0]}: the certificate there {when}")

    def look(self) -> None:
        """Check whether the files were replaced; if so, use the new ones from the next connection on. Logs a warning if
        the certificate expires soon."""
        if self._wrong or _look_at(self._config) != self._seen:
            before = self._wrong
            try:
                self.change(self._config)
            except ConfigError as error:
                # The file may be half-written, or the certificate not valid yet: it is tried again.
                if self._wrong != before:
                    self._log.error("http.certificate_unusable", error=str(error))
            else:
                self._log.info("http.certificate", ends_at=self._ends)
        if self._ends_ms == self._warned_ms:
            return
        if self._begins_ms > self._clock.wall_ms():
            self._warned_ms = self._ends_ms
            self._log.warning("http.certificate_begins", file=str(self._cert), at=iso(self._begins_ms))
        elif self._ends_soon:
            self._warned_ms = self._ends_ms
            self._log.warning("http.certificate_ends", file=str(self._cert), at=self._ends)

    @property
    def complaint(self) -> str | None:
        """Return text that warns of what is wrong with the certificate in use, or with newer files; None if nothing
        is."""
        if self._config.certificate is None:
            return None
        now = self._clock.wall_ms()
        over = self._ends_ms <= now
        if self._wrong:
            verb = "ended" if over else "ends"
            return f"{self._wrong}. The certificate that was read before goes on; it {verb} at {self._ends}"
        if self._begins_ms > now:
            return (
                f"http.tls_cert = {self._cert}: the certificate is not valid before {iso(self._begins_ms)}, and "
                "clients refuse it; put one there that is valid now, it is read then, or set this machine's clock right"
            )
        if not self._ends_soon:
            return None
        when = "ended, and clients refuse it, since" if over else f"ends within {SOON_DAYS} days, at"
        return (
            f"http.tls_cert = {self._cert}: the certificate {when} {self._ends}; put a new one there, it is read then"
        )

    @property
    def ends_ms(self) -> int | None:
        """Return when the certificate in use expires (Unix ms); None if there is no certificate."""
        return None if self.context is None else self._ends_ms

    @property
    def _cert(self) -> Path | None:
        return self._config.certificate[0] if self._config.certificate else None

    @property
    def _ends(self) -> str:
        return iso(self._ends_ms)

    @property
    def _ends_soon(self) -> bool:
        return self.context is not None and self._ends_ms <= self._clock.wall_ms() + SOON_DAYS * _DAY_MS


def dates_ms(pem: str) -> tuple[int, int]:
    """Return the beginning and the end of validity of the first certificate in a PEM text (Unix ms). Raises
    ValueError."""
    if (found := _PEM.search(pem)) is None:
        raise ValueError("there is no certificate in it")
    der = b64decode(found[1])
    signed = _item(_item(der, 0)[1], 0)[1]
    at = _item(signed, 0)[2] if signed[0] == _VERSION else 0
    for _ in range(_BEFORE_VALIDITY):
        at = _item(signed, at)[2]
    tag, validity, _ = _item(signed, at)
    if tag != _SEQUENCE:
        raise ValueError("its dates are not where a certificate has them")
    kind, text, at = _item(validity, 0)
    return _date(kind, text), _date(*_item(validity, at)[:2])


def _date(kind: int, text: bytes) -> int:
    date = text.decode("ascii")
    if kind == _UTC_TIME:  # of the years 1950 to 2049
        date = ("19" if date >= "5" else "20") + date
    return ms_of(datetime.strptime(date, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC))


def _item(der: bytes, at: int) -> tuple[int, bytes, int]:
    """Parse the DER item at byte `at`. Returns its tag, its content, and the byte at which the next item begins. Raises
    ValueError."""
    try:
        tag, size, begin = der[at], der[at + 1], at + 2
    except IndexError as error:
        raise ValueError("it is cut off") from error
    if size & 0x80:  # then the other bits say how many bytes the length has
        begin, size = begin + (size & 0x7F), int.from_bytes(der[begin : begin + (size & 0x7F)], "big")
    if begin + size > len(der):
        raise ValueError("it is cut off")
    return tag, der[begin : begin + size], begin + size


def _dates(config: ListenerConfig) -> tuple[int, int]:
    if config.certificate is None:
        return 0, 0
    cert = config.certificate[0]
    try:
        return dates_ms(cert.read_text("ascii", errors="replace"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"http.tls_cert = {cert} has no dates between which it is valid: {error}") from error


def _context(config: ListenerConfig) -> ssl.SSLContext | None:
    return tls_context(*config.certificate, config.clients) if config.certificate else None


def _look_at(config: ListenerConfig) -> list[tuple[int, int, int] | None]:
    """Return times, sizes and inodes of the certificate's files, by which a replacement is noticed."""
    found: list[tuple[int, int, int] | None] = []
    for path in config.files:
        try:
            stat = path.stat()
        except OSError:
            found.append(None)  # being replaced, or gone: reading it will raise the error
        else:
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return found
