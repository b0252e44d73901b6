"""Who may speak to this daemon at all: the guard in front of every route.

A browser carries any page's requests to any address that the machine it runs on can reach, this daemon's too. It cannot
hide three things about them: which site asks (`Sec-Fetch-Site`, `Origin`), which name was looked up (`Host`), and that
what it sends unasked has a type of its own or none (`Content-Type`). By these such requests are refused, whatever their
route. Programs send the first two never, and name their types.
"""

import ipaddress
import re
from dataclasses import dataclass

from jqd.api.message import Request
from jqd.api.problems import Problem

# What a page may send to another site without being asked first: none of them is a language of ours.
FORM_TYPES = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
OWN_SITES = frozenset({"same-origin", "none"})  # of Sec-Fetch-Site; `none` is what a person typed
QUOTE_LENGTH_MAX = 64
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/?#@\s]+)(?::(\d{0,5}))?")
_ORIGIN = re.compile(r"(https?)://(.+)")
_PORTS = {"http": "80", "https": "443"}


class Refused(Problem):
    """A request that the guard does not let through: the same on every surface."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What a daemon bound to an address lets through."""

    loopback: bool = True
    """Only this machine can reach it: then it has no other name than those of loopback."""
    hosts: tuple[str, ...] = ()
    """Further names it is reached by. On other addresses than loopback: none named means any."""

    def check(self, request: Request) -> None:
        """Judge a head, before its body is read. Raises Refused 400, 403, 415, 421."""
        if not request.path.startswith("/"):
            raise Refused(400, "the target of a request is a path; it begins with /")
        self._check_host(request.headers.get("host"))
        _check_site(request)
        length = request.headers.get("content-length", "0")
        _check_type(request, has_body=length.strip("0") != "" or "transfer-encoding" in request.headers)

    def check_body(self, request: Request) -> None:
        """Judge the whole request once more: there are bodies that no head announces. Raises Refused 415."""
        _check_type(request, has_body=bool(request.body))

    def _check_host(self, host: str | None) -> None:
        if host is None:
            return  # no browser leaves it out; health checks in HTTP/1.0 do
        match = _AUTHORITY.fullmatch(host)
        name = match.group(1).lower() if match else ""
        if match and (name in self.hosts or _is_loopback(name)):
            return
        # An address was not looked up, so nobody can have been sent here under a false name.
        if match and not self.loopback and (not self.hosts or _is_address(name)):
            return
        known = "localhost, 127.0.0.1 and [::1]" if self.loopback else "its address"
        raise Refused(
            421,
            f"Host {host[:QUOTE_LENGTH_MAX]!r} is not this daemon's; it is reached by {known}"
            f"{''.join(f', {each}' for each in self.hosts)}. Other names are given in the setting http.hosts",
        )


def is_loopback(bind: str) -> bool:
    """Whether only this machine reaches `host:port`. A name other than localhost may mean anything: it does not."""
    return _is_loopback(bind.rpartition(":")[0].lower())


def _check_site(request: Request) -> None:
    site = request.headers.get("sec-fetch-site", "none").strip().lower()
    if site not in OWN_SITES:
        raise _foreign("Sec-Fetch-Site", site)
    origin = request.headers.get("origin")
    if origin is None:
        return
    match = _ORIGIN.fullmatch(origin.strip().lower())
    port = match and f":{_PORTS[match[1]]}"
    if (
        not match
        or not port
        or match[2].removesuffix(port) != request.headers.get("host", "").lower().removesuffix(port)
    ):
        raise _foreign("Origin", origin)


def _foreign(header: str, value: str) -> Refused:
    return Refused(403, f"the request was made by a page of another site ({header}: {value[:QUOTE_LENGTH_MAX]})")


def _check_type(request: Request, *, has_body: bool) -> None:
    if "content-type" not in request.headers:
        if has_body:
            raise Refused(415, "there is no Content-Type; send application/msgpack or application/json, and say so")
    elif request.media_type() in FORM_TYPES or not request.media_type():
        kind = request.media_type()[:QUOTE_LENGTH_MAX]
        raise Refused(415, f"Content-Type {kind!r} is what pages send; send application/msgpack or application/json")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name.strip("[]")).is_loopback)
