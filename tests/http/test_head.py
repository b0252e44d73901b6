"""What is a request, and what is none."""

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.http.body import CHUNKS_FREE, Chunked
from jqd.http.exchange import Exchange
from jqd.http.head import Head, check_start, read_head
from jqd.http.request import Refused
from tests.wire.corpus import BAD_CHUNKS, REFUSED, head


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


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    status, data = REFUSED[name]
    with pytest.raises(Refused) as refused:
        read_head(data)
    assert refused.value.status == status, refused.value.detail
    assert "\0" not in refused.value.detail


@pytest.mark.parametrize("coding", [b"gzip", b"chunked, gzip", b"identity", b"chunked, chunked"])
def test_a_body_whose_end_nobody_knows_is_refused_in_plain_words(coding: bytes) -> None:
    """RFC 9112 6.3: where chunked is not the last coding it is a 400, be the coding known or not."""
    with pytest.raises(Refused) as refused:
        read_head(head(b"Transfer-Encoding: " + coding))
    assert refused.value.status == 400
    assert refused.value.detail.startswith("Transfer-Encoding is not chunked alone, so nobody can tell where")


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


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_bad_chunks_are_refused(name: str) -> None:
    with pytest.raises(Refused):
        chunked(BAD_CHUNKS[name], [])


def test_a_body_of_tiny_chunks_is_refused_and_one_of_lines_is_not() -> None:
    """A chunk takes 2 µs, whatever is in it: 16 MiB of one byte each held the loop for 28 s."""
    with pytest.raises(Refused, match="send larger ones"):
        chunked(b"1\r\nx\r\n" * 2 * CHUNKS_FREE, [])
    line = b'{"name":"mail"}\n'
    assert chunked((b"10\r\n" + line + b"\r\n") * 9 * CHUNKS_FREE + b"0\r\n\r\n", [])[0] == line * 9 * CHUNKS_FREE


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
    wire: Any = SimpleNamespace(buffer=bytearray(b"he"), client=("127.0.0.1", 1))
    asked = Exchange(wire, read)
    assert (asked.read_nowait(), asked.whole) == (b"he", False)
    wire.buffer += b"lloGET"
    assert (asked.read_nowait(), asked.whole, bytes(wire.buffer)) == (b"llo", True, b"GET")
