"""Frames and heads as bytes: what goes in comes out, and nothing else ever does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.errors import JournalVersion
from jqd.domain.record import Lane
from jqd.journal.frame import (
    FRAME_HEADER_BYTES,
    HEAD_BYTES,
    HEADER_COPY_BYTES,
    SegmentHeader,
    body_holds,
    pack_frame_header,
    pack_head,
    unpack_frame_header,
    unpack_head,
)

U64 = st.integers(0, 2**64 - 1)
IDS = st.binary(min_size=16, max_size=16)
HEADERS = st.builds(SegmentHeader, IDS, IDS, U64, U64, U64, U64, IDS)
BODIES = st.binary(min_size=1, max_size=300)


@given(HEADERS)
def test_a_head_survives_the_loss_of_either_copy(header: SegmentHeader) -> None:
    data = pack_head(header)
    assert len(data) == HEAD_BYTES
    assert unpack_head(data, "x") == header
    assert unpack_head(data[:HEADER_COPY_BYTES], "x") == header
    assert unpack_head(bytes(HEADER_COPY_BYTES) + data[HEADER_COPY_BYTES:], "x") == header
    assert unpack_head(data[:HEADER_COPY_BYTES] + bytes(HEADER_COPY_BYTES), "x") == header
    assert unpack_head(bytes(HEAD_BYTES), "x") is None
    assert unpack_head(data[:95], "x") is None


@given(HEADERS, st.integers(0, 80 * 8 - 1), st.integers(0, 80 * 8 - 1))
def test_two_flipped_bits_in_the_copies_never_give_another_head(header: SegmentHeader, one: int, two: int) -> None:
    data = bytearray(pack_head(header))
    data[one // 8] ^= 1 << one % 8
    data[HEADER_COPY_BYTES + two // 8] ^= 1 << two % 8
    try:
        assert unpack_head(bytes(data), "x") is None
    except JournalVersion:
        assert one // 8 in (8, 9) or two // 8 in (8, 9)


def test_another_format_is_refused_and_a_good_copy_wins_over_a_flipped_version() -> None:
    header = SegmentHeader(b"j" * 16, b"s" * 16, 1, 2, 3, 4)
    data = bytearray(pack_head(header))
    data[8] = 9
    assert unpack_head(bytes(data), "x") == header
    data[HEADER_COPY_BYTES + 8] = 7
    with pytest.raises(JournalVersion, match=r"some\.jqd has format version 9"):
        unpack_head(bytes(data), "some.jqd")
    data[8] = data[HEADER_COPY_BYTES + 8] = 0
    assert unpack_head(bytes(data), "x") is None  # there never was a version 0: damage


@given(IDS, U64, st.sampled_from(Lane), U64, U64, BODIES, st.data())
def test_a_frame_comes_back(
    segment: bytes, position: int, lane: Lane, seq: int, at_ms: int, body: bytes, data: st.DataObject
) -> None:
    records = data.draw(st.integers(1, len(body)))
    packed = pack_frame_header(segment, position, kind=lane, records=records, back=7, seq=seq, at_ms=at_ms, body=body)
    assert len(packed) == FRAME_HEADER_BYTES
    header = unpack_frame_header(segment, position, b"--" + packed, 2)
    assert header is not None
    assert header[:1] + header[2:] == (len(body), records, 7, seq, at_ms, lane)
    assert body_holds(segment, position, header, body)
    assert not body_holds(segment, position, header, body[:-1])
    assert not body_holds(segment, position, header, body + b"\0")


@given(IDS, U64, BODIES, st.data())
def test_a_flipped_bit_is_always_seen(segment: bytes, position: int, body: bytes, data: st.DataObject) -> None:
    packed = pack_frame_header(segment, position, kind=1, records=1, back=0, seq=1, at_ms=1, body=body)
    whole = bytearray(packed + body)
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    header = unpack_frame_header(segment, position, bytes(whole), 0)
    assert header is None or not body_holds(segment, position, header, bytes(whole[FRAME_HEADER_BYTES:]))


@given(IDS, IDS, U64, U64, BODIES)
def test_a_frame_is_good_in_its_own_segment_and_place_only(
    segment: bytes, other: bytes, position: int, elsewhere: int, body: bytes
) -> None:
    packed = pack_frame_header(segment, position, kind=1, records=1, back=0, seq=1, at_ms=1, body=body)
    header = unpack_frame_header(segment, position, packed, 0)
    assert header is not None
    if position != elsewhere:
        assert unpack_frame_header(segment, elsewhere, packed, 0) is None
        assert not body_holds(segment, elsewhere, header, body)
    if segment != other:
        assert unpack_frame_header(other, position, packed, 0) is None


@given(st.binary(max_size=200), st.integers(0, 100))
def test_random_bytes_are_no_frame(data: bytes, offset: int) -> None:
    assert unpack_frame_header(b"s" * 16, 0, data, offset) is None
    assert unpack_head(data, "x") is None


def test_what_has_an_unknown_kind_is_no_frame() -> None:
    packed = pack_frame_header(b"s" * 16, 5, kind=77, records=1, back=0, seq=1, at_ms=1, body=b"x")
    assert unpack_frame_header(b"s" * 16, 5, packed, 0) is None


def test_a_good_frame_must_have_records_and_no_more_than_bytes() -> None:
    for records, body in ((0, b"x"), (2, b"x"), (0, b"")):
        packed = pack_frame_header(b"s" * 16, 5, kind=1, records=records, back=0, seq=1, at_ms=1, body=body)
        assert unpack_frame_header(b"s" * 16, 5, packed, 0) is None
