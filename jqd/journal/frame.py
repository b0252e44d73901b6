"""Bytes of a segment: its head, its frames, and how to tell them from anything else.

    segment head: two copies of the same 96 bytes, each alone in a page of 4,096, then the frames
    ┌────────┬───────┬─────┬─────┬────────────┬────────────┬───────┬──────────────┬───────────┬────────────┬─────────┐
    │magic 8 │vers. 2│ 0 2 │crc 4│ journal 16 │ segment 16 │first 8│previous end 8│first seq 8│created ms 8│before 16│
    └────────┴───────┴─────┴─────┴────────────┴────────────┴───────┴──────────────┴───────────┴────────────┴─────────┘
    frame header, 44 bytes, then the body; all little endian
    ┌───────┬──────────┬────────┬──────────┬─────────┬──────┬─────┬───────┬──────┬───────┬───┐
    │magic 4│head crc 4│length 4│body crc 4│records 4│back 4│seq 8│at ms 8│kind 1│flags 1│0 2│ body …
    └───────┴──────────┴────────┴──────────┴─────────┴──────┴─────┴───────┴──────┴───────┴───┘

A frame header has a checksum of its own, so that a reader who passes over frames of other lanes can believe their
lengths without reading their bodies. Both checksums are seeded by the segment's random id and the frame's position. So
three things are never mistaken for a frame of this position: a payload that holds a whole frame, a frame of another
segment, and a frame copied within its segment. There are two copies of the head, because without it no frame can be
checked: one bad sector must not cost a segment. `back` leads to the start of the frame's commit: all before it was on
disk when the frame was written, so bad bytes there are damage, and were not torn by a power cut.
"""

import struct
import zlib
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from jqd.domain.errors import JournalVersion
from jqd.domain.record import Lane

SEGMENT_MAGIC = b"jqd-log\n"
VERSION = 1
FRAME_MAGIC = b"\xf6JQ\x01"  # 0xf6 is no UTF-8, and rare in MessagePack: a quick first look when searching

_HEADER = struct.Struct("<8sHHI16s16sQQQQ16s")
_FRAME = struct.Struct("<4sIIIIIQQBBH")
_PLAIN = struct.Struct("<4sIIIIIQQI")  # as _FRAME, the last three fields as one number: the kind, if the others are 0
_SUMMED = struct.Struct("<IIIIQQI")  # the fields that the header's own checksum covers
HEADER_COPY_BYTES = 4_096  # the unit in which disks and file systems lose data
HEAD_BYTES = 2 * HEADER_COPY_BYTES
FRAME_HEADER_BYTES = _FRAME.size
_SUMMED_FROM = 8  # offset in a frame header, after its magic and its own checksum
NO_JOURNAL = bytes(16)
TORN_KIND = 0  # bytes that a power cut tore inside a commit, sealed as a frame: nobody reads them
_LANES = frozenset(map(int, Lane))
KINDS = frozenset({TORN_KIND, *_LANES})
AT_ONCE = 500  # frames decoded at once; more would take more memory, not less time


class SegmentHeader(NamedTuple):
    """A segment's head: its journal, its id, and where it begins."""

    journal_id: bytes
    segment_id: bytes
    first: int
    """Position of the segment's first frame."""
    previous_end: int
    """Where the segment before ends. Frames between there and `first` were refused."""
    first_seq: int
    created_at_ms: int
    before: bytes = NO_JOURNAL
    """The journal's id before its present one; zeros: it never had another."""


class FrameHeader(NamedTuple):
    """A frame's header, whose own checksum is good; the frame's body is not verified."""

    length: int
    body_crc: int
    records: int
    back: int
    """Bytes from the start of its commit to this frame."""
    seq: int
    at_ms: int
    kind: int


class Frame(msgspec.Struct, gc=False):
    """A good frame."""

    start: int
    end: int
    records: int
    back: int
    seq: int
    at_ms: int
    kind: int
    body: bytes
    """Empty, and not verified, when the caller does not want it."""


def pack_head(header: SegmentHeader) -> bytes:
    """Return the first HEAD_BYTES of a segment file: two copies of its head."""
    rest = header[2:]
    zeroed = _HEADER.pack(SEGMENT_MAGIC, VERSION, 0, 0, header.journal_id, header.segment_id, *rest)
    copy = _HEADER.pack(SEGMENT_MAGIC, VERSION, 0, zlib.crc32(zeroed), header.journal_id, header.segment_id, *rest)
    return copy.ljust(HEADER_COPY_BYTES, b"\0") * 2


def unpack_head(data: bytes, name: str) -> SegmentHeader | None:
    """Return the head from a good copy in `data`; None if both copies are bad. Raises JournalVersion for an unknown
    format."""
    other = 0
    for at in range(0, HEAD_BYTES, HEADER_COPY_BYTES):
        copy = data[at : at + _HEADER.size]
        if len(copy) < _HEADER.size or not copy.startswith(SEGMENT_MAGIC):
            continue
        _, version, _, crc, journal_id, segment_id, *rest = _HEADER.unpack(copy)
        if version == VERSION and zlib.crc32(copy[:12] + bytes(4) + copy[16:]) == crc:
            return SegmentHeader(journal_id, segment_id, *rest)
        other = max(other, version)
    if other > VERSION:
        raise JournalVersion(
            f"{name} has format version {other}, and this jqd reads version {VERSION}. Nothing was changed: "
            "start the version of jqd that wrote it"
        )
    return None


def _seed(segment_id: bytes, position: int) -> int:
    return zlib.crc32(position.to_bytes(8, "little"), zlib.crc32(segment_id))


def pack_frame_header(
    segment_id: bytes, position: int, *, kind: int, records: int, back: int, seq: int, at_ms: int, body: bytes
) -> bytes:
    """Return the header (FRAME_HEADER_BYTES) of a frame that begins at `position`. The caller writes `body` behind it.

    `records`: how many are in the body. `back`: bytes from the start of the frame's commit to the frame. `seq`: the
    frame's number. `at_ms`: when it was written."""
    seed = _seed(segment_id, position)
    summed = _SUMMED.pack(len(body), zlib.crc32(body, seed), records, back, seq, at_ms, kind)
    return FRAME_MAGIC + zlib.crc32(summed, seed).to_bytes(4, "little") + summed


def unpack_frame_header(segment_id: bytes, position: int, data: bytes, offset: int) -> FrameHeader | None:
    """Return the frame header in `data` at `offset`; None if there is no good one of this segment and position."""
    if len(data) - offset < FRAME_HEADER_BYTES:
        return None
    magic, crc, length, body_crc, records, back, seq, at_ms, kind, flags, zero = _FRAME.unpack_from(data, offset)
    if magic != FRAME_MAGIC:
        return None
    summed = data[offset + _SUMMED_FROM : offset + FRAME_HEADER_BYTES]
    if zlib.crc32(summed, _seed(segment_id, position)) != crc or not 1 <= records <= length:
        return None
    if flags or zero or kind not in KINDS:
        return None
    return FrameHeader(length, body_crc, records, back, seq, at_ms, kind)


def body_holds(segment_id: bytes, position: int, header: FrameHeader, body: bytes) -> bool:
    """Whether `body` is what was written under `header` at `position`."""
    return len(body) == header.length and zlib.crc32(body, _seed(segment_id, position)) == header.body_crc


def good_frames(
    segment_id: bytes, position: int, data: bytes, offset: int, end: int, kinds: Collection[int]
) -> list[Frame]:
    """Return the good frames in `data` from `offset` on, at most AT_ONCE. Stop before the first that is bad, sealed, or
    not wholly in `data`: the caller examines it with `unpack_frame_header` and `body_holds`, at five times the cost.

    `position`: that of `offset`. `end`: the position behind the last frame to return. `kinds`: only bodies of these
    kinds are verified and returned."""
    found: list[Frame] = []
    take, unpack, crc32, base = found.append, _PLAIN.unpack_from, zlib.crc32, zlib.crc32(segment_id)
    last = min(len(data), offset + end - position)
    while offset + FRAME_HEADER_BYTES < last and len(found) < AT_ONCE:
        magic, crc, length, body_crc, records, back, seq, at_ms, kind = unpack(data, offset)
        body_at = offset + FRAME_HEADER_BYTES
        following = body_at + length
        if magic != FRAME_MAGIC or following > last or not 1 <= records <= length or kind not in _LANES:
            break
        seed = crc32(position.to_bytes(8, "little"), base)
        if crc32(data[offset + _SUMMED_FROM : body_at], seed) != crc:
            break
        body = b""
        if kind in kinds:
            body = data[body_at:following]
            if crc32(body, seed) != body_crc:
                break
        start, position = position, position + following - offset
        take(Frame(start, position, records, back, seq, at_ms, kind, body))
        offset = following
    return found
