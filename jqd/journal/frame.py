"""Bytes of a segment: its header, its frames, and how to tell them from anything else. Pure.

    segment header, 80 bytes, little endian
    ┌────────┬───────┬─────┬─────┬────────────┬────────────┬───────┬──────────┬───────────┬────────────┐
    │magic 8 │vers. 2│ 0 2 │crc 4│ journal 16 │ segment 16 │first 8│previous 8│first seq 8│created ms 8│
    └────────┴───────┴─────┴─────┴────────────┴────────────┴───────┴──────────┴───────────┴────────────┘
    frame header, 40 bytes, then the body
    ┌───────┬──────────┬─────────┬──────────┬──────────┬─────┬────────┬──────┬───────┬───┐
    │magic 4│head crc 4│ length 4│body crc 4│ records 4│seq 8│at ms 8 │kind 1│flags 1│0 2│ body …
    └───────┴──────────┴─────────┴──────────┴──────────┴─────┴────────┴──────┴───────┴───┘

The header has a checksum of its own, so that a reader who passes over frames of other lanes can believe their lengths
without reading their bodies. Both sums are seeded by the segment's random id, so neither a payload that holds a whole
frame nor a frame of another segment is ever taken for one of this.
"""

import struct
import zlib
from typing import NamedTuple

from jqd.errors import JournalVersion

SEGMENT_MAGIC = b"jqd-log\n"
VERSION = 1
FRAME_MAGIC = b"\xf6JQ\x01"  # 0xf6 is no UTF-8, and rare in MessagePack: a quick first look when searching

_SEGMENT = struct.Struct("<8sHHI16s16sQQQQ")
_FRAME = struct.Struct("<4sIIIIQQBBH")
SEGMENT_HEADER_BYTES = _SEGMENT.size
FRAME_HEADER_BYTES = _FRAME.size
_SUMMED_FROM = 8  # of a frame header: what stands behind its magic and its own sum


class SegmentHeader(NamedTuple):
    """Who wrote a segment and where it begins."""

    journal_id: bytes
    segment_id: bytes
    first: int
    """Position of its first frame."""
    previous_end: int
    """Where what was accepted before it ends. Positions between the two were given out but refused."""
    first_seq: int
    created_at_ms: int


class FrameHeader(NamedTuple):
    """What a frame says of itself; its body's checksum was not looked at yet."""

    length: int
    body_crc: int
    records: int
    seq: int
    at_ms: int
    kind: int


def pack_segment_header(header: SegmentHeader) -> bytes:
    """The 80 bytes at the start of a segment file."""
    rest = header[2:]
    zeroed = _SEGMENT.pack(SEGMENT_MAGIC, VERSION, 0, 0, header.journal_id, header.segment_id, *rest)
    return _SEGMENT.pack(SEGMENT_MAGIC, VERSION, 0, zlib.crc32(zeroed), header.journal_id, header.segment_id, *rest)


def unpack_segment_header(data: bytes, name: str) -> SegmentHeader | None:
    """The header, or None when these bytes are none. Raises JournalVersion for a newer format."""
    if len(data) < SEGMENT_HEADER_BYTES or not data.startswith(SEGMENT_MAGIC):
        return None
    _, version, _, crc, journal_id, segment_id, *rest = _SEGMENT.unpack_from(data)
    if version > VERSION:
        raise JournalVersion(
            f"{name} has format version {version}; this jqd reads up to {VERSION}. It was left as it is: "
            "run the version that wrote it, or a newer one"
        )
    header = SegmentHeader(journal_id, segment_id, *rest)
    return header if zlib.crc32(data[:12] + bytes(4) + data[16:SEGMENT_HEADER_BYTES]) == crc else None


def pack_frame_header(segment_id: bytes, *, kind: int, records: int, seq: int, at_ms: int, body: bytes) -> bytes:
    """The 40 bytes before `body`."""
    seed = zlib.crc32(segment_id)
    blank = _FRAME.pack(FRAME_MAGIC, 0, len(body), zlib.crc32(body, seed), records, seq, at_ms, kind, 0, 0)
    return blank[:4] + zlib.crc32(blank[_SUMMED_FROM:], seed).to_bytes(4, "little") + blank[_SUMMED_FROM:]


def unpack_frame_header(segment_id: bytes, data: bytes, offset: int) -> FrameHeader | None:
    """The header at `offset`, or None when no good one of this segment stands there."""
    if len(data) - offset < FRAME_HEADER_BYTES:
        return None
    magic, crc, length, body_crc, records, seq, at_ms, kind, flags, zero = _FRAME.unpack_from(data, offset)
    if magic != FRAME_MAGIC or flags or zero or not 1 <= records <= length:
        return None
    if zlib.crc32(data[offset + _SUMMED_FROM : offset + FRAME_HEADER_BYTES], zlib.crc32(segment_id)) != crc:
        return None
    return FrameHeader(length, body_crc, records, seq, at_ms, kind)


def body_holds(segment_id: bytes, header: FrameHeader, body: bytes) -> bool:
    """Whether `body` is what was written under `header`."""
    return len(body) == header.length and zlib.crc32(body, zlib.crc32(segment_id)) == header.body_crc
