"""What JSON cannot say: written without loss, and read back as what it was."""

import json
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.words import tagged
from jqd.words.tagged import FormError

TEXT_GARBLED = b"\xa2\xff\x41"


class Pairs(list[Any]):
    """A map with any keys, twice perhaps."""


def shown(packed: bytes) -> Any:
    """MessagePack as a JSON client sees it."""
    return json.loads(msgspec.json.encode(tagged.show(msgspec.Raw(packed))))


def back(told: Any) -> bytes:
    """The MessagePack of what a JSON client says."""
    return msgspec.msgpack.encode(tagged.read(json.dumps(told).encode()))


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
        ({1: "x", "1": "y"}, {"$map": [[1, "x"], ["1", "y"]]}),
        ({None: b"", "a": {2.5: 3}}, {"$map": [[None, {"$bytes": ""}], ["a", {"$map": [[2.5, 3]]}]]}),
        ({"$bytes": "eA=="}, {"$map": [["$bytes", "eA=="]]}),
        ({"$later": 1}, {"$map": [["$later", 1]]}),
        ({"$bytes": "x", "b": 1}, {"$bytes": "x", "b": 1}),
        ({"$map": [[1, 2]]}, {"$map": [["$map", [[1, 2]]]]}),
        (float("nan"), {"$float": "nan"}),
        (float("-inf"), {"$float": "-inf"}),
        (msgpack.ExtType(5, b"\x01"), {"$ext": [5, "AQ=="]}),
        (msgpack.Timestamp(0, 0), {"$ext": [-1, "AAAAAA=="]}),
        (msgpack.Timestamp(-(2**60), 5), {"$ext": [-1, "AAAABfAAAAAAAAAA"]}),
    ],
    ids=repr,
)
def test_what_is_shown_is_read_back(value, view):
    packed = msgpack.packb(value)
    assert shown(packed) == view
    assert same(back(view), packed)


@pytest.mark.parametrize(
    ("packed", "view"),
    [
        (b"\x83\x01\xa1a\xc3\xa1b\xcb\x3f\xf0" + b"\x00" * 6 + b"\xa1c", {"$map": [[1, "a"], [True, "b"], [1.0, "c"]]}),
        (b"\x82\xa1a\x01\xa1a\x02", {"$map": [["a", 1], ["a", 2]]}),
        (b"\x81\x91\x01\x02", {"$map": [[[1], 2]]}),
        (b"\x81\x80\x00", {"$map": [[{}, 0]]}),
        (b"\x92" + TEXT_GARBLED + b"\x01", [{"$msgpack": "ov9B"}, 1]),
        (b"\x81" + TEXT_GARBLED + b"\x01", {"$map": [[{"$msgpack": "ov9B"}, 1]]}),
    ],
    ids=repr,
)
def test_what_python_would_take_for_the_same(packed, view):
    assert shown(packed) == view
    assert same(back(view), packed)


@pytest.mark.parametrize(
    "packed",
    [b"\x91" * 900 + b"\xc0", b"\x91" * 5_000 + b"\xc0", b"\xc7\x0c\xff" + b"\xff" * 12, b"\xc1", b"", b"\xa5a"],
)
def test_what_cannot_be_shown_is_named_as_it_is(packed):
    assert list(shown(packed)) == ["$msgpack"]


packable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["$bytes", "$map", "$", "$msgpack"])
    | st.binary(max_size=8)
    | st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$bytes", "$map", "$ext", "a"]), inner, max_size=2)
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


@given(packable)
def test_a_pusher_of_json_can_say_any_map(value):
    """Also one that looks like a form: what is shown of it is one way to say it."""
    packed = pack({"$bytes": value})
    assert same(back({"$map": [["$bytes", shown(pack(value))]]}), packed)
    assert same(back(shown(packed)), packed)


@pytest.mark.parametrize(
    "told",
    [
        {"$bytes": 1},
        {"$bytes": "x"},
        {"$bytes": "\u3042"},
        {"$ext": []},
        {"$ext": [128, ""]},
        {"$ext": [True, ""]},
        {"$ext": [1, "?"]},
        {"$ext": {}},
        {"$float": "1"},
        {"$float": []},
        {"$map": {}},
        {"$map": [[1]]},
        {"$map": [["a", {"$bytes": 1}]]},
        {"$msgpack": "wQ=="},
        {"$msgpack": "AQE="},
        {"$msgpack": None},
    ],
    ids=str,
)
def test_what_looks_like_a_form_and_is_none_is_refused(told):
    with pytest.raises(FormError, match=r'a map of "\$\w+" alone means .*; as a map of your own it is'):
        tagged.read(json.dumps([told]).encode())


def test_where_it_is_none_is_told():
    with pytest.raises(FormError) as told:
        tagged.read(b'[1, {"a/b": [{"$map": [[1, {"$bytes": "*"}]]}]}]')
    assert told.value.pointer == "/1/a~1b/0/$map/0/1"


def test_an_integer_of_more_than_64_bits_in_one_is_found():
    text = b'[{"$bytes": ""}, {"a": [[], {}, 1.5], "$map": 1}, {"$map": [[1, 18446744073709551616]]}]'
    with pytest.raises(OverflowError):
        tagged.read(text)
    assert tagged.wide_at(tagged.decode(text)) == "/2/$map/0/1"
    assert tagged.wide_at(-(2**63) - 1) == tagged.wide_at([2**64 - 1, -(2**63), True]) == ""


def test_other_maps_stay_what_they_are():
    for told in ({"$x": 1}, {"$bytes": 1, "a": 2}, {"a": "$bytes"}):
        assert tagged.read(json.dumps(told).encode()) == told
    assert tagged.read(rb'{"\u0024bytes": "AA=="}') == b"\0"
    assert tagged.show({"a": (1, bytearray(b"x"))}) == {"a": [1, {"$bytes": "eA=="}]}


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**64 - 1), max_size=20))
def test_numbers_are_the_same_among_few_and_among_many(numbers):
    text = json.dumps(numbers).encode()
    many = text[:-1] + (b"," if numbers else b"") + b"1.5," * tagged.FEW_BYTES + b"2]"
    assert tagged.read(text) == tagged.read(text, tagged.FEW_BYTES + 1) == numbers
    assert tagged.read(many)[: len(numbers)] == numbers


@pytest.mark.parametrize("number", ["1e309", "-1e400", "9" * 400 + ".5"])
@pytest.mark.parametrize("of_bytes", [0, tagged.FEW_BYTES + 1])
def test_a_number_that_is_too_large_is_refused_among_few_and_among_many(number, of_bytes):
    with pytest.raises(msgspec.MsgspecError, match="out of range"):
        tagged.read(f"[{number}]".encode(), of_bytes)


def test_of_many_numbers_none_is_read_by_what_takes_long_for_some(monkeypatch):
    """A thread that reads lets others have their turn at each number that Python is called for."""
    monkeypatch.setattr(tagged, "_decode", None)
    text = b"[" + b"1e300," * tagged.FEW_BYTES + b"1e-300]"
    assert tagged.read(text)[-2:] == [1e300, 1e-300]
    assert tagged.decode(b"[2.5e-310]", len(text)) == [2.5e-310]
