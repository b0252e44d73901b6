"""The guard in front of every route: refuses requests that foreign web pages may have sent.

A browser carries any page's requests to any address that the machine it runs on can reach, ours too. It cannot
hide three things about them: which site asks (`Sec-Fetch-Site`, `Origin`), which name was looked up (`Host`), and that
what it sends unasked has a type of its own or none (`Content-Type`). By these such requests are refused, whatever their
route. Programs send the first two never, and name their types.
"""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache

from jqd.domain import media
from jqd.domain.address import ip_of, is_loopback
from jqd.http.request import Foreign

# What a page may send to another site without being asked first: none of them is a language of ours.
FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
OWN_SITES = frozenset({"same-origin", "none"})  # of Sec-Fetch-Site; `none` is what a person typed
SENT_BY_PAGES = {"origin", "sec-fetch-site"}  # one of them with whatever is sent unasked
UNREGISTERED = (".local", ".internal")  # of networks' own names, like those of containers; so is one without a dot
QUOTE_LENGTH_MAX = 64
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/?#@\s]+)(?::(\d{0,5}))?")
_ORIGIN = re.compile(r"(https?)://(.+)")
_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True, slots=True)
class Guard:
    """What a server bound to an address accepts."""

    loopback: bool = True
    """Only this machine can reach it: then it has no other name than those of loopback."""
    hosts: tuple[str, ...] = ()
    """Further names it is reached by. On other addresses than loopback: none named means any, unless it is open."""
    is_open: bool = False
    """Nobody needs a token, so a page that has its own name lead here would get in: beside `hosts` only names are
    ours that nobody registers."""

    def check(self, path: str, headers: Mapping[str, str], *, plain: Container[str] = ()) -> None:
        """Judge a head (names in lower case), before its body is read. `plain`: see `check_type`. Raises Foreign."""
        if not path.startswith("/"):
            raise Foreign(400, "the target of a request is a path; it begins with /")
        self._check_host(headers.get("host"))
        _check_site(headers)
        length = headers.get("content-length", "0")
        self.check_type(headers, has_body=length.strip("0") != "" or "transfer-encoding" in headers, plain=plain)

    def check_type(self, headers: Mapping[str, str], *, has_body: bool, plain: Container[str] = ()) -> None:
        """Judge the type of a body; also after it is read, for no head has to announce one. Raises Foreign. `plain`:
        types, "" for none, that a call takes although pages can send them: pages name their origin."""
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
            return  # no browser leaves it out; health checks in HTTP/1.0 do
        if _is_ours(host, self.loopback, self.hosts, self.is_open):
            return
        known = "localhost, 127.0.0.1 and [::1]" if self.loopback else "its address"
        raise Foreign(
            421,
            f"Host {host[:QUOTE_LENGTH_MAX]!r} is none of this server's names; it is reached by {known}"
            f"{''.join(f', {each}' for each in self.hosts)}. A daemon has other names by the setting http.hosts, "
            "a worker by the URL it advertises",
        )


@lru_cache(maxsize=128)  # clients say few; a header has at most 16 KB
def _is_ours(host: str, loopback: bool, hosts: tuple[str, ...], is_open: bool) -> bool:
    match = _AUTHORITY.fullmatch(host)
    if match is None:
        return False
    name = match.group(1).lower()
    # An address was not looked up, so nobody can have been sent here under a false name.
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
