"""Recovers the lost head of a segment from the frames behind it.

Both checksums of a frame begin with CRC-32 of the segment's id, so without the id no frame can be checked. But a CRC
can be run backwards: from the sum of one frame header, over its bytes and its position, to the CRC it began with. Any
id with that CRC makes all frames of the segment good again, and no others. Every frame of the segment leads to the same
CRC; a payload that holds frames of another segment leads to another one, which makes fewer frames good.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator

from jqd.journal.files import Files, closing
from jqd.journal.frame import FRAME_HEADER_BYTES, FRAME_MAGIC, TORN_KIND, SegmentHeader
from jqd.journal.inspect import Seen
from jqd.journal.segment import WINDOW_BYTES, Frame, Walker

VOTES_MAX = 1_000  # places that look like a frame; those of one segment agree, so a few would do
CANDIDATES_MAX = 3  # each is tried on the whole segment
_SUM_AT, _SUMMED_FROM = 4, 8  # of a frame header, as frame.py draws it
_MASK = 0xFFFF_FFFF


def found_head(
    files: Files, seen: Seen, like: SegmentHeader, random_bytes: Callable[[int], bytes]
) -> SegmentHeader | None:
    """A head for a segment that lost its own: with it every good frame is good again. None when no frame is.

    What frames do not know (the journal's id) is taken from `like`.
    """
    best, most = None, 0
    with closing(files, files.open(seen.path)) as fd:
        for crc in _candidates(files, fd, seen):
            header = like._replace(segment_id=id_with(crc, random_bytes), first=seen.first)
            good, told = 0, False
            for frame in _good(Walker(files, fd, header), seen):
                good += frame.end - frame.start
                if not told and frame.header.kind != TORN_KIND:
                    header = header._replace(first_seq=frame.header.seq, created_at_ms=frame.header.at_ms)
                    told = True
            if good > most:
                best, most = header, good
            if 2 * most > seen.end - seen.first:
                break  # no other candidate can have more
    return best


def _good(walker: Walker, seen: Seen) -> Iterator[Frame]:
    for piece in walker.frames(seen.first, seen.end, check=True):
        if isinstance(piece, Frame):
            yield piece


def id_with(crc: int, random_bytes: Callable[[int], bytes]) -> bytes:
    """A segment id whose CRC-32 is `crc`: all but four of its bytes are random."""
    most = random_bytes(12)
    patch = _rolled_back(crc, bytes(4)) ^ zlib.crc32(most)
    return most + patch.to_bytes(4, "little")


def _candidates(files: Files, fd: int, seen: Seen) -> list[int]:
    """The CRCs that the places began with which look like frames: the most frequent first."""
    votes: Counter[int] = Counter()
    position = seen.first
    while position < seen.end and votes.total() < VOTES_MAX:
        data = files.read(fd, WINDOW_BYTES, seen.offset(position))
        at = data.find(FRAME_MAGIC)
        while 0 <= at <= len(data) - FRAME_HEADER_BYTES and votes.total() < VOTES_MAX:
            votes[_began_with(data[at : at + FRAME_HEADER_BYTES], position + at)] += 1
            at = data.find(FRAME_MAGIC, at + 1)
        if len(data) < FRAME_HEADER_BYTES:
            break
        position += (
            len(data) - FRAME_HEADER_BYTES + 1
        )  # the next window begins with bytes that this one may have cut off
    return [crc for crc, _ in votes.most_common(CANDIDATES_MAX)]


def _began_with(header: bytes, position: int) -> int:
    """CRC-32 of the segment id under which this would be a good frame header at `position`."""
    total = int.from_bytes(header[_SUM_AT:_SUMMED_FROM], "little")
    return _rolled_back(_rolled_back(total, header[_SUMMED_FROM:]), position.to_bytes(8, "little"))


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0xEDB8_8320 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()
_BY_TOP = {value >> 24: index for index, value in enumerate(_TABLE)}  # the highest bytes are all different


def _rolled_back(crc: int, data: bytes) -> int:
    """The value that `zlib.crc32(data, value)` turns into `crc`."""
    register = crc ^ _MASK
    for byte in reversed(data):
        index = _BY_TOP[register >> 24]
        register = (register ^ _TABLE[index]) << 8 & _MASK | index ^ byte
    return register ^ _MASK
