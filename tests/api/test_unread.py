"""Bodies that cannot be read: what is said of them is in our words, says where it is, and not in a decoder's."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.api import json_stream
from jqd.domain import decode_errors
from tests.api.edge import JSON, MSGPACK, Edge

NDJSON = "application/x-ndjson"
WIDE = b"1" + b"0" * 30
DEEP = b"[" * 2_000 + b"]" * 2_000
PARSERS = (
    "truncated",
    "utf-16",
    "recursion",
    "serialize",
    "opcode",
    "malformed",
    "codec",
    "Expected",
    "trailing",
    "` - at",
)
UNREAD: dict[str, tuple[str, bytes, int, str]] = {
    "empty": (JSON, b"", 400, "the body is empty; send"),
    "blank": (JSON, b" \n", 400, "the body is empty; send"),
    "empty MessagePack": (MSGPACK, b"", 400, "the body is empty; send"),
    "a wide integer": (
        JSON,
        b'{"name":"a","argument":{"k":[1,%b]}}' % WIDE,
        422,
        "argument/k/1: an integer of more than 64",
    ),
    "one of a thousand digits": (
        JSON,
        b'{"argument":%b}' % (WIDE * 200),
        400,
        "an integer in it has more than 64 bits",
    ),
    "nesting": (JSON, b'{"name":"a","argument":%b}' % DEEP, 400, "nests deeper than"),
    "nesting alone": (JSON, DEEP, 400, "nests deeper than"),
    "bytes": (
        JSON,
        b'{"name":"a","argument":{"x/y":[1,{"$bytes":"*"}]}}',
        422,
        'argument/x~1y/1: a map of "$bytes" alone',
    ),
    "no MessagePack within": (JSON, b'{"argument":{"$msgpack":1}}', 422, 'argument: a map of "$msgpack" alone'),
    "cut": (JSON, b'{"name":"a",', 400, "it ends before it is whole"),
    "cut MessagePack": (MSGPACK, b"\x81\xa4nam", 400, "it ends before it is whole"),
    "no MessagePack": (MSGPACK, b"\x81\xa4name\xc1", 400, "no value begins with '\\xc1' (byte 6)"),
    "two": (JSON, b'{"name":"a"} x', 400, "something stands behind its end (byte 14)"),
    "no colon": (JSON, b'{"name" 1}', 400, "there should be ':' (byte 8)"),
    "a huge number": (JSON, b'{"argument":1e999}', 400, "a number in it is out of range"),
    "half a pair": (JSON, b'{"name":"a","argument":"\\ud800"}', 400, "half a surrogate pair (byte 24)"),
    "half a pair as a key": (JSON, b'{"name":"a","argument":{"\\uDC00x":1}}', 400, "half a surrogate pair (byte 25)"),
    "no UTF-8": (JSON, b'{"name":"\xff"}', 400, "a text in it is no UTF-8"),
}


@pytest.mark.parametrize("case", UNREAD)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/cancel", "/job"])
async def test_what_cannot_be_read_is_told_in_our_words(path: str, case: str) -> None:
    kind, body, status, says = UNREAD[case]
    edge = Edge()
    told = await edge.call("POST", path, body, kind=kind, accept=JSON)
    assert told.status == (400 if path == "/job" else status)
    assert says in told.body["detail"]
    assert told.body["detail"].count("argument/k/1") <= 1
    assert not [word for word in PARSERS if word in told.body["detail"]]
    assert not edge.journal.frames
    if status == 422:
        (error,) = told.body["errors"]
        assert error["pointer"] == "/" + says.partition(":")[0]


async def test_the_others_of_an_array_are_taken() -> None:
    rows = b'{"name":"a"}\n{"name":"b","argument":[%b]}\n{"name":"c","argument":{"$bytes":"*"}}\n{"name":' % WIDE
    for kind, body in ((JSON, b"[" + rows.replace(b"\n", b",")[:-9] + b"]"), (NDJSON, rows)):
        told = await Edge().call("POST", "/v1/jobs", body, kind=kind, accept=JSON)
        assert told.status == 207
        errors: list[Any] = told.body["errors"]
        assert [error["pointer"] for error in errors[:2]] == ["/1/argument/0", "/2/argument"]
        assert not [word for word in PARSERS if word in str(errors)]


HALVES = (rb'"\ud800"', rb'"\udc00\ud800"', rb'{"\uD800":1}', rb'["\ud83dx", "\ud83d\ude00"]')


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("is_large", [False, True])
async def test_a_text_that_is_none_spoils_its_job_alone(
    half: bytes, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:
        monkeypatch.setattr(json_stream, "SMALL_BYTES", 0)
    well = rb'{"name":"a","argument":["\ud83d\ude00", "\\ud800"]}'
    rows = [well, b'{"name":"b","argument":%b}' % half, well]
    for kind, body in ((JSON, b"[" + b" , ".join(rows) + b"]"), (NDJSON, b"\n".join(rows))):
        edge = Edge()
        told = await edge.call("POST", "/v1/jobs", body, kind=kind, accept=JSON)
        assert (told.status, [bool(one) for one in told.body["job_ids"]]) == (207, [True, False, True])
        (error,) = told.body["errors"]
        assert (error["index"], "half a surrogate pair" in error["detail"]) == (1, True)


@given(st.lists(st.sampled_from([rb"\ud800", rb"\udbff", rb"\udc00", rb"\\", rb"\n", rb"\u0041", b"a", b"ud800"])))
def test_halves_are_what_the_decoder_of_python_leaves_alone(parts: list[bytes]) -> None:
    text = b'"' + b"".join(parts) + b'"'
    readable = decode_errors.without_halves(text)
    value = json.loads(text)
    assert (
        (decode_errors.half_at(text) is None) == (readable == text) == all(not 0xD800 <= ord(c) < 0xE000 for c in value)
    )
    assert msgspec.json.decode(readable) == re.sub("[\ud800-\udfff]", "\ufffd", value)
    assert len(readable) == len(text)


async def test_the_place_is_found_beside_much_else() -> None:
    value = msgspec.json.encode([[n, {"a": [n]}, {"$bytes": ""}] for n in range(20_000)])
    for bad, status in ((WIDE, 422), (b'{"$bytes":"*"}', 422)):
        body = b'{"name":"a","argument":[%b,{"b":[%b]}]}' % (value, bad)
        told = await Edge().call("POST", "/v1/jobs", body, kind=JSON, accept=JSON)
        assert (told.status, told.body["errors"][0]["pointer"]) == (status, "/argument/1/b/0")
