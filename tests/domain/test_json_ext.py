"""What JSON cannot say: written without loss, and read back as what it was."""

import base64
import json
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain import json_ext
from jqd.domain.json_ext import FormError

TEXT_GARBLED = b"\xa2\xff\x41"


class Pairs(list[Any]):
    """A map with any keys, twice perhaps."""


def shown(packed: bytes) -> Any:
    """MessagePack as a JSON client sees it."""
    return json.loads(msgspec.json.encode(json_ext.show(msgspec.Raw(packed))))


def back(told: Any) -> bytes:
    """The MessagePack of what a JSON client says."""
    return msgspec.msgpack.encode(json_ext.read(json.dumps(told).encode()))


def same(one: bytes, other: bytes) -> bool:
    """The same value, whatever sizes its parts announce themselves with."""
    a, b = (
        msgpack.unpackb(each, object_pairs_hook=Pairs, strict_map_key=False, unicode_errors="surrogateescape")
        for each in (one, other)
    )
    return repr(a) == repr(b)


@pytest.mark.parametrize(
    ("value", "view"),
    [
        (None, None),
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
        (9007199254740993, 9007199254740993),
        ("\u3042", "\u3042"),
        (b"\x00\xff", {"$bytes": "AP8="}),
        ([1, [b""]], [1, [{"$bytes": ""}]]),
        ({"a": {"b": 1.5}}, {"a": {"b": 1.5}}),
        ({}, {}),
        ({"$later": 1}, {"$later": 1}),
        ({"$bytes": "x", "b": 1}, {"$bytes": "x", "b": 1}),
    ],
    ids=repr,
)
def test_what_is_shown_is_read_back(value, view):
    packed = msgpack.packb(value)
    assert shown(packed) == view
    assert same(back(view), packed)


@pytest.mark.parametrize(
    "packed",
    [
        *map(
            msgpack.packb,
            [
                {1: "x", "1": "y"},
                {"a": {None: b""}},
                {"$bytes": "eA=="},
                {"$msgpack": 1},
                [float("nan")],
                float("-inf"),
                msgpack.ExtType(5, b"\x01"),
                [msgpack.Timestamp(-(2**60), 5)],
            ],
        ),
        b"\x82\xa1a\x01\xa1a\x02",
        b"\x81\x91\x01\x02",
        b"\x81\x80\x00",
        b"\x92" + TEXT_GARBLED + b"\x01",
        b"\x91" * 500 + b"\xc1",
    ],
    ids=repr,
)
def test_what_json_has_no_word_for_is_shown_as_it_is_packed(packed: bytes) -> None:
    view = shown(packed)
    assert view == {"$msgpack": base64.b64encode(packed).decode()}
    if packed[-1:] != b"\xc1":
        assert back(view) == packed


@pytest.mark.parametrize(
    "packed",
    [b"\x91" * 5_000 + b"\xc0", b"\xc7\x0c\xff" + b"\xff" * 12, b"\xc1", b"", b"\xa5a"],
)
def test_what_cannot_be_shown_is_named_as_it_is(packed):
    assert list(shown(packed)) == ["$msgpack"]


packable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["$bytes", "$", "$msgpack"])
    | st.binary(max_size=8)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$bytes", "$msgpack", "a"]), inner, max_size=2)
        | st.lists(st.tuples(inner, inner), max_size=3).map(lambda rows: Pairs(rows))
    ),
    max_leaves=12,
)


def pack(value: Any) -> bytes:
    match value:
        case Pairs():
            packed: bytes = msgpack.Packer().pack_map_header(len(value))
            return packed + b"".join(pack(part) for row in value for part in row)
        case list():
            packed = msgpack.Packer().pack_array_header(len(value))
            return packed + b"".join(map(pack, value))
        case dict():
            return pack(Pairs(value.items()))
    told: bytes = msgpack.packb(value)
    return told


@given(packable)
def test_nothing_is_lost_on_the_way(value):
    packed = pack(value)
    assert same(back(shown(packed)), packed)


@pytest.mark.parametrize(
    "told",
    [
        {"$bytes": 1},
        {"$bytes": "x"},
        {"$bytes": "\u3042"},
        {"$msgpack": "wQ=="},
        {"$msgpack": "AQE="},
        {"$msgpack": None},
    ],
    ids=str,
)
def test_what_looks_like_a_form_and_is_none_is_refused(told):
    with pytest.raises(FormError, match=r'a map of "\$\w+" alone means .*; push one of your own'):
        json_ext.read(json.dumps([told]).encode())


@pytest.mark.parametrize(
    ("text", "pointer", "why"),
    [
        (b'[1, {"a/b": [{"x": {"$bytes": "*"}}]}]', "/1/a~1b/0/x", 'a map of "$bytes" alone'),
        (b'[{"$bytes": ""}, {"a": [[], {}, 1.5], "b": 1}, {"m": [[1, 18446744073709551616]]}]', "/2/m/0/1", "64 bits"),
        (b"-9223372036854775809", "", "64 bits"),
    ],
)
def test_where_something_is_wrong_is_told(text: bytes, pointer: str, why: str) -> None:
    with pytest.raises((FormError, OverflowError)):
        msgspec.msgpack.encode(json_ext.read(text))
    found = json_ext.fault_of(text)
    assert (found[0], why in found[1]) == (pointer, True)


def test_other_maps_stay_what_they_are():
    for told in ({"$x": 1}, {"$bytes": 1, "a": 2}, {"a": "$bytes"}):
        assert json_ext.read(json.dumps(told).encode()) == told
    assert json_ext.read(rb'{"\u0024bytes": "AA=="}') == b"\0"


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**64 - 1), max_size=20))
def test_numbers_are_the_same_among_few_and_among_many(numbers):
    text = json.dumps(numbers).encode()
    many = text[:-1] + (b"," if numbers else b"") + b"1.5," * json_ext.FEW_BYTES + b"2]"
    assert json_ext.read(text) == json_ext.read(text, json_ext.FEW_BYTES + 1) == numbers
    assert json_ext.read(many)[: len(numbers)] == numbers


@pytest.mark.parametrize("number", ["1e309", "-1e400", "9" * 400 + ".5"])
@pytest.mark.parametrize("of_bytes", [0, json_ext.FEW_BYTES + 1])
def test_a_number_that_is_too_large_is_refused_among_few_and_among_many(number, of_bytes):
    with pytest.raises(msgspec.MsgspecError, match="out of range"):
        json_ext.read(f"[{number}]".encode(), of_bytes)


def test_of_many_numbers_none_is_read_by_what_takes_long_for_some(monkeypatch):
    """A thread that reads lets others have their turn at each number that Python is called for."""
    monkeypatch.setattr(json_ext, "_decode", None)
    text = b"[" + b"1e300," * json_ext.FEW_BYTES + b"1e-300]"
    assert json_ext.read(text)[-2:] == [1e300, 1e-300]
    assert json_ext.decode(b"[2.5e-310]", len(text)) == [2.5e-310]


def test_of_a_large_value_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes a million small objects in one go keeps the interpreter to itself, also in a thread."""
    built: list[int] = []

    class Unpacker(msgpack.Unpacker):  # type: ignore[misc]
        def unpack(self) -> Any:
            value = super().unpack()
            built.append(len(value) if isinstance(value, list | dict) else 0)
            return value

    packed = msgpack.packb([[[0, {"a": []}], {}] for _ in range(9_000)])
    monkeypatch.setattr(msgpack, "Unpacker", Unpacker)
    assert json.loads(json_ext.json_of(packed)) == msgpack.unpackb(packed)
    assert max(built) == 0
