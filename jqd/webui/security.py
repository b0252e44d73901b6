"""What a browser is told to refuse, and which requests the UI refuses. Pure.

Forms come from the UI's own pages only (`is_own_form`, and a token in each form); pages may be reached from anywhere,
for mail and chat link to them, but may not be framed. No page asks anything of another origin, or runs a script that is
not a file of ours.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from werkzeug.datastructures import Headers

from jqd.domain.address import ip_of

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # Not `no-referrer`: with that a browser sends `Origin: null` with forms of our own.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every answer."""
FRESH = "no-store"
"""Pages show what jobs carry: no cache keeps them."""


def is_own_form(headers: Headers | Mapping[str, str], scheme: str, public_origin: str = "") -> bool:
    """Return whether a form was sent by a page of this UI. What a browser says by `Sec-Fetch-Site` is taken. It leaves
    that out on plain HTTP to names of a network: there `Origin` must be the `scheme` of this UI and `Host`, or the
    origin that a proxy in front has."""
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "").lower()
    if site:
        return site == "same-origin"
    host = headers.get("host", "").lower()
    return bool(origin) and origin in (host and f"{scheme}://{host}", public_origin)


def is_own_host(host: str, known: Sequence[str]) -> bool:
    """Return whether a `Host` may be this UI: an IP address, localhost, or a name that was told.

    Where nobody logs in, any other name may be one that a foreign page has pointed at this machine.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return ip_of(name) is not None or name == "localhost" or name in {each.lower() for each in known}


def local_path(address: str) -> str:
    """Return where to go after a login: a path of this UI, else its first page."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "/"
    own = address.startswith("/") and not address.startswith("//") and not parts.scheme and not parts.netloc
    return address if own and "\\" not in address and address.isprintable() else "/"
