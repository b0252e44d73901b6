"""Parses the head of a request strictly.

Two parsers must accept it. The first is a regular grammar in this file without variants (no bare line ends, folded
lines or control characters, exactly one blank where one belongs). The second is llhttp, which checks lengths and
encodings.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

import httptools

from jqd.http.request import Refused, RequestHead

Headers = list[tuple[bytes, bytes]]

HEADERS_MAX = 100  # no real client sends more
LENGTH_DIGITS_MAX = 18  # of a Content-Length; a longer one is above any limit
METHODS = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))

# Headers that are used here and may occur only once: of two, a proxy may have checked the other one.
SINGLE = frozenset(
    b"""authorization content-encoding content-type host idempotency-key jqd-batch-id jqd-lease-id jqd-tenant origin
    sec-fetch-site worker-id x-skygear-api-key""".split()
)

SEND = "send the body as it is, in chunks or with a Content-Length"
ENDLESS = f"Transfer-Encoding is not chunked alone, so nobody can tell where the body ends; {SEND}"

_METHOD = re.compile(rb"[A-Z]+")
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_VALUE = rb"[^\x00-\x08\x0a-\x1f\x7f]*"
_HEAD = re.compile(rb"([A-Z]+) ([!-~]+) HTTP/1\.([01])\r\n(?:" + _TOKEN + rb":" + _VALUE + rb"\r\n)*\r\n")
_START = re.compile(rb"[A-Z]+ [!-~]+ HTTP/1\.[01]\r\n")
_LINE = re.compile(rb"([A-Z]+) ([!-~]+) HTTP/([0-9])\.([0-9])\r\n")
_FIELD = re.compile(_TOKEN + rb":" + _VALUE)
_TARGET = re.compile(rb"/(?!/)[!\"$->@-~]*(?:\?[!\"$-~]*)?")
_HOST = re.compile(rb"[0-9A-Za-z._~!$&'()*+;=%:\[\]-]*")


@dataclass(slots=True, eq=False)
class Head:
    """The head of a request, with header names in lower case. Requests with equal heads share one object."""

    method: str
    raw_path: bytes
    path: str
    query: bytes
    http_1_0: bool
    headers: Headers
    length: int
    """The number of bytes of the body; 0 if there is no body, or it is chunked."""
    chunked: bool
    keeps: bool
    """Whether the client wants to keep the connection open after this request."""
    expects: bool
    """Whether the client waits for a 100 Continue before it sends the body."""
    heading: RequestHead = field(init=False)
    """The same head in the form that applications get."""

    def __post_init__(self) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self.headers}
        self.heading = RequestHead(self.method, self.path, self.raw_path.decode("ascii"), self.query, headers)


class _Reader:
    """Collects the headers that llhttp finds while it parses a head."""

    __slots__ = ("headers",)

    def __init__(self) -> None:
        self.headers: Headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip(b" \t")))


def read_head(data: bytes) -> Head:
    """Parse a head. `data`: everything from the request line to the empty line. Raises Refused."""
    if data.count(b"\n") > HEADERS_MAX + 2:  # first, as it is cheap
        raise Refused(431, f"there are more than {HEADERS_MAX} headers")
    line = _HEAD.fullmatch(data)
    if line is None:
        raise _refusal(data)
    method, target, minor = line.groups()
    check_method(method)
    path = check_target(target)
    reader = _Reader()
    try:
        httptools.HttpRequestParser(reader).feed_data(data)
    except httptools.HttpParserUpgrade:
        reader.headers = [field for field in reader.headers if field[0] != b"upgrade"]  # RFC 9110 7.8: may be ignored
    except httptools.HttpParserError as error:
        if "invalid `transfer-encoding`" in str(error).lower():
            raise Refused(400, ENDLESS) from None
        raise Refused(400, f"the head of the request is not understood: {error}") from None
    raw_path, _, query = target.partition(b"?")
    head = Head(method.decode(), raw_path, path, query, minor == b"0", reader.headers, 0, False, True, False)
    _interpret(head)
    return head


def check_method(method: bytes) -> None:
    """Check the method of a request. Raises Refused with status 400 if it is unknown. The usual status would be 501,
    but would count as an error of the daemon."""
    if method in METHODS:
        return
    if _METHOD.fullmatch(method) is None:
        raise Refused(400, "a request begins with its method in capitals")
    raise Refused(400, f"the method is none that is known here; send {b', '.join(sorted(METHODS)).decode()}")


def check_target(target: bytes) -> str:
    """Check the target of a request, and return its decoded path. Raises Refused."""
    if _TARGET.fullmatch(target) is None:
        raise Refused(400, "the target is no path: it begins with one slash, and a fragment is never sent")
    return _path(target.partition(b"?")[0])


def check_single(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Check that no header of SINGLE occurs twice; names are in lower case. Raises Refused."""
    seen = [name for name, _ in headers if name in SINGLE]
    if len(seen) != len(set(seen)):
        twice = next(name for name in seen if seen.count(name) > 1)
        raise Refused(400, f"the header {twice.decode()} stands there twice; of it there is one")


def check_start(data: bytes | bytearray) -> None:
    """Check the beginning of a head that is still incomplete. Raises Refused if it cannot become a valid head."""
    if data[:1] == b"\x16":
        raise Refused(400, "this looks like TLS; plain HTTP is spoken here")
    if not data or data == b"\r":
        return
    if not 0x41 <= data[0] <= 0x5A:
        raise Refused(400, "a request begins with its method in capitals")
    at = data.find(b"\n")
    if at >= 0 and _START.match(data) is None:
        raise _refusal(bytes(data))
    while at >= 0:
        if data[at - 1] != 0x0D:
            raise Refused(400, "a line of the head ends without a carriage return")
        at = data.find(b"\n", at + 1)


def _interpret(head: Head) -> None:
    """Set those fields of a head that follow from its headers: the body's length, whether it is chunked, and whether
    the client keeps the connection. Raises Refused."""
    check_single(head.headers)
    has_host, lengths, encodings, connection, expect = False, None, None, None, None
    for name, value in head.headers:
        if name == b"host":
            has_host = True
            if _HOST.fullmatch(value) is None:
                raise Refused(400, "Host is no host")
        elif name == b"content-length":
            if lengths is not None or not value.isdigit() or len(value) > LENGTH_DIGITS_MAX:
                raise Refused(400, "Content-Length is no length of a body, or stands there twice")
            lengths = int(value)
        elif name == b"transfer-encoding":
            encodings = value if encodings is None else b"twice"
        elif name == b"connection":
            connection = value if connection is None else connection + b"," + value
        elif name == b"expect":
            expect = value
    if not has_host and not head.http_1_0:
        raise Refused(400, "the request has no Host header; it needs one")
    if encodings is not None:
        if lengths is not None or head.http_1_0:
            raise Refused(400, "Transfer-Encoding stands beside Content-Length, or in HTTP/1.0")
        if encodings.lower() != b"chunked":
            raise Refused(501, f"the one Transfer-Encoding understood is chunked; {SEND}")
        head.chunked = True
    head.length = lengths or 0
    tokens = () if connection is None else tuple(each.strip() for each in connection.lower().split(b","))
    head.keeps = b"close" not in tokens and (not head.http_1_0 or b"keep-alive" in tokens)
    if expect is not None and not head.http_1_0:
        if expect.lower() != b"100-continue":
            raise Refused(417, "the one expectation understood is 100-continue")
        head.expects = True


def _path(raw: bytes) -> str:
    try:
        return unquote_to_bytes(raw).decode() if b"%" in raw else raw.decode("ascii")
    except UnicodeDecodeError:
        raise Refused(400, "the path is no UTF-8 behind its percent signs") from None


def _refusal(data: bytes) -> Refused:
    """Return the error for a malformed head. It does not quote the head, which may contain secrets."""
    _, _, headers = data.partition(b"\n")
    line = _LINE.match(data)
    if line is None:
        return Refused(400, "the first line is no request line: METHOD /path HTTP/1.1, one blank between, in ASCII")
    if line[3] != b"1" or line[4] not in (b"0", b"1"):
        return Refused(505, "this is HTTP/1.1 and HTTP/1.0; no other version is spoken here")
    for number, row in enumerate(headers.split(b"\n"), start=2):
        if not row.endswith(b"\r"):
            return Refused(400, f"line {number} of the head ends without a carriage return")
        if row == b"\r":
            break
        if row[:1] in (b" ", b"\t"):
            return Refused(400, f"line {number} of the head goes on from the one before it; that is no longer HTTP")
        if _FIELD.fullmatch(row[:-1]) is None:
            return Refused(400, f"line {number} of the head is no header: name, colon, value, no control characters")
    return Refused(400, "the head of the request is not understood")
