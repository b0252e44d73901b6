"""The headers that a registration may add to its requests. Pure."""

import re
from collections.abc import Mapping

HEADERS_MAX = 32  # a handful is usual: a token, a route, a tenant
HEADERS_BYTES_MAX = 4_096  # of names and values together: common servers take 8 to 16 KiB, ours among them
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
)  # they say how the request travels or what is in it
OUR_PREFIXES = ("jqd-", "webhook-", "proxy-")

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")


def why_no_headers(headers: Mapping[str, str]) -> str | None:
    """What is wrong with them; None when nothing is. Values are never repeated: they may be secret."""
    if len(headers) > HEADERS_MAX:
        return f"at most {HEADERS_MAX} headers can be added, these are {len(headers)}"
    if (size := sum(len(name) + len(value) for name, value in headers.items())) > HEADERS_BYTES_MAX:
        return f"headers have at most {HEADERS_BYTES_MAX} bytes together, these have {size}"
    seen = set()
    for name, value in headers.items():
        low = name.lower()
        if not _NAME.fullmatch(name):
            return f"{name[:64]!r} is no name of a header"
        if low in OURS or low.startswith(OUR_PREFIXES):
            return f"the header {name} is the daemon's to set"
        if low in seen:
            return f"the header {name} is there twice, in upper and lower case"
        if not _VALUE.fullmatch(value):
            return f"the value of the header {name} must be printable ASCII, with no space at its ends"
        seen.add(low)
    return None


def merge(headers: list[tuple[str, str]], own: Mapping[str, str]) -> list[tuple[str, str]]:
    """Our headers with those of a registration, which take the place of ours of the same name."""
    if not own:
        return headers
    names = {name.lower() for name in own}
    return [*((name, value) for name, value in headers if name.lower() not in names), *own.items()]
