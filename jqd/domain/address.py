"""Addresses: host and port, as they stand in settings, URLs and sockets. Pure."""

import ipaddress
import re
from typing import NamedTuple
from urllib.parse import urlsplit

PORT_MAX = 65_535
WILDCARDS = ("0.0.0.0", "::", "0")  # noqa: S104 - recognised, not bound: no others can be told to come there
_HOST_PORT = re.compile(r"(\[[^\[\]/@\s]+\]|[0-9A-Fa-f:.]+|[^\[\]:/@\s]+):([0-9]{1,5})", re.ASCII)

IP = ipaddress.IPv4Address | ipaddress.IPv6Address


class Address(NamedTuple):
    """A host and a port; an IPv6 host without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return it as it stands in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> Address:
    """Return the address in `host:port` or `[::1]:port`. Raises ValueError saying what can be written."""
    match = _HOST_PORT.fullmatch(text)
    host = match[1].strip("[]") if match else ""
    # What looks like IPv6 is IPv6; else a host that was forgotten (`:1:2`) would pass for one.
    if match is None or int(match[2]) > PORT_MAX or ((":" in host or "[" in text) and not ip_of(host)):
        raise ValueError(f"{text!r} is not host:port; write one like 127.0.0.1:7420 or [::1]:7420")
    return Address(host, int(match[2]))


def ip_of(host: str) -> IP | None:
    """Return the IP address in a URL or a socket's name, without its zone; None for a name."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host. Of names only localhost: others may mean anything."""
    address = ip_of(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_http(url: str) -> bool:
    """Return whether a URL can be called: http or https, with a host, and with no impossible port."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def names_version(url: str) -> bool:
    """Return whether a URL's path has the `/v1` that clients add themselves."""
    return "v1" in urlsplit(url).path.split("/")
