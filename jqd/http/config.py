"""Settings of a listener, each with its unit and reason."""

from dataclasses import dataclass
from pathlib import Path

from jqd.domain.descriptors import INCOMING_MAX, open_files_max

OPEN_SHARE = 2  # one part in so many of the descriptors is for who connects, where nobody has divided them
ADDRESS_SHARE = 0.75  # of all connections; a load balancer is one address, and so is everybody on loopback
NEW_SHARE = 8  # one part in so many of all connections is for addresses that have fewer than `connection_limit.FEW`
LEAST = 8  # connections: with fewer a listener is none


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """Limits of connections and requests."""

    connections_max: int | None = None
    """At once, of all addresses; None: half of the descriptors this process may open."""
    address_connections_max: int | None = None
    """At once, of one address (of IPv6, one /64); None: three quarters of all."""
    head_bytes_max: int = 24 << 10  # 16 KiB of headers, 4 KiB of target, and what stands between them
    handshake_s: float = 10.0  # of TLS, from the connection on: three round trips
    head_s: float = 10.0  # from the first byte of a head to its last: heads come in one packet
    request_s: float = 30.0  # from the first byte of a request to its last
    body_grace_s: float = 10.0  # of a body before its rate is looked at: longer than a lost packet takes to come again
    body_rate: float = 1_024.0  # bytes a second, on average: slower is no client of ours
    idle_s: float = 75.0  # above the idle time of common load balancers (60 s), so that they close first
    send_s: float = 20.0  # for one piece of an answer, and what `send_rate` gives its bytes
    send_rate: float = 16_384.0  # bytes a second that a client reads at least
    linger_s: float = 5.0  # a client that still sends while we close is listened to so long, so that it can read why
    linger_bytes: int = 64 << 20  # and so far: four times the largest request that is taken
    grace_s: float = 2.0  # for requests under way when the door closes
    certificate: tuple[Path, Path] | None = None
    """And its key, both PEM: TLS is spoken, and nothing else."""

    clients: Path | None = None
    """With a certificate: PEM of authorities; who comes must have a certificate of one of them."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files of TLS."""
        return () if self.certificate is None else (*self.certificate, *((self.clients,) if self.clients else ()))

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, float | int) and value <= 0:
                raise ValueError(f"{name} must be above 0, not {value}")

    @property
    def scheme(self) -> str:
        """Return the scheme of its URLs."""
        return "https" if self.certificate else "http"

    def total(self) -> int:
        """Return how many connections there may be at once."""
        if self.connections_max is not None:
            return self.connections_max
        return min(max(open_files_max() // OPEN_SHARE, LEAST), INCOMING_MAX)

    def of_one_address(self) -> int:
        """Return how many of them one address may have."""
        if self.address_connections_max is not None:
            return self.address_connections_max
        return max(1, int(self.total() * ADDRESS_SHARE))

    def for_newcomers(self) -> int:
        """Return how many are kept for addresses with few connections; none where one address may have all."""
        return max(0, min(self.total() // NEW_SHARE, self.total() - self.of_one_address()))
