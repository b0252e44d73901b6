"""The limits and the TLS files of a listener: a listening socket and its connections."""

from dataclasses import dataclass
from pathlib import Path

from jqd.domain.descriptors import INCOMING_MAX, open_files_max

OPEN_SHARE = 2  # by default, one in so many of the process's descriptors is for connections
ADDRESS_SHARE = 0.75  # of all connections for one address, which may be a load balancer, or all of loopback
NEW_SHARE = 8  # one in so many of all connections is for addresses that have fewer than `connection_limit.FEW`
LEAST = 8  # connections, however few descriptors there are


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """Limits for the connections and requests of one listening socket, and its TLS files."""

    connections_max: int | None = None
    """The most connections at the same time, from all addresses together. None: half of the file descriptors that this
    process may open."""
    address_connections_max: int | None = None
    """The most connections at the same time from one address (for IPv6, one /64). None: three quarters of all."""
    head_bytes_max: int = 24 << 10  # of a request's head: 16 KiB of headers, 4 KiB of target, and some more
    handshake_s: float = 10.0  # for the TLS handshake, three round trips, from the connection on
    head_s: float = 10.0  # from the first byte of a head to its last: most heads come in one packet
    request_s: float = 30.0  # from the first byte of a request to its last
    body_grace_s: float = 10.0  # before a body's rate counts: longer than a lost packet takes to come again
    body_rate: float = 1_024.0  # bytes a second that a body must have on average
    idle_s: float = 75.0  # above the idle time of common load balancers (60 s), so that they close first
    send_s: float = 20.0  # for sending one piece of an answer, beside the time that `send_rate` allows
    send_rate: float = 16_384.0  # bytes a second that a client must read at least
    linger_s: float = 5.0  # when closing, read on so long what a client still sends, so that it can read the answer
    linger_bytes: int = 64 << 20  # at most so much: four times the largest request
    grace_s: float = 2.0  # for requests under way when the listener closes
    certificate: tuple[Path, Path] | None = None
    """PEM files of a certificate and of its key. If given, the listener accepts only TLS."""

    clients: Path | None = None
    """A PEM file with certificate authorities. If given, each client needs a certificate from one of them;
    `certificate` is then required."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the paths of all files that are used for TLS; without TLS, none."""
        return () if self.certificate is None else (*self.certificate, *((self.clients,) if self.clients else ()))

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, float | int) and value <= 0:
                raise ValueError(f"{name} must be above 0, not {value}")

    @property
    def scheme(self) -> str:
        """Return the scheme of the listener's URLs."""
        return "https" if self.certificate else "http"

    def total(self) -> int:
        """Return how many connections there may be at once."""
        if self.connections_max is not None:
            return self.connections_max
        return min(max(open_files_max() // OPEN_SHARE, LEAST), INCOMING_MAX)

    def of_one_address(self) -> int:
        """Return how many connections one address may have."""
        if self.address_connections_max is not None:
            return self.address_connections_max
        return max(1, int(self.total() * ADDRESS_SHARE))

    def for_newcomers(self) -> int:
        """Return how many of all connections are reserved for addresses that have few connections. It is 0 if one
        address may have all connections."""
        return max(0, min(self.total() // NEW_SHARE, self.total() - self.of_one_address()))
