"""Decides which addresses a registration of a worker may make this daemon connect to.

The daemon connects to the URL of a registration, and shows what answered there in the message of a job. So nobody may
reach an address through the daemon that he could not reach without it:

    who registers          may name
    this machine           itself (loopback), private addresses, all others
    a private address      private addresses, all others
    any other              all others
    anybody                never: link-local addresses, clouds' metadata, multicast, "this network", reserved ones

The registration is also used by daemons on other machines. There a caller of "this machine" counts as one of a private
address, because the loopback addresses of those machines are not his.

    a callback             public addresses, and those in runner.callback_networks: whoever pushes may name one

`runner.worker_networks` replaces the first three rows: everybody may name addresses in these networks, and no others.
An address is judged when it is registered and again when a connection is made, because a name may lead elsewhere by
then. For a connection a name is looked up once, so the address that was judged is the one connected to.
"""

import enum
import hashlib
import socket
from collections.abc import Sequence
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

import trio

from jqd.domain.address import IP, ip_of
from jqd.runner.look_up import REGISTERING, look_up

LOOK_UP_S = 2.0  # for a name that is registered: if it cannot be looked up then, it is judged when it is connected to

METADATA = frozenset(
    map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42"))
)  # of Alibaba, Azure, Oracle, Amazon, Google, Scaleway; their others are link-local
THIS_NETWORK = ip_network("0.0.0.0/8")  # Linux takes it for itself
# Networks whose addresses lead to the IPv4 address in their last four bytes: translated (RFC 6052, 8215), "compatible".
CARRIERS = tuple(map(IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
# Here the operator of the translator chooses where the IPv4 address stands, so such an address counts as private.
LOCAL_CARRIER = IPv6Network("64:ff9b:1::/48")

# Of a name that is not found as well: a tenant must not learn which names and addresses the daemon's network has.
NOT_PUBLIC = "its host has no public address; a callback goes to others if their network is in runner.callback_networks"

MACHINE_IDS = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))  # the first that is not empty counts


class AddressPolicy(enum.IntEnum):
    """Where a caller or an address is: on this machine, in a private network, or outside. A caller may name addresses
    of his own class and of those farther away."""

    CALLBACK = -1
    """Callbacks, whoever pushed them; they have rules of their own."""
    OUTSIDE = 0
    INSIDE = 1
    """A caller or address in a private network."""
    LOOPBACK = 2
    """A caller or address on this machine (loopback)."""
    NEVER = 9


@cache
def machine() -> str:
    """Return an identifier of this machine: a digest of its secret machine id, and of its host name, since containers
    may share one id."""
    machine_id = next((text for path in MACHINE_IDS if path.exists() and (text := path.read_bytes().strip())), b"")
    machine_id += b"\0" + socket.gethostname().encode()
    return hashlib.blake2b(machine_id, digest_size=8, person=b"jqd").hexdigest()


def policy_here(policy: AddressPolicy, where: str) -> AddressPolicy:
    """Return the address policy on this machine for a registration made at machine `where`. Loopback counts only on the
    machine of the registration."""
    return min(policy, AddressPolicy.INSIDE) if where not in ("", machine()) else policy


def policy_of(peer: str | None) -> AddressPolicy:
    """Return the policy for a caller with this address. None: it uses a unix socket, or is this process."""
    if peer is None:
        return AddressPolicy.LOOPBACK
    address = ip_of(peer)
    if address is None or (_inner(address) is not None and getattr(address, "ipv4_mapped", None) is None):
        # Through a translator or a tunnel: the IPv4 address in it belongs to some other network.
        return AddressPolicy.OUTSIDE
    needed = policy_needed(address)  # NEVER: a neighbour's link-local address, for instance
    return AddressPolicy.INSIDE if needed is AddressPolicy.NEVER else needed


def policy_needed(address: IP) -> AddressPolicy:
    """Return the address policy that a caller needs at least to name an address; NEVER: nobody may name it."""
    inner = _inner(address)
    if inner is not None:
        return max(policy_needed(inner), AddressPolicy.INSIDE if address in LOCAL_CARRIER else AddressPolicy.OUTSIDE)
    if address.is_loopback:
        return AddressPolicy.LOOPBACK
    if (
        address in METADATA
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
        or address in THIS_NETWORK
    ):
        return AddressPolicy.NEVER
    is_inside = not address.is_global or (isinstance(address, IPv6Address) and address.is_site_local)
    return AddressPolicy.INSIDE if is_inside else AddressPolicy.OUTSIDE


def is_own(address: IP) -> bool:
    """Return whether an address belongs to this machine, so that traffic to it passes no firewall. Sends nothing."""
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((str(address), 9))
            return ip_of(str(asking.getsockname()[0])) == address
    except OSError:  # no way leads there
        return False


class SsrfGuard:
    def __init__(self, networks: Sequence[str] = (), callback_networks: Sequence[str] = ()) -> None:
        """`networks`: the only networks where workers may be; empty: the default rules. `callback_networks`: networks
        to which callbacks may go, beside public addresses.

        Raises ValueError for a text that is not a network."""
        self._networks = [ip_network(each, strict=False) for each in networks]
        self._callback_networks = [ip_network(each, strict=False) for each in callback_networks]

    def why_not(self, address: str, policy: AddressPolicy) -> str | None:
        """Return why a caller with this policy may not name an address; None: he may."""
        parsed = ip_of(address)
        if parsed is None:
            return f"{address} is no address"
        needed = policy_needed(parsed)
        if policy is AddressPolicy.CALLBACK:
            inner = _inner(parsed) or parsed
            known = needed is not AddressPolicy.NEVER and any(inner in network for network in self._callback_networks)
            is_public = needed is AddressPolicy.OUTSIDE and not is_own(inner)
            return None if known or is_public else NOT_PUBLIC
        if needed is AddressPolicy.NEVER:
            return f"{address} is link-local, of a cloud's metadata, multicast or reserved: no worker is there"
        if self._networks:
            inside = any((_inner(parsed) or parsed) in network for network in self._networks)
            return None if inside else f"{address} is in none of runner.worker_networks"
        if needed <= policy:
            return None
        if needed is AddressPolicy.LOOPBACK:
            return (
                f"{address} is the daemon's own machine, which only who registers from there may name; register at the"
                " daemon's loopback address, or give the address that the worker is reached by from there"
            )
        return (
            f"{address} is private, and the registration comes from a public address; list its network in"
            " runner.worker_networks of the daemon, or register from inside"
        )

    def judge_host(self, host: str, policy: AddressPolicy) -> str | None:
        """Return why a URL with this host may not be named by a caller with this policy; None: nothing is known against
        it. Does not look up names."""
        if ip_of(host) is None:
            return self.why_not("127.0.0.1", policy) if _is_localhost(host) else None
        return self.why_not(host, policy)

    async def judge_name(self, host: str, policy: AddressPolicy) -> str | None:
        """Look up the host of a URL, for at most LOOK_UP_S. Returns why a caller with this policy may not name it;
        None: he may, or the host was not found."""
        if ip_of(host) is not None or _is_localhost(host):
            return self.judge_host(host, policy)
        with trio.move_on_after(LOOK_UP_S):
            try:
                found = await look_up(host, 0, REGISTERING)
            except OSError:
                return None  # the name may be there later, and is judged then
            refused = [self.why_not(address, policy) for address in found]
            return refused[0] if refused and all(refused) else None
        return None


def _is_localhost(host: str) -> bool:
    name = host.rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost")


def _inner(address: IP) -> IPv4Address | None:
    if isinstance(address, IPv4Address) or address.is_loopback or address.is_unspecified:
        return None
    if any(address in network for network in CARRIERS):
        return IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
