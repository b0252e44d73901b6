"""Limits connections: how many, from which address, and which is idle for longest. Pure."""

from collections import OrderedDict
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Generic, Protocol, TypeVar

from jqd.domain.address import ip_of


class LimitedConnection(Protocol):
    """A connection, as the limit sees it."""

    address: str

    def give_way(self) -> None:
        """Close now: another connection needs the place."""
        ...


G = TypeVar("G", bound=LimitedConnection)
FEW = 4  # connections that an address gets of the part for newcomers: enough for a program, and for `jqd` beside it


class ConnectionLimit(Generic[G]):
    """The present connections, and which has to give way when there are too many.

    The one that has been idle for longest goes: an idle connection holds nothing, and a client that wants it again
    opens another, while turning the newcomer away would let silent connections keep everybody out. Only when nobody
    is idle the newcomer is turned away.

    A part is for addresses that have few: two that keep all of theirs busy would have everything else.
    """

    def __init__(self, total_max: int, address_max: int, new_max: int = 0) -> None:
        """`new_max`: how many are kept for addresses with few connections."""
        self.total_max = total_max
        self.address_max = address_max
        self.new_max = new_max
        self.present: set[G] = set()
        self._addresses: dict[str, _Address[G]] = {}
        self._idle: OrderedDict[G, None] = OrderedDict()

    def join(self, guest: G) -> bool:
        """Add a connection; return False when there is no place for it."""
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
        """Remove a connection. Doing so twice does no harm."""
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
        """Return the idle connections, the longest idle first."""
        return list(self._idle)

    def _make_room(self, idle: "OrderedDict[G, None]") -> bool:
        if not idle:
            return False
        oldest = next(iter(idle))
        self.leave(oldest)  # its place counts as free at once; it closes within this turn of the loop
        oldest.give_way()
        return True


class _Address(Generic[G]):
    """The connections of one address."""

    __slots__ = ("idle", "present")

    def __init__(self) -> None:
        self.present = 0
        self.idle: OrderedDict[G, None] = OrderedDict()


@lru_cache(maxsize=4_096)
def address_of(host: str) -> str:
    """Return the owner of a peer's address: an IPv4 address, or the /64 that one owner of IPv6 has."""
    address = ip_of(host)
    if not isinstance(address, IPv6Address):
        return host
    return str(address.ipv4_mapped or address.packed[:8].hex())
