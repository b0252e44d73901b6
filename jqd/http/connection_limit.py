"""Limits the number of connections, in total and for each address."""

from collections import OrderedDict
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Generic, Protocol, TypeVar

from jqd.domain.address import ip_of


class LimitedConnection(Protocol):
    """A connection that a `ConnectionLimit` counts."""

    address: str

    def give_way(self) -> None:
        """Close this connection at once: a new connection is opened instead."""
        ...


G = TypeVar("G", bound=LimitedConnection)
FEW = 4  # an address with fewer connections may use the reserved places: enough for a program, and `jqd` beside it


class ConnectionLimit(Generic[G]):
    """The open connections. If there are too many, one of them is closed for a new one.

    Closed is the connection that has been idle for longest: its client can open another one, and silent clients must
    not keep everybody out. A new connection is refused only if no connection is idle.

    Some of the allowed connections are reserved for addresses that have few. Otherwise two addresses that keep all
    their connections busy could use up the whole limit.
    """

    def __init__(self, total_max: int, address_max: int, new_max: int = 0) -> None:
        """`total_max`: most connections in all. `address_max`: most connections of one address. `new_max`: how many of
        `total_max` are reserved for addresses with few connections."""
        self.total_max = total_max
        self.address_max = address_max
        self.new_max = new_max
        self.present: set[G] = set()
        self._addresses: dict[str, _Address[G]] = {}
        self._idle: OrderedDict[G, None] = OrderedDict()

    def join(self, guest: G) -> bool:
        """Add a connection. If a limit is reached, close an idle connection for it; if none is idle, return False."""
        home = self._addresses.get(guest.address)
        if home is not None and home.present >= self.address_max and not self._make_room(home.idle):
            return False
        most = self.total_max if home is None or home.present < FEW else self.total_max - self.new_max
        if len(self.present) >= most and not self._make_room(self._idle):
            return False
        home = self._addresses.setdefault(guest.address, _Address())
        home.present += 1
        self.present.add(guest)
        return True

    def leave(self, guest: G) -> None:
        """Remove a connection. A second call does nothing."""
        if guest not in self.present:
            return
        self.mark_busy(guest)
        self.present.discard(guest)
        home = self._addresses[guest.address]
        home.present -= 1
        if not home.present:
            del self._addresses[guest.address]

    def mark_idle(self, guest: G) -> None:
        """Note that a connection is idle from now on."""
        if guest in self.present:
            self._idle[guest] = None
            self._addresses[guest.address].idle[guest] = None

    def mark_busy(self, guest: G) -> None:
        if guest in self._idle:
            del self._idle[guest]
            del self._addresses[guest.address].idle[guest]

    def idle(self) -> list[G]:
        """Return the idle connections; the longest idle one is first."""
        return list(self._idle)

    def _make_room(self, idle: "OrderedDict[G, None]") -> bool:
        if not idle:
            return False
        oldest = next(iter(idle))
        self.leave(oldest)  # its place is free at once; it closes in this turn of the event loop
        oldest.give_way()
        return True


class _Address(Generic[G]):
    """The number of connections from one address, and which of them are idle."""

    __slots__ = ("idle", "present")

    def __init__(self) -> None:
        self.present = 0
        self.idle: OrderedDict[G, None] = OrderedDict()


@lru_cache(maxsize=4_096)
def address_of(host: str) -> str:
    """Return the text under which connections from a host are counted: an IPv4 address, or the first 64 bits of an IPv6
    address."""
    address = ip_of(host)
    if not isinstance(address, IPv6Address):
        return host
    return str(address.ipv4_mapped or address.packed[:8].hex())
