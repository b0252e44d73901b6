"""Settings of the web UI's process. Frozen, and checked when they are made."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jqd.domain.address import Address, is_loopback, parse
from jqd.domain.errors import ConfigError

BIND_DEFAULT = "127.0.0.1:7422"
SESSION_S = 12 * 3600.0  # a working day: the token of a browser lasts no longer
SESSIONS_MAX = 1_000  # logged-in browsers at once, some 100 KB each; the one unused for longest goes first
LIVE_MAX = 1_000  # streams of open pages at once; a page that gets none is as it was when it was loaded
TIMEOUT_S = 5.0  # for an answer of a daemon: a person waits for it
BODY_BYTES_MAX = 4 << 20  # of a form: an argument of 1 MiB takes up to three times as much in one


@dataclass(frozen=True)
class UiConfig:
    """What `jqd ui` is told. Raises ConfigError."""

    urls: Sequence[str]
    """Of the daemons of one store; the next is asked when one does not answer."""
    bind: str = BIND_DEFAULT
    """HOST:PORT; port 0 for any free one."""
    token: str | None = None
    """Everybody who reaches the UI has its rights, and nobody logs in."""
    certificate: Path | None = None
    """With `key`: the UI speaks TLS."""
    key: Path | None = None
    hosts: Sequence[str] = ()
    """Names that browsers know this UI by, beside the machine's addresses and localhost."""
    insecure: bool = False
    """Let the network in without a login."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("TLS needs both, --certificate FILE and --key FILE")
        if self.token and not self.may_be_open:
            raise ConfigError(
                f"whoever reaches {self.bind} would have the rights of the token that the UI was given: leave --token "
                "out, and people log in with their own; or bind to loopback; or say --insecure"
            )

    @property
    def address(self) -> Address:
        """Where it listens. Raises ConfigError."""
        try:
            return parse(self.bind)
        except ValueError as error:
            raise ConfigError(f"--bind: {error}") from error

    @property
    def may_be_open(self) -> bool:
        """Whether people may come in without a login, where the daemon asks for none or there is a token for all."""
        return self.insecure or is_loopback(self.address.host)

    @property
    def has_tls(self) -> bool:
        return self.certificate is not None
