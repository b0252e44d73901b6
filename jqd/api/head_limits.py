"""Checks the head of a request against limits, so that a bad request is refused before its body is read."""

from urllib.parse import unquote_to_bytes

from jqd.api.problems import Problem
from jqd.domain.tenant import SEPARATOR
from jqd.http import RequestHead, too_large

HEADERS_MAX = 100  # no real client sends more
HEADER_BYTES_MAX = 16_384  # of all headers together, as common servers allow
TARGET_LENGTH_MAX = 16_384  # of path and query: a list's cursor in many partitions has some 14,000
LENGTH_DIGITS_MAX = 18  # of a Content-Length: a longer one is above any limit


def check_head(heading: RequestHead, bytes_max: int, *, is_native: bool) -> None:
    """Check a head against the limits. `bytes_max`: the most bytes of the body. `is_native`: whether the path belongs
    to jqd's own API.

    Raises Problem 404, 414, 415, 422, 431, Refused 413.
    """
    headers = heading.headers
    target_length = len(heading.path) + len(heading.query)
    if target_length > TARGET_LENGTH_MAX:
        raise Problem(414, f"path and query have {target_length} characters; a request may have {TARGET_LENGTH_MAX}")
    length = sum(map(len, headers)) + sum(map(len, headers.values()))
    if len(headers) > HEADERS_MAX:
        raise Problem(431, f"there are more than {HEADERS_MAX} headers")
    if length > HEADER_BYTES_MAX:
        raise Problem(431, f"the headers have {length} bytes; a request may have {HEADER_BYTES_MAX}")
    declared = headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > LENGTH_DIGITS_MAX or int(declared) > bytes_max):
        raise too_large(bytes_max)
    encoding = headers.get("content-encoding")
    if encoding is not None and encoding.strip().lower() not in ("", "identity"):
        raise Problem(415, f"Content-Encoding {encoding.strip().lower()[:32]!r} is not taken; send the body as it is")
    # Names in bodies are checked later, where they get a tenant (`Services.qualified_name`). Queries of the other APIs
    # have no names, and what they do not know there they ignore.
    named = any(SEPARATOR in text for text in (heading.path, *headers.values()))
    if named or (is_native and SEPARATOR.encode() in unquote_to_bytes(heading.query)):
        # The other APIs have no error for an invalid name: it does not exist.
        status = 422 if is_native else 404
        raise Problem(status, "path, query and headers name nothing with the character U+001F: no name has it")
