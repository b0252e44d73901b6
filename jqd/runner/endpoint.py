"""Checks a worker's URL and fills in its placeholders. Checks the headers that a registration adds to each request.
Pure.

http(s)://host[:port][/path]      of any worker
…/mail/{name}/{job_id}            of a web hook: the jobtype and the id of the job, percent-encoded
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlsplit

URL_LENGTH_MAX = 2_048
PLACES = ("{name}", "{job_id}")
FORM = "http(s)://host[:port][/path]"

HEADERS_MAX = 32  # a handful is usual: a token, a route, a tenant
HEADERS_BYTES_MAX = 4_096  # of names and values together: common servers take 8 to 16 KiB, ours among them
# Headers that only the daemon sets: they describe the connection or the body.
OURS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
OUR_PREFIXES = ("jqd-", "webhook-", "proxy-")

_HOST = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?"
)
_IPV6 = re.compile(r"[0-9A-Fa-f:.]{2,45}")
_PATH = re.compile(r"[!$%&'()*+,./0-9:;=@A-Z_a-z~-]*")
_PLACE = re.compile("|".join(map(re.escape, PLACES)))
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")


def why_no_url(url: str, *, filled: bool, queried: bool = False) -> str | None:
    """Return what is wrong with a worker's URL; None: nothing. `filled`: whether its path may have the placeholders
    PLACES. `queried`: whether it may have a query."""
    if len(url) > URL_LENGTH_MAX:
        return f"has more than {URL_LENGTH_MAX} characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"cannot be read ({error})"
    if parts.scheme not in ("http", "https"):
        return "does not start with http:// or https://"
    if parts.username is not None or parts.password is not None:
        return "holds a user name or password, which would show in logs"
    if "#" in url or ("?" in url and not queried):
        return "has a fragment" if queried else "has a query or fragment"
    host = parts.hostname or ""
    pattern = _IPV6 if "[" in parts.netloc else _HOST
    if not pattern.fullmatch(host):
        return "names no host" if not host else f"has a host that cannot be: {host[:100]!r}"
    if port == 0:
        return "has port 0"
    path = _PLACE.sub("", parts.path)
    if path != parts.path and not filled:
        return "has places to be filled in, which only style webhook knows: it is sent one job a request"
    if "{" in path or "}" in path:
        return f"has braces; of a web hook {' and '.join(PLACES)} are filled in, and nothing else"
    if (
        not _PATH.fullmatch(path + parts.query.replace("?", ""))
        or url != url.strip()
        or any(c in url for c in "\t\r\n")
    ):
        return "has characters in it that must be percent-encoded"
    return None


def host_of(url: str) -> str:
    return urlsplit(url).hostname or ""


def server_of(url: str) -> tuple[str, str, int]:
    """Return (scheme, host, port) of a valid URL. A URL without a port has the default port of its scheme."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def fill(url: str, name: str, job_id: str) -> str:
    return _PLACE.sub(lambda place: _segment(name if place[0] == "{name}" else job_id), url)


def _segment(text: str) -> str:
    """Percent-encode a segment of a path. A segment of dots alone would mean this or the parent folder, so it is
    encoded twice."""
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%252E")


def why_no_headers(headers: Mapping[str, str]) -> str | None:
    """Return what is wrong with headers; None: nothing. The text never contains values, which may be secret."""
    if len(headers) > HEADERS_MAX:
        return f"at most {HEADERS_MAX} headers can be added, these are {len(headers)}"
    if (size := sum(len(name) + len(value) for name, value in headers.items())) > HEADERS_BYTES_MAX:
        return f"headers have at most {HEADERS_BYTES_MAX} bytes together, these have {size}"
    seen = set()
    for name, value in headers.items():
        low = name.lower()
        if not _HEADER_NAME.fullmatch(name):
            return f"{name[:64]!r} is no name of a header"
        if low in OURS or low.startswith(OUR_PREFIXES):
            return f"the header {name} is the daemon's to set"
        if low in seen:
            return f"the header {name} is there twice, in upper and lower case"
        if not _HEADER_VALUE.fullmatch(value):
            return f"the value of the header {name} must be printable ASCII, with no space at its ends"
        seen.add(low)
    return None


def merge(headers: list[tuple[str, str]], own: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the daemon's headers and a registration's `own`, which replace the daemon's of the same name."""
    names = {name.lower() for name, _ in own}
    return [*((name, value) for name, value in headers if name.lower() not in names), *own]
