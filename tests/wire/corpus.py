"""Requests as nobody should send them, and some as everybody does: bytes, and what has to become of them.

The first half is told of heads and bodies by themselves (`tests/http/test_head.py`); all of it is sent over TCP.
"""

import json
import struct
from dataclasses import dataclass

from jqd.http.body import CHUNK_LINE_MAX, TRAILER_BYTES_MAX

HOST = b"Host: localhost\r\n"


def head(*lines: bytes, first: bytes = b"GET /livez HTTP/1.1", host: bytes = HOST) -> bytes:
    return first + b"\r\n" + host + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


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
    "two tokens": (400, head(b"Authorization: Bearer a", b"authorization: Bearer a")),
    "two tenants": (400, head(b"JQD-Tenant: a", b"X-A: b", b"jqd-tenant: b")),
    "two keys": (400, head(b"Idempotency-Key: a", b"Idempotency-Key: b")),
    "two types": (400, head(b"Content-Type: application/json", b"Content-Type: text/plain")),
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
    "a length beside another encoding": (400, head(b"Transfer-Encoding: gzip", b"Content-Length: 3")),
    "chunks in 1.0": (400, head(b"Transfer-Encoding: chunked", first=b"POST / HTTP/1.0")),
    "expectation": (417, head(b"Expect: a miracle")),
    "101 headers": (431, head(*[b"A: b"] * 100)),
    "nothing": (400, b"\r\n\r\n"),
    "garbage": (400, b"\x00\x01\x02\r\n\r\n"),
}

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

# ---------------------------------------------------------------- over TCP

JOB = json.dumps({"name": "wire", "argument": "x" * 30}).encode()
JOBS = json.dumps([{"name": "wire", "argument": n} for n in range(3)]).encode()
BATCH = json.dumps({"jobs": [{"job_id": "a", "name": "nobody knows this one", "argument": 1}]}).encode()
JSON = b"Content-Type: application/json\r\nAccept: application/json\r\n"
CLOSE = b"Connection: close\r\n"
H2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WEBSOCKET = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGVzdA==\r\n"


@dataclass(frozen=True, slots=True)
class Case:
    """What is sent, and what is known of the answers."""

    data: bytes
    statuses: tuple[int, ...] | None = None
    """Of all answers, in order; None: whatever they are."""
    ends: bool = False
    """The client says at once that it sends no more; else it waits until it is told goodbye."""


def _push(*more: bytes, path: bytes = b"/v1/jobs", body: bytes = JOB, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    lines = b"Content-Length: %d\r\n" % size + b"".join(more)
    return b"POST %b HTTP/1.1\r\n%b%b%b\r\n%b" % (path, HOST, JSON, lines, body)


def _chunked(chunks: bytes, path: bytes = b"/v1/jobs") -> bytes:
    return b"POST %b HTTP/1.1\r\n%b%bTransfer-Encoding: chunked\r\n\r\n%b" % (path, HOST, JSON, chunks)


def _get(*lines: bytes, first: bytes = b"GET /livez HTTP/1.1") -> bytes:
    return first + b"\r\n" + HOST + b"".join(lines) + b"\r\n"


def _frame(kind: int, payload: bytes, *, stream: int = 1, flags: int = 5) -> bytes:
    """One frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


SETTINGS = _frame(4, b"", stream=0, flags=0)

# What is the same for a daemon and a worker.
ANYWHERE: dict[str, Case] = {
    **{
        f"head: {name}": Case(data, (status,), ends=True)
        for name, (status, data) in REFUSED.items()
        if name != "nothing"
    },
    **{f"chunks: {name}": Case(_chunked(data), (400,), ends=True) for name, data in BAD_CHUNKS.items()},
    **{
        f"h2c upgrade {settings!r}": Case(
            _get(b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: %b\r\n" % settings)
            + _get(CLOSE),
            (200, 200),
        )
        for settings in (b"a", b"AAAA", b"AAIAAABk", b"", b"\xff")
    },
    "websocket": Case(_get(WEBSOCKET) + _get(CLOSE), (200, 200)),
    "websocket, odd protocol": Case(_get(WEBSOCKET, b"Sec-WebSocket-Protocol: \xff\r\n") + _get(CLOSE), (200, 200)),
    "websocket, frames behind": Case(_get(WEBSOCKET) + b"\x81\x05hello\x88\x00", (200, 400)),
    "websocket, a body": Case(_get(WEBSOCKET, CLOSE, b"Content-Length: 5\r\n") + b"hello"),
    "h2, odd method": Case(H2 + SETTINGS + _frame(1, b"\x02\x01\xff\x86\x84\x41\x01a"), (505,)),
    "h2, CONNECT": Case(H2 + SETTINGS + _frame(1, b"\x02\x07CONNECT\x41\x01a"), (505,)),
    "h2, odd path": Case(H2 + SETTINGS + _frame(1, b"\x82\x86\x04\x02/\xff\x41\x01a"), (505,)),
    "h2, 2,000 PRIORITY": Case(
        H2 + SETTINGS + b"".join(_frame(2, b"\0\0\0\0\x10", stream=n, flags=0) for n in range(1, 4_001, 2)), (505,)
    ),
    "tls": Case(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), (400,)),
    "nothing": Case(b"", (), ends=True),
    "line ends only": Case(b"\r\n" * 40, (), ends=True),
    "half a head": Case(_get()[:20], (400,), ends=True),
    "close": Case(_get(CLOSE), (200,)),
    "1.0": Case(_get(first=b"GET /livez HTTP/1.0"), (200,)),
    "1.0, kept": Case(_get(b"Connection: keep-alive\r\n", first=b"GET /livez HTTP/1.0") + _get(CLOSE), (200, 200)),
    "close, a byte behind": Case(_get(CLOSE) + b"x", (200,)),
    "close, lines behind": Case(_get(CLOSE) + b"\r\n\r\n", (200,)),
    "close, a request behind": Case(_get(CLOSE) + _get(), (200,)),
    "1.0, a byte behind": Case(_get(first=b"GET /livez HTTP/1.0") + b"\0", (200,)),
    "pipelined": Case(_get() * 5 + _get(CLOSE), (200,) * 6),
    "pipelined, the third is none": Case(_get() * 2 + b"nonsense\r\n\r\n" + _get(), (200, 200, 400)),
    "head of 1 MB": Case(_get(b"X: " + b"a" * (1 << 20) + b"\r\n")),
    "10,000 headers": Case(_get(b"A: b\r\n" * 10_000), (431,)),
    "target of 100 KB": Case(_get(first=b"GET /" + b"a" * 100_000 + b" HTTP/1.1"), (414,)),
    "expectation that nobody meets": Case(_get(b"Expect: 200-ok\r\n"), (417,)),
}

# For a daemon; the number of jobs follows from the answers.
DAEMON: dict[str, Case] = {
    "push": Case(_push(CLOSE), (201,)),
    "push, lines behind": Case(_push(CLOSE) + b"\r\n", (201,)),
    "push, a byte behind": Case(_push(CLOSE) + b"\0", (201,)),
    "pushes, pipelined": Case(_push() + b"\r\n" + _push(body=JOBS) + _push(CLOSE), (201, 201, 201)),
    "push in chunks": Case(_chunked(b"%x;a=b\r\n%b\r\n0\r\nA: b\r\n\r\n" % (len(JOB), JOB)) + _get(CLOSE), (201, 200)),
    "push by the other surface": Case(_push(CLOSE, path=b"/job", body=b'{"name": "wire", "argument": 1}'), (201,)),
    "cut body": Case(_push()[:-3], (400,), ends=True),
    "cut chunks": Case(_chunked(b"%x\r\n%b" % (len(JOB), JOB)), (400,), ends=True),
    "length too short": Case(_push(length=len(JOB) - 5), (400, 400)),
    "two requests out of one": Case(
        _push(b"Transfer-Encoding: chunked\r\n", body=b"0\r\n\r\n" + _push()), (400,), ends=True
    ),
    "too large": Case(_push(body=b"x" * (1 << 20), length=20 << 20), (413,)),
    "too large, all of it": Case(_push(body=bytes(20 << 20)), (413,)),
    "too large, asked first": Case(_push(b"Expect: 100-continue\r\n", body=b"", length=20 << 20), (413,)),
    "gzip": Case(_push(b"Content-Encoding: gzip\r\n"), (415,)),
    "no type": Case(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", (415,)),
    "another name": Case(b"GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n", (421,)),
    "no such path": Case(_get(CLOSE, first=b"GET /nowhere HTTP/1.1"), (404,)),
    "slashes within": Case(_get(CLOSE, first=b"GET /v1//jobs HTTP/1.1"), (404,)),
    "no such method": Case(_get(CLOSE, first=b"PUT /v1/jobs HTTP/1.1"), (405,)),
    "msgpack that is none": Case(
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
        b"Accept: application/json\r\n"
        b"Content-Length: 3\r\n\r\n\x91\x81\xc1" + _get(CLOSE),
        (400, 200),
    ),
}

# For a worker.
WORKER: dict[str, Case] = {
    "batch": Case(_push(CLOSE, path=b"/", body=BATCH), (200,)),
    "batch, lines behind": Case(_push(CLOSE, path=b"/", body=BATCH) + b"\r\n", (200,)),
    "batches, pipelined": Case(_push(path=b"/", body=BATCH) * 3 + _push(CLOSE, path=b"/", body=BATCH), (200,) * 4),
    "no batch": Case(_push(CLOSE, path=b"/", body=b"[1"), (400,)),
    "cut batch": Case(_push(path=b"/", body=BATCH)[:-3], (400,), ends=True),
    "cancel of nothing": Case(_get(CLOSE, first=b"DELETE /?job_id=x HTTP/1.1"), (404,)),
    "too large": Case(_push(path=b"/", body=bytes(1 << 20), length=1 << 40), (413,)),
    "no such method": Case(_get(CLOSE, b"Content-Type: application/json\r\n", first=b"PUT / HTTP/1.1"), (405,)),
}
