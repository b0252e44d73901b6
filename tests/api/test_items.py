"""Counting what a body holds before anything of it is built."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.api import items
from jqd.api.items import has_values, json_items, json_lines, msgpack_items
from tests.api.fakes import JSON, MSGPACK, Edge

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
    old, items.SMALL_BYTES = items.SMALL_BYTES, 0
    try:
        found = json_items(body, 5) if array else []
    finally:
        items.SMALL_BYTES = old
    assert [msgspec.json.decode(item) for item in short] == array
    assert [msgspec.json.decode(item) for item in found] == array[:6]
    assert msgpack_items(msgspec.msgpack.encode(array)) == len(array)


@pytest.mark.parametrize(
    "tail",
    [b"", b"1", b"1,", b"1,]", b"1}", b"1]]", b"1]x", b'"', b"[1}]", b",]", b"nul]", b"1 2]", b"-]", b"[" * 5_000],
    ids=lambda tail: tail[:9],
)
def test_what_is_no_array_is_said(tail, monkeypatch):
    monkeypatch.setattr(items, "SMALL_BYTES", 0)
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        json_items(b"[" + tail, 10)
    monkeypatch.setattr(items, "SMALL_BYTES", 1_000_000)
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
    assert msgpack_items(head) is None


# ------------------------------------------------------------ what it costs

MIB = 1 << 20
# Each is of 16 MB, and is refused: the bodies that took 1.2 GB and a second of the loop.
LARGE = {
    "MessagePack integers": (MSGPACK, "b'\\xdd' + (16_000_000).to_bytes(4, 'big') + b'\\x01' * 16_000_000", 413),
    "MessagePack maps": (MSGPACK, "b'\\xdd' + (16_000_000).to_bytes(4, 'big') + b'\\x80' * 16_000_000", 413),
    "MessagePack tags": (
        MSGPACK,
        "b'\\x91\\x82\\xa4name\\xa1a\\xa4tags\\xdd' + (8_000_000).to_bytes(4, 'big') + b'\\xa1b' * 8_000_000",
        422,
    ),
    "JSON integers": (JSON, "b'[' + b'1,' * 8_000_000 + b'1]'", 413),
    "JSON maps": (JSON, "b'[' + b'{},' * 5_000_000 + b'1]'", 413),
    "JSON in one job": (JSON, "b'[' + b'[' + b'[],' * 5_000_000 + b'1]]'", 422),
    "JSON lines": ("application/x-ndjson", "b'1\\n' * 8_000_000", 413),
}
CHILD = """
import resource, sys, time, trio
from tests.api.fakes import Edge
body = {body}
async def ask():
    edge = Edge()
    await edge.call("GET", "/livez")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = await edge.call("POST", {path!r}, body, kind={kind!r}, headers={{"worker-id": "w"}})
    print(told.status, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
trio.run(ask)
"""


def cost(path: str, kind: str, body: str) -> tuple[int, int]:
    """Status and bytes that the process grew by, in a process of its own: what was once taken is not given back."""
    code = CHILD.format(path=path, kind=kind, body=body)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    status, kib = map(int, told.stdout.split())
    return status, kib * 1024


@pytest.mark.parametrize("name", LARGE)
def test_what_is_too_many_is_never_built(name):
    kind, body, status = LARGE[name]
    told, grown = cost("/v1/jobs", kind, body)
    assert told == status
    assert grown < 100 * MIB, "the body itself, joined and cut, is there twice or thrice"


def test_a_report_in_json_has_so_many_values(monkeypatch):
    told, grown = cost(
        "/done", JSON, 'b\'{"job_id":"x","type":"success","result":[\' + b\'[],\' * 5_000_000 + b\'1]}\''
    )
    assert told == 400
    assert grown < 100 * MIB


async def test_as_many_as_may_be_are_taken():
    edge = Edge()
    jobs = [{"name": "a", "argument": "," * 100}] * 10_000
    assert (await edge.call("POST", "/v1/jobs", jobs, kind=JSON)).status == 201
    assert (await edge.call("POST", "/v1/jobs", [*jobs, {}], kind=JSON)).status == 413
    assert len(edge.journal.jobs()) == 10_000
