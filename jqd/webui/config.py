"""Settings of the web UI's process, checked when they are made."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from jqd.domain.address import Address, is_loopback, parse
from jqd.domain.errors import ConfigError

BIND_DEFAULT = "127.0.0.1:7422"
NOTE = "ui"  # note of the tokens derived for logins, shown in lists of tokens
SESSION_S = 12 * 3600.0  # a working day: how long a login lasts
CHECK_S = 3.0  # between checks whether a login's token is valid: 500 pages check 170 times a second, 0.5 ms each
SESSIONS_MAX = 1_000  # logged-in browsers at once, some 100 KB each; the one unused for longest ends first
TIMEOUT_S = 5.0  # for a daemon's answer, as a person waits for it
BODY_BYTES_MAX = 4 << 20  # of a form: an argument of 1 MiB takes up to three times as much in one
FIELDS_MAX = 200  # of a form: the largest has some 20; two million empty ones took 2 s and 400 MB to read
LOGIN_BYTES_MAX = 16 << 10  # of a form that needs no login: a token has some 60 characters, an address 2,000


@dataclass(frozen=True)
class UiConfig:
    """The settings of `jqd ui`. Raises ConfigError."""

    urls: Sequence[str]
    """URLs of daemons of one store; the next is asked when one does not answer."""
    bind: str = BIND_DEFAULT
    """HOST:PORT; port 0 for any free one."""
    token: str | None = None
    """The token whose rights everybody has who reaches the UI, without a login."""
    certificate: Path | None = None
    """File in PEM. With it and `key` the UI speaks TLS."""
    key: Path | None = None
    hosts: Sequence[str] = ()
    """Host names of this UI, beside the machine's addresses and localhost."""
    insecure: bool = False
    """Allow other machines without a login."""
    public_url: str = ""
    """Where browsers find the UI, behind a proxy that ends TLS: https://queue.example. Empty: where it listens."""

    def __post_init__(self) -> None:
        public = urlsplit(self.public_url)
        if self.public_url and (
            public.scheme not in ("http", "https") or not public.hostname or public.path.strip("/")
        ):
            raise ConfigError(f"--public-url {self.public_url}: it must be https://NAME, without a path")
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("TLS needs both, --certificate FILE and --key FILE")
        if self.token and not self.may_be_open:
            raise ConfigError(
                f"whoever reaches {self.public_url or self.bind} would have the rights of the token that the UI was "
                "given: leave --token (JQD_TOKEN) out, and people log in with their own; or bind to loopback, without "
                "--public-url; or say --insecure"
            )

    @property
    def address(self) -> Address:
        """Return the address to listen at. Raises ConfigError."""
        try:
            return parse(self.bind)
        except ValueError as error:
            raise ConfigError(f"--bind: {error}") from error

    @property
    def may_be_open(self) -> bool:
        """Whether the UI may be open without a login, if the daemon requires no token or `token` is set."""
        return self.insecure or (is_loopback(self.address.host) and not self.public_url)

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None

    @property
    def scheme(self) -> str:
        """Return the scheme of the UI itself, without a proxy."""
        return "https" if self.has_tls else "http"

    @property
    def is_secret(self) -> bool:
        """Whether browsers reach the UI by TLS, so that the cookie may be restricted to TLS."""
        return self.has_tls or urlsplit(self.public_url).scheme == "https"

    @property
    def public_origin(self) -> str:
        """Return the origin of `public_url`, as browsers send it; empty if it is not set."""
        public = urlsplit(self.public_url)
        return f"{public.scheme}://{public.netloc}".lower() if self.public_url else ""

    @property
    def names(self) -> Sequence[str]:
        """Return all host names of this UI."""
        return [*self.hosts, *filter(None, [urlsplit(self.public_url).hostname])]
