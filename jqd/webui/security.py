"""Response headers that protect pages, and checks of requests.

Forms are accepted from the UI's own pages only (`is_own_form`, and a token in each form). Any site may link to a page,
but none may show it in a frame. Pages request nothing from other origins, and run only the UI's own scripts.
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
    # Not `no-referrer`: browsers would send `Origin: null` with the UI's own forms.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every response."""
FRESH = "no-store"
"""`Cache-Control` of pages: no cache keeps them, as they show the content of jobs."""


def is_own_form(headers: Headers | Mapping[str, str], scheme: str, public_origin: str = "") -> bool:
    """Return whether a form was sent by a page of this UI. The header `Sec-Fetch-Site` decides, if it is there;
    browsers leave it out over plain HTTP to another machine. Without it, `Origin` must be `scheme://` with the `Host`
    of the request, or `public_origin`, the origin of the proxy before the UI."""
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "").lower()
    if site:
        return site == "same-origin"
    host = headers.get("host", "").lower()
    return bool(origin) and origin in (host and f"{scheme}://{host}", public_origin)


def is_own_host(host: str, known: Sequence[str]) -> bool:
    """Return whether the header `Host` may mean this UI: an IP address, localhost, or a name in `known`.

    Without logins this prevents DNS rebinding: a foreign site may let its own name point at this machine.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return ip_of(name) is not None or name == "localhost" or name in {each.lower() for each in known}


def local_path(address: str) -> str:
    """Return where to go after a login: `address` if it is a path of this UI, else `/`."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "/"
    own = address.startswith("/") and not address.startswith("//") and not parts.scheme and not parts.netloc
    return address if own and "\\" not in address and address.isprintable() else "/"
