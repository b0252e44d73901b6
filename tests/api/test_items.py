"""Counting what a body holds before anything of it is built."""

import json
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.api import json_stream
from jqd.api.json_stream import has_values, json_items, json_lines
from jqd.domain.array_split import array_items
from tests.api.edge import JSON, MSGPACK, Edge

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)
blanks = st.text(" \t\r\n", max_size=3).map(str.encode)


def count(value: object) -> int:
    match value:
        case list():
            return 1 + sum(map(count, value))
        case dict():
            return 1 + sum(1 + count(item) for item in value.values())  # keys are texts, too
    return 1


@given(st.lists(values, max_size=8), blanks)
def test_items_are_found_as_the_decoder_finds_them(array, blank):
    body = blank + b"[" + blank + (blank + b"," + blank).join(map(msgspec.json.encode, array)) + blank + b"]" + blank
    short = json_items(body, 5)
    old, json_stream.SMALL_BYTES = json_stream.SMALL_BYTES, 0
    try:
        found = json_items(body, 5) if array else []
    finally:
        json_stream.SMALL_BYTES = old
    assert [msgspec.json.decode(item) for item in short] == array
    assert [msgspec.json.decode(item) for item in found] == array[:6]
    assert array_items(msgspec.msgpack.encode(array)) == len(array)


@pytest.mark.parametrize(
    "tail",
    [b"", b"1", b"1,", b"1,]", b"1}", b"1]]", b"1]x", b'"', b"[1}]", b",]", b"nul]", b"1 2]", b"-]", b"[" * 5_000],
    ids=lambda tail: tail[:9],
)
def test_what_is_no_array_is_said(tail, monkeypatch):
    monkeypatch.setattr(json_stream, "SMALL_BYTES", 0)
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        json_items(b"[" + tail, 10)
    monkeypatch.setattr(json_stream, "SMALL_BYTES", 1_000_000)
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        json_items(b"[" + tail, 10)


@given(values)
def test_values_are_never_counted_too_few(value):
    body = msgspec.json.encode(value)
    assert not has_values(body, count(value) + body.count(b"[]") + body.count(b"{}") + 1)
    assert has_values(body, max(1, count(value) - 1)) or count(value) == 1


def test_signs_in_texts_are_no_values():
    body = msgspec.json.encode(['"\\,:[{' * 1000, {"a": "\\"}, 1])
    assert not has_values(body, 8)
    assert has_values(body, 4)


def test_lines():
    assert json_lines(b"\n\n 1 \r\n\t\n2\n\r3", 10) == [b"1 ", b"2", b"3"]
    assert json_lines(b"1\n2\n3\n4", 2) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("head", [b"", b"\x80", b"\xdc\x00", b"\xdd\x00\x00\x00", b"\xc0", b"\xdf\x00\x00\x00\x01"])
def test_what_begins_no_array_has_no_items(head):
    assert array_items(head) is None


# ------------------------------------------------------------ what it costs

MIB = 1 << 20
# Path, type, body and answer: bodies of 16 MB that took up to 1.2 GB and a second of the loop before they were refused.
LARGE = {
    "MessagePack integers": (
        "/v1/jobs",
        MSGPACK,
        "b'\\xdd' + (16_000_000).to_bytes(4, 'big') + b'\\x01' * 16_000_000",
        413,
    ),
    "MessagePack maps": (
        "/v1/jobs",
        MSGPACK,
        "b'\\xdd' + (16_000_000).to_bytes(4, 'big') + b'\\x80' * 16_000_000",
        413,
    ),
    "MessagePack tags": (
        "/v1/jobs",
        MSGPACK,
        "b'\\x92\\x80\\x82\\xa4name\\xa1a\\xa4tags\\xdd' + (8_000_000).to_bytes(4, 'big') + b'\\xa1b' * 8_000_000",
        422,
    ),
    "MessagePack fields": (
        "/v1/jobs",
        MSGPACK,
        "b'\\x92\\x80\\xdf' + (2_000_000).to_bytes(4, 'big')"
        " + b''.join(b''.join(b'\\xa6%06x\\x01' % n for n in range(m, m + 1000)) for m in range(0, 2_000_000, 1000))",
        422,
    ),
    "JSON integers": ("/v1/jobs", JSON, "b'[' + b'1,' * 8_000_000 + b'1]'", 413),
    "JSON maps": ("/v1/jobs", JSON, "b'[' + b'{},' * 5_000_000 + b'1]'", 413),
    "JSON in one job": ("/v1/jobs", JSON, "b'[{},' + b'[' + b'[],' * 5_000_000 + b'1]]'", 422),
    "JSON lines": ("/v1/jobs", "application/x-ndjson", "b'1\\n' * 8_000_000", 413),
    "a report in JSON": (
        "/done",
        JSON,
        'b\'{"job_id":"x","type":"success","result":[\' + b\'[],\' * 5_000_000 + b\'1]}\'',
        400,
    ),
}
CHILD = """
import json, resource, sys, trio
from tests.api.edge import Edge
async def ask():
    edge = Edge()
    await edge.call("GET", "/livez")
    for path, kind, body in json.loads(sys.argv[1]):
        body = eval(body)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        told = await edge.call("POST", path, body, kind=kind, headers={"worker-id": "w"})
        print(told.status, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
trio.run(ask)
"""


def test_what_is_too_many_is_never_built():
    """Measured in a process of its own: what was once taken is not given back, so only growth tells."""
    asked = json.dumps([row[:3] for row in LARGE.values()])
    command = [sys.executable, "-c", CHILD, asked]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    for (name, row), line in zip(LARGE.items(), told, strict=True):
        status, grown_kib = map(int, line.split())
        assert status == row[3], name
        assert grown_kib * 1024 < 100 * MIB, f"{name}: the body itself, joined and cut, is there twice or thrice"


async def test_as_many_as_may_be_are_taken():
    edge = Edge()
    jobs = [{"name": "a", "argument": "," * 100}] * 10_000
    assert (await edge.call("POST", "/v1/jobs", jobs, kind=JSON)).status == 201
    assert (await edge.call("POST", "/v1/jobs", [*jobs, {}], kind=JSON)).status == 413
    assert len(edge.journal.jobs()) == 10_000
