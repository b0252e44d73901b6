"""What is a request, and what is none."""

from contextlib import suppress

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.doors.body import CHUNK_LINE_MAX, TRAILER_BYTES_MAX, Chunked, body_of
from jqd.doors.head import Head, Refused, check_start, read_head

HOST = b"Host: a\r\n"


def head(*lines: bytes, first: bytes = b"GET /livez HTTP/1.1", host: bytes = HOST) -> bytes:
    return first + b"\r\n" + host + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def test_a_head_is_read() -> None:
    read = read_head(
        b"POST /v1/jobs/a%2Fb%C3%A9?x=1&y=%zz HTTP/1.1\r\n"
        b"Host: [::1]:80\r\nX-A: \t v w\xe9 \r\nContent-Length: 12\r\n\r\n"
    )
    assert (read.method, read.raw_path, read.path) == ("POST", b"/v1/jobs/a%2Fb%C3%A9", "/v1/jobs/a/bé")
    assert (read.query, read.http_1_0, read.length, read.chunked) == (b"x=1&y=%zz", False, 12, False)
    assert read.headers == [(b"host", b"[::1]:80"), (b"x-a", b"v w\xe9"), (b"content-length", b"12")]
    assert read.keeps
    assert not read.expects


@pytest.mark.parametrize(
    ("data", "keeps"),
    [
        (head(), True),
        (head(b"Connection: close"), False),
        (head(b"Connection: x, Close"), False),
        (head(b"Connection: keep-alive", b"Connection: close"), False),
        (head(first=b"GET / HTTP/1.0"), False),
        (head(b"Connection: Keep-Alive", first=b"GET / HTTP/1.0", host=b""), True),
    ],
)
def test_who_wants_the_connection_kept(data: bytes, keeps: bool) -> None:
    assert read_head(data).keeps is keeps


@pytest.mark.parametrize(
    "lines",
    [
        (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: a"),
        (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Protocol: \xff", b"Sec-WebSocket-Version: 13"),
        (b"Upgrade: h2c", b"Content-Length: 4", b"Connection: upgrade"),
    ],
)
def test_an_upgrade_is_a_request_like_any_other(lines: tuple[bytes, ...]) -> None:
    read = read_head(head(*lines))
    assert read.keeps
    assert b"upgrade" not in dict(read.headers)


REFUSED = {
    "bare LF": (400, b"GET / HTTP/1.1\nHost: a\n\r\n\r\n"),
    "bare LF behind a header": (400, head(b"A: b\nC: d")),
    "CR within": (400, head(b"A: b\rC: d")),
    "folded": (400, head(b"A: b", b" c")),
    "folded by a tab": (400, head(b"A: b", b"\tc")),
    "folded length": (400, head(b"Content-Length:", b" 5")),
    "folded at first": (400, head(host=b" Host: a\r\n")),
    "NUL in a value": (400, head(b"A: \0")),
    "NUL in a name": (400, head(b"A\0: b")),
    "control": (400, head(b"A: \x1f")),
    "DEL": (400, head(b"A: \x7f")),
    "blank before the colon": (400, head(b"Content-Length : 3")),
    "no colon": (400, head(b"garbage")),
    "no name": (400, head(b": a")),
    "name not ASCII": (400, head(b"\xc3\xa9: a")),
    "lower-case method": (400, head(first=b"get / HTTP/1.1")),
    "unknown method": (400, head(first=b"FOO / HTTP/1.1")),
    "a method nobody serves": (400, head(first=b"PROPFIND / HTTP/1.1")),
    "CONNECT": (400, head(first=b"CONNECT a:80 HTTP/1.1")),
    "TRACE": (400, head(first=b"TRACE / HTTP/1.1")),
    "HTTP/9.9": (505, head(first=b"GET / HTTP/9.9")),
    "HTTP/2 preface": (505, b"PRI * HTTP/2.0\r\n\r\n"),
    "HTTP/1.2": (505, head(first=b"GET / HTTP/1.2")),
    "HTTP/0.9": (505, head(first=b"GET / HTTP/0.9")),
    "HTTP/1": (400, head(first=b"GET / HTTP/1")),
    "lower-case HTTP": (400, head(first=b"GET / http/1.1")),
    "no version": (400, head(first=b"GET /")),
    "two blanks": (400, head(first=b"GET  / HTTP/1.1")),
    "blank at the end": (400, head(first=b"GET / HTTP/1.1 ")),
    "a tab": (400, head(first=b"GET\t/ HTTP/1.1")),
    "absolute form": (400, head(first=b"GET http://a/livez HTTP/1.1")),
    "broken absolute form": (400, head(first=b"GET http://[::1/livez HTTP/1.1")),
    "two slashes": (400, head(first=b"GET //x HTTP/1.1")),
    "query only": (400, head(first=b"GET ?x HTTP/1.1")),
    "asterisk": (400, head(first=b"OPTIONS * HTTP/1.1")),
    "fragment": (400, head(first=b"GET /#a HTTP/1.1")),
    "fragment in the query": (400, head(first=b"GET /?a#b HTTP/1.1")),
    "target not ASCII": (400, head(first=b"GET /\xc3\xa9 HTTP/1.1")),
    "path not UTF-8": (400, head(first=b"GET /%ff HTTP/1.1")),
    "no host": (400, head(host=b"")),
    "two hosts": (400, head(b"host: a")),
    "two hosts in 1.0": (400, head(b"host: a", first=b"GET / HTTP/1.0")),
    "odd host": (400, head(host=b"Host: a/b\r\n")),
    "host with a user": (400, head(host=b"Host: a@b\r\n")),
    "two lengths": (400, head(b"Content-Length: 3", b"Content-Length: 4")),
    "a length twice": (400, head(b"Content-Length: 3", b"Content-Length: 3")),
    "lengths in a list": (400, head(b"Content-Length: 3, 3")),
    "length and chunks": (400, head(b"Content-Length: 3", b"Transfer-Encoding: chunked")),
    "chunks and length": (400, head(b"Transfer-Encoding: chunked", b"Content-Length: 3")),
    "negative length": (400, head(b"Content-Length: -3")),
    "length with a sign": (400, head(b"Content-Length: +3")),
    "length in words": (400, head(b"Content-Length: ten")),
    "empty length": (400, head(b"Content-Length:")),
    "length in hexadecimal": (400, head(b"Content-Length: 0x3")),
    "length in other digits": (400, head("Content-Length: ٣".encode())),
    "huge length": (400, head(b"Content-Length: " + b"9" * 30)),
    "other encoding": (400, head(b"Transfer-Encoding: gzip")),
    "two encodings": (501, head(b"Transfer-Encoding: gzip, chunked")),
    "chunked first": (400, head(b"Transfer-Encoding: chunked, gzip")),
    "chunked twice": (400, head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked")),
    "chunks in 1.0": (400, head(b"Transfer-Encoding: chunked", first=b"POST / HTTP/1.0")),
    "expectation": (417, head(b"Expect: a miracle")),
    "nothing": (400, b"\r\n\r\n"),
    "garbage": (400, b"\x00\x01\x02\r\n\r\n"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    status, data = REFUSED[name]
    with pytest.raises(Refused) as refused:
        read_head(data)
    assert refused.value.status == status, refused.value.detail
    assert "\0" not in refused.value.detail


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00",
        b"get /",
        b"\n",
        b"GET / HTTP/1.1\n",
        b"GET /\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"GET / HTTP/1.1\r\nA: b\n",
    ],
)
def test_what_cannot_become_a_head_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(Refused):
        check_start(data)


def test_the_beginning_of_a_good_head_is_waited_for() -> None:
    whole = head(b"A: b")
    for cut in range(len(whole)):
        check_start(whole[:cut])
    check_start(b"\r")


class Llhttp:
    """What another parser makes of it."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip(b" \t")))

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


PIECES = st.sampled_from(
    b"GET |POST /a |/|?| |HTTP/1.1|HTTP/1.0|\r\n|\n|\r|Host: a|A: b|:|Content-Length: |3|0|Transfer-Encoding: |chunked"
    b"|,|\t|\0|\xff|Connection: |Upgrade: h2c|upgrade|close|Expect: 100-continue|%41|#|//".split(b"|")
)


@given(st.lists(PIECES | st.binary(max_size=3), max_size=20), st.booleans())
def test_whatever_comes_is_a_head_or_refused(pieces: list[bytes], begun: bool) -> None:
    data = (b"GET / HTTP/1.1\r\nHost: a\r\n" if begun else b"") + b"".join(pieces)
    data = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    try:
        read = read_head(data)
    except Refused:
        return
    other = Llhttp()
    with suppress(httptools.HttpParserUpgrade):
        httptools.HttpRequestParser(other).feed_data(data)
    assert read.headers == [field for field in other.headers if field[0] != b"upgrade" or field in read.headers]


# ---------------------------------------------------------------- bodies


def chunked(data: bytes, cuts: list[int]) -> tuple[bytes, bytes]:
    """What the body is, and what is left behind it; `data` comes in pieces, cut there."""
    body, buffer, out = Chunked(), bytearray(), b""
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        buffer += data[start:end]
        if not body.done:
            out += body.take(buffer)
    if not body.done:
        raise EOFError
    return out, bytes(buffer)


def test_chunks_end_where_they_end() -> None:
    data = b'5\r\nhello\r\n1;a="b\xff";c\r\n \r\n00A\r\n0123456789\r\n0;x\r\nA: b\r\nC:\r\n\r\n'
    for cut in range(len(data) + 1):
        for second in range(cut, len(data) + 1, 7):
            assert chunked(data + b"GET", [cut, second]) == (b"hello 0123456789", b"GET")
    for cut in range(len(data)):
        with pytest.raises(EOFError):
            chunked(data[:cut], [])


BAD_CHUNKS = {
    "no size": b"\r\n",
    "words": b"zz\r\n",
    "sign": b"-1\r\n",
    "0x": b"0x1\r\na\r\n",
    "blank": b" 1\r\na\r\n",
    "blank behind": b"1 \r\na\r\n",
    "huge": b"1" * 9 + b"\r\n",
    "bare LF": b"1\na\r\n0\r\n\r\n",
    "bare LF behind": b"1\r\na\n0\r\n\r\n",
    "bare LF at the end": b"0\r\n\n",
    "bare LF behind the end": b"0\n\r\n",
    "CR alone": b"1\r\na\r0\r\n\r\n",
    "too much": b"1\r\nab\r\n0\r\n\r\n",
    "NUL": b"1;\0\r\na\r\n",
    "long": b"1;" + b"a" * CHUNK_LINE_MAX,
    "long trailer": b"0\r\n" + b"a: bbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n" * (TRAILER_BYTES_MAX // 32 + 1),
    "odd trailer": b"0\r\nGET / HTTP/1.1\r\n\r\n",
    "folded trailer": b"0\r\nA: b\r\n c\r\n\r\n",
}


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_bad_chunks_are_refused(name: str) -> None:
    with pytest.raises(Refused):
        chunked(BAD_CHUNKS[name], [])


CHUNK_PIECES = st.sampled_from(
    [
        b"0\r\n",
        b"\r\n",
        b"1\r\na\r\n",
        b"3\r\nabc\r\n",
        b"A: b\r\n",
        b";x",
        b"\n",
        b"\r",
        b"1",
        b" ",
        b"zz",
        b"\0",
        b"-",
    ]
)


@given(st.lists(CHUNK_PIECES | st.binary(max_size=2), max_size=12), st.booleans())
def test_what_we_take_for_chunks_another_parser_takes_alike(pieces: list[bytes], ends: bool) -> None:
    data = b"".join(pieces) + (b"0\r\n\r\n" if ends else b"")
    try:
        out, left = chunked(data, [])
    except (Refused, EOFError):
        return
    other = Llhttp()
    parser = httptools.HttpRequestParser(other)
    parser.feed_data(
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + data[: len(data) - len(left)]
    )
    assert (other.complete, other.body) == (True, out)


def test_a_counted_body_leaves_the_next_request() -> None:
    read = Head("POST", b"/", "/", b"", False, [], 5, False, True, False)
    body, buffer = body_of(read), bytearray(b"he")
    assert (body.take(buffer), body.done) == (b"he", False)
    buffer += b"lloGET"
    assert (body.take(buffer), body.done, bytes(buffer)) == (b"llo", True, b"GET")
