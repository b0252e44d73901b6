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
    """Settings of `jqd ui`. The constructor raises ConfigError for settings that do not go together."""

    urls: Sequence[str]
    """URLs of daemons that share a store. If one does not answer, the next is asked."""
    bind: str = BIND_DEFAULT
    """HOST:PORT to listen at; port 0 takes any free one."""
    token: str | None = None
    """If it is set, nobody logs in, and everybody who reaches the UI has the rights of this token."""
    certificate: Path | None = None
    """Certificate file in PEM. With it and `key` the UI speaks TLS."""
    key: Path | None = None
    hosts: Sequence[str] = ()
    """Host names by which browsers may call this UI, besides IP addresses and localhost."""
    insecure: bool = False
    """Serve other machines even if nobody has to log in."""
    public_url: str = ""
    """URL under which browsers reach the UI through a proxy that ends TLS, such as https://queue.example. Empty: no
    proxy."""

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
        """Whether these settings allow use without a login: on loopback without a proxy, or with `insecure`. A daemon
        that requires tokens still makes a login necessary, unless `token` is set."""
        return self.insecure or (is_loopback(self.address.host) and not self.public_url)

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None

    @property
    def scheme(self) -> str:
        """Scheme that the UI itself speaks. A proxy before it may speak another to browsers."""
        return "https" if self.has_tls else "http"

    @property
    def is_secret(self) -> bool:
        """Whether browsers reach the UI by TLS, so that the cookie can be restricted to TLS."""
        return self.has_tls or urlsplit(self.public_url).scheme == "https"

    @property
    def public_origin(self) -> str:
        """`Origin` that browsers send for pages under `public_url`; empty if that is not set."""
        public = urlsplit(self.public_url)
        return f"{public.scheme}://{public.netloc}".lower() if self.public_url else ""

    @property
    def names(self) -> Sequence[str]:
        """Host names of this UI: `hosts`, and the one in `public_url`."""
        return [*self.hosts, *filter(None, [urlsplit(self.public_url).hostname])]
