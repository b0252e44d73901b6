"""The certificate of the web UI, which is read again when its files change.

If new files cannot be used, the previous certificate stays in use, and the files are tried again.
"""

import ssl
from collections.abc import Sequence
from pathlib import Path

from jqd.domain.beat import rest
from jqd.domain.errors import ConfigError
from jqd.domain.log import get_logger

FILES_S = 5.0  # between checks whether the files were replaced

_log = get_logger("webui")


class Certificate:
    """The TLS context for new connections, and the files that it was made from."""

    def __init__(self, certificate: Path, key: Path, protocols: Sequence[str], ciphers: str) -> None:
        """`protocols`: for ALPN. Raises ConfigError if the files cannot be used."""
        self._files = certificate, key
        self._protocols, self._ciphers = protocols, ciphers
        self._seen, self._wrong = self._looks(), ""
        self._newest = self.context = self._load()
        # A server keeps the context that it began with; each handshake in it goes on in the newest one.
        self.context.sni_callback = self._use_newest

    async def follow(self) -> None:
        """Look at the files every FILES_S, until cancelled."""
        while True:
            await rest(FILES_S)
            self.look()

    def look(self) -> None:
        """Use the files from the next connection on if they were replaced. Logs why they cannot be used."""
        seen = self._looks()
        if seen == self._seen and not self._wrong:
            return
        try:
            self._newest = self._load()
        except ConfigError as error:  # one of them may be half-written
            if str(error) != self._wrong:
                _log.error("webui.certificate_unusable", error=str(error))
            self._wrong = str(error)
        else:
            self._seen, self._wrong = seen, ""
            _log.info("webui.certificate")

    def _use_newest(self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        handshake.context = self._newest

    def _load(self) -> ssl.SSLContext:
        certificate, key = self._files
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(self._ciphers)
        context.set_alpn_protocols(list(self._protocols))
        try:
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            for path in self._files:
                try:
                    path.read_bytes()
                except OSError as unread:
                    raise ConfigError(f"{path} cannot be read: {unread.strerror}") from error
            raise ConfigError(
                f"--certificate {certificate} and --key {key} are no certificate with its key, in PEM and without a "
                f"passphrase: {error}"
            ) from error
        return context

    def _looks(self) -> list[tuple[int, int, int] | None]:
        """Return time, size and inode of each file, by which a replacement is noticed."""
        found: list[tuple[int, int, int] | None] = []
        for path in self._files:
            try:
                stat = path.stat()
            except OSError:  # being replaced, or gone: reading it tells
                found.append(None)
            else:
                found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return found
