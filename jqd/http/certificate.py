"""The TLS certificate of a listener: it is read again when its files are replaced, and its faults are reported.

A renewal that cannot be used, or that clients would refuse today, ends nothing: the certificate before it goes on until
the files are whole and their day has come. Health reports that, and the day on which the one in use ends, while there
is time to mend it.
"""

import re
import ssl
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jqd.domain.clock import Clock
from jqd.domain.dates import iso, ms_of
from jqd.domain.errors import ConfigError
from jqd.http.config import ListenerConfig
from jqd.http.tls import tls_context

SOON_DAYS = 14  # before its end it is worth saying: renewals come 30 days before it, and are tried each day
_DAY_MS = 86_400_000
_PEM = re.compile(r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END ", re.DOTALL)
_SEQUENCE, _UTC_TIME, _VERSION = 0x30, 0x17, 0xA0
_BEFORE_VALIDITY = 3  # of what is signed: serial number, algorithm, issuer; before them a version, or none


class Certificate:
    """The certificate in use, and what the last look at its files found."""

    def __init__(self, config: ListenerConfig, log: Any, clock: Clock) -> None:
        """Read the certificate. Raises ConfigError."""
        self._config, self._log, self._clock = config, log, clock
        self._wrong = ""
        self._warned_ms = 0
        self._seen = _look_at(config)
        self.context = _context(config)
        """The TLS context; None: the listener speaks no TLS."""
        self._begins_ms, self._ends_ms = _dates(config)

    def change(self, config: ListenerConfig) -> None:
        """Read the files of the certificate again. Raises ConfigError, and keeps the one before."""
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
        """Raise ConfigError for a certificate that is not valid now, while the one in use is."""
        now = self._clock.wall_ms()
        if self.context is None or not self._begins_ms <= now < self._ends_ms or begins_ms <= now < ends_ms:
            return
        when = f"ended at {iso(ends_ms)}" if ends_ms <= now else f"is not valid before {iso(begins_ms)}"
        assert config.certificate is not None
        raise ConfigError(f"http.tls_cert = {config.certificate[0]}: the certificate there {when}")

    def look(self) -> None:
        """Use new files from the next connection on, if they were replaced."""
        if self._wrong or _look_at(self._config) != self._seen:
            before = self._wrong
            try:
                self.change(self._config)
            except ConfigError as error:
                # Half of it may be written, or its day is still to come: it is tried again until it can be used.
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
        """Return what somebody should mend about the certificate, in a sentence."""
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
        """Return when the one in use ends; None: there is none."""
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
    """Return when the first certificate in a PEM file begins and ends. Raises ValueError for what is none."""
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
    """Return the tag and content of one item of DER, and where the next begins. Raises ValueError."""
    try:
        tag, size, begin = der[at], der[at + 1], at + 2
    except IndexError as error:
        raise ValueError("it is cut off") from error
    if size & 0x80:  # the length stands in so many bytes
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
    except (OSError, ValueError) as error:  # it was read as a certificate just before
        raise ConfigError(f"http.tls_cert = {cert} has no dates between which it is valid: {error}") from error


def _context(config: ListenerConfig) -> ssl.SSLContext | None:
    return tls_context(*config.certificate, config.clients) if config.certificate else None


def _look_at(config: ListenerConfig) -> list[tuple[int, int, int] | None]:
    """Return what changes when the files are replaced."""
    found: list[tuple[int, int, int] | None] = []
    for path in config.files:
        try:
            stat = path.stat()
        except OSError:
            found.append(None)  # it is being replaced, or gone: who reads it says so
        else:
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return found
