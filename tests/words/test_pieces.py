"""Large values as JSON in pieces: the same text as of the whole, and never much at once."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.words import pieces, tagged
from tests.words.test_tagged import pack, packable


@given(st.lists(packable, max_size=6), st.sampled_from([1, 2, 5, 16, 64]))
def test_in_pieces_it_is_the_same_text(values: list[object], piece_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", piece_bytes)
        for packed in (pack(values), *map(pack, values)):
            assert pieces.json_of(packed) == tagged.json_of(packed)


@pytest.mark.parametrize(
    "packed",
    [
        msgpack.packb({f"key {n}": [{}] * n for n in range(90)}),
        msgpack.packb(dict.fromkeys(range(3000), "x")),
        msgpack.packb({"a" * 9_000: {"$bytes": "b" * 9_000}, "b": b"c" * 9_000}),
        msgpack.packb({"$x" * 5_000: 1}),
        msgpack.packb([[[["x" * 9_000, 1.5], None]], [{}] * 20_000]),
        msgpack.packb([{}] * 9_000)[:-1],
        msgpack.packb([{}] * 9_000) + b"\x01",
        msgpack.packb([[0] * 5_000, msgpack.ExtType(5, b"x" * 9_000)]) + b"",
        msgpack.packb(["x" * 5_000, "é" * 5_000])[:-9_000] + b"\xff" * 9_000,
        b"\xdc\x20\x00" + b"\x82\xa1a\x01\xa1a\x02" * 0x2000,
        b"\x91" * 5_000 + b"\xc0",
        b"\xdd\xff\xff\xff\xff" + b"\x01" * 5_000,
    ],
    ids=range(12),
)
def test_so_are_large_ones_odd_ones_and_what_is_none(packed: bytes) -> None:
    assert pieces.json_of(packed) == tagged.json_of(packed)


@pytest.mark.parametrize(
    "value", [[{}] * 200_000, [[n, {"a": n}] for n in range(30_000)], {str(n): {} for n in range(50_000)}]
)
def test_no_more_than_a_piece_is_built_at_once(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million small objects built, or freed, in one go hold up all threads."""
    built: list[int] = []
    real = tagged.shown

    def shown(packed: bytes) -> object:
        built.append(len(packed))
        return real(packed)

    monkeypatch.setattr(tagged, "shown", shown)
    packed: bytes = msgpack.packb(value)
    text = pieces.json_of(packed)
    assert max(built) <= pieces.PIECE_BYTES + 5
    assert len(built) <= 3 * len(packed) / pieces.PIECE_BYTES + 3
    monkeypatch.undo()
    assert text == tagged.json_of(packed)
