"""Refuses requests that foreign web pages may have sent, before any route is called.

A browser sends any page's requests to any address that its machine can reach, including a daemon's. Three things in the
head give such a request away: the site that sends it (`Sec-Fetch-Site`, `Origin`), the name by which the daemon was
found (`Host`), and a media type that pages may send without a preflight request (`Content-Type`). Programs never send
the first two headers, and send other types.
"""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache

from jqd.domain import media
from jqd.domain.address import ip_of, is_loopback
from jqd.http.request import Foreign

# Types that a page may send to another site without a preflight. The API uses none of them.
FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
OWN_SITES = frozenset({"same-origin", "none"})  # accepted values of Sec-Fetch-Site; `none`: a person typed the URL
SENT_BY_PAGES = {"origin", "sec-fetch-site"}  # a page's request without a preflight has one of these headers
UNREGISTERED = (".local", ".internal")  # endings of names that nobody can register, as are names without a dot
QUOTE_LENGTH_MAX = 64
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/?#@\s]+)(?::(\d{0,5}))?")
_ORIGIN = re.compile(r"(https?)://(.+)")
_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True, slots=True)
class Guard:
    """Decides which requests a server accepts, by their heads."""

    loopback: bool = True
    """Whether only this machine can reach the server. If so, it is only known by names of loopback and by those in
    `hosts`."""
    hosts: tuple[str, ...] = ()
    """Additional names of the server. If it is empty and the server is not on loopback, any name is accepted, unless
    `is_open`."""
    is_open: bool = False
    """Whether the server needs no token. Then a page could attack it by a domain name that leads to the server's
    address. So only `hosts`, and names that nobody can register, are accepted."""

    def check(self, path: str, headers: Mapping[str, str], *, plain: Container[str] = ()) -> None:
        """Check the head of a request; header names are in lower case. `plain`: media types ("" for none) that the
        route accepts although web pages can send them, if no header says that a page did. Raises Foreign if a foreign
        web page may have sent the request."""
        if not path.startswith("/"):
            raise Foreign(400, "the target of a request is a path; it begins with /")
        self._check_host(headers.get("host"))
        _check_site(headers)
        length = headers.get("content-length", "0")
        self.check_type(headers, has_body=length.strip("0") != "" or "transfer-encoding" in headers, plain=plain)

    def check_type(self, headers: Mapping[str, str], *, has_body: bool, plain: Container[str] = ()) -> None:
        """Check the media type of a body. It is called again when the body was read, because a head need not announce a
        body. Raises Foreign.

        `plain`: media types ("" for none) that the route accepts although pages can send them. They are accepted only
        if the request has none of the headers that pages send.
        """
        if media.bare(headers.get("content-type", "")) in plain and not SENT_BY_PAGES & headers.keys():
            return
        kind = headers.get("content-type")
        if kind is None:
            if has_body:
                raise Foreign(415, f"there is no Content-Type; send {media.BOTH}, and say so")
            return
        kind = media.bare(kind)
        if kind in FORM_TYPES or not kind:
            quoted = repr(kind[:QUOTE_LENGTH_MAX])
            raise Foreign(415, f"Content-Type {quoted} is what pages send; send {media.BOTH}")

    def _check_host(self, host: str | None) -> None:
        if host is None:
            return  # browsers always send it; health checks in HTTP/1.0 do not
        if _is_ours(host, self.loopback, self.hosts, self.is_open):
            return
        known = "localhost, 127.0.0.1 and [::1]" if self.loopback else "its address"
        raise Foreign(
            421,
            f"Host {host[:QUOTE_LENGTH_MAX]!r} is none of this server's names; it is reached by {known}"
            f"{''.join(f', {each}' for each in self.hosts)}. A daemon has other names by the setting http.hosts, "
            "a worker by the URL it advertises",
        )


@lru_cache(maxsize=128)  # clients send few different ones; a header has at most 16 KB
def _is_ours(host: str, loopback: bool, hosts: tuple[str, ...], is_open: bool) -> bool:
    match = _AUTHORITY.fullmatch(host)
    if match is None:
        return False
    name = match.group(1).lower()
    # An IP address is always accepted: it was not looked up, so no false name led here.
    if loopback or name in hosts:
        return name in hosts or is_loopback(name)
    unnamed = ("." not in name or name.endswith(UNREGISTERED)) if is_open else not hosts
    return unnamed or is_loopback(name) or ip_of(name) is not None


def _check_site(headers: Mapping[str, str]) -> None:
    site = headers.get("sec-fetch-site", "none").strip().lower()
    if site not in OWN_SITES:
        raise _foreign("Sec-Fetch-Site", site)
    origin = headers.get("origin")
    if origin is None:
        return
    match = _ORIGIN.fullmatch(origin.strip().lower())
    port = match and f":{_PORTS[match[1]]}"
    if not match or not port or match[2].removesuffix(port) != headers.get("host", "").lower().removesuffix(port):
        raise _foreign("Origin", origin)


def _foreign(header: str, value: str) -> Foreign:
    return Foreign(403, f"the request was made by a page of another site ({header}: {value[:QUOTE_LENGTH_MAX]})")
