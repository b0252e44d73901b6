"""Addresses (host and port) of settings, URLs and sockets."""

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

PORT_MAX = 65_535
WILDCARDS = ("0.0.0.0", "::", "0")  # noqa: S104 - hosts that only make sense for listening, not for connecting
_HOST_PORT = re.compile(r"(\[[^\[\]/@\s]+\]|[0-9A-Fa-f:.]+|[^\[\]:/@\s]+):([0-9]{1,5})", re.ASCII)

IP = ipaddress.IPv4Address | ipaddress.IPv6Address


class Address(NamedTuple):
    """A host and a port. The host of an IPv6 address has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address as it is written in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> Address:
    """Parse `host:port` or `[::1]:port`. Raises ValueError."""
    match = _HOST_PORT.fullmatch(text)
    host = match[1].strip("[]") if match else ""
    # A host with a colon must be an IPv6 address; otherwise `:1:2`, without a host, would be accepted.
    if match is None or int(match[2]) > PORT_MAX or ((":" in host or "[" in text) and not ip_of(host)):
        raise ValueError(f"{text!r} is not host:port; write one like 127.0.0.1:7420 or [::1]:7420")
    return Address(host, int(match[2]))


def ip_of(host: str) -> IP | None:
    """Return the IP address that a host is, without brackets and zone; None if the host is a name."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address, or `localhost`. False for any other name, as it may resolve to
    anything."""
    address = ip_of(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_http(url: str) -> bool:
    """Return whether a URL begins with http:// or https://, and names a host. A port may be missing, but must be
    valid."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def names_version(url: str) -> bool:
    """Return whether a URL's path contains `/v1`. Clients add `/v1` themselves, so a base URL must not have it."""
    return "v1" in urlsplit(url).path.split("/")
