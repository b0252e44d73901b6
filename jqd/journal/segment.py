"""Segments on disk: their names, a walk through their frames, and how bytes that are no frame are kept and sealed."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jqd.domain.log import get_logger
from jqd.journal.files import Files, closing, read_whole, write_whole
from jqd.journal.frame import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    HEAD_BYTES,
    KINDS,
    TORN_KIND,
    Frame,
    FrameHeader,
    SegmentHeader,
    body_holds,
    good_frames,
    pack_frame_header,
    unpack_frame_header,
)

COPY_BYTES = 1 << 20
SEAL_BYTES_MAX = 1 << 20  # body of one seal: a reader holds a whole body in memory
WINDOW_BYTES = 256 << 10  # read ahead: a few hundred small frames in one call
SUFFIX = ".jqd"
DAMAGED = ".damaged"
TORN = ".torn"
NEW = ".new"

_NAME = re.compile(r"(\d{20})\.(?:jqd|damaged)")


@dataclass(slots=True)
class Segment:
    """One append-only file. Position p lies at byte HEAD_BYTES + p - first."""

    path: Path
    header: SegmentHeader
    end: int
    """Position after its last accepted frame."""
    damaged: list["Gap"] = field(default_factory=list)
    begun_s: float | None = None
    """When this process began the segment, in seconds since boot; None: an earlier process did."""

    @property
    def first(self) -> int:
        return self.header.first

    @property
    def size(self) -> int:
        """Number of bytes of accepted frames."""
        return self.end - self.first


class Gap(NamedTuple):
    """A range of positions without a good frame: damage, or a torn tail if no good frame follows."""

    start: int
    end: int
    has_header: bool = False
    """Whether it is one frame whose header is good, and whose body is bad."""


def name_of(first: int) -> str:
    """Return the file name of the segment that begins at `first`. These names sort by position."""
    return f"{first:020d}{SUFFIX}"


def first_of(name: str) -> int | None:
    """Return the position in a segment's file name, `.jqd` or `.damaged`; None for other names."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def quarantine(files: Files, segment: Segment, gap: Gap) -> str | None:
    """Note damage in `segment`, and give its file a second name, which stays when the segment is deleted.

    Returns a sentence that says where the damage is; None if this gap was noted before."""
    if gap in segment.damaged:
        return None
    segment.damaged.append(gap)
    kept = segment.path.with_suffix(DAMAGED)
    log = get_logger("journal")
    try:
        files.link(segment.path, kept)
        files.sync_directory()
    except FileExistsError:
        log.debug("journal.quarantined_before", kept=kept.name)
    except OSError as error:
        log.error("journal.quarantine_failed", segment=segment.path.name, error=str(error))
    sentence = (
        f"{segment.path.name}: no good frame from position {gap.start} to {gap.end} "
        f"(byte {HEAD_BYTES + gap.start - segment.first} on); kept as {kept.name}"
    )
    log.error("journal.damaged", place=sentence)
    return sentence


class Walker:
    """Walks the frames of one segment from a position on, reading ahead in windows. Holds one window and one body in
    memory."""

    def __init__(self, files: Files, fd: int, header: SegmentHeader) -> None:
        self._files = files
        self._fd = fd
        self._id = header.segment_id
        self._first = header.first
        self._window = b""
        self._window_at = 0  # file offset of the window

    def frames(self, position: int, end: int, kinds: Collection[int] = KINDS) -> Iterator[Frame | Gap]:
        """Yield the good frames from `position` (where a frame begins) to `end`, and the gaps between them. Raises
        OSError.

        `kinds`: only bodies of these kinds are verified and returned."""
        while position < end:
            data, offset = self._look(position, FRAME_HEADER_BYTES)
            # Nearly all frames are decoded many at once; one that is bad, sealed or larger than the window by itself.
            pieces: Sequence[Frame | Gap] = good_frames(self._id, position, data, offset, end, kinds)
            pieces = pieces or [self._piece(position, end, kinds)]
            yield from pieces
            position = pieces[-1].end

    def _piece(self, position: int, end: int, kinds: Collection[int]) -> Frame | Gap:
        """Return the frame that begins at `position`, or the gap up to the next good frame."""
        header = self._header(position, end)
        if header is None:
            return Gap(position, self._next_good(position, end))
        body_at, body = position + FRAME_HEADER_BYTES, b""
        behind = body_at + header.length
        if header.kind in kinds:
            body = self._read(body_at, header.length)
            if not body_holds(self._id, position, header, body):
                return Gap(position, behind, has_header=True)
        return Frame(position, behind, header.records, header.back, header.seq, header.at_ms, header.kind, body)

    def _header(self, position: int, end: int) -> FrameHeader | None:
        """Return the good frame header at `position`; None if there is none, or if the frame would end behind `end`."""
        data, offset = self._look(position, FRAME_HEADER_BYTES)
        header = unpack_frame_header(self._id, position, data, offset)
        return None if header is None or position + FRAME_HEADER_BYTES + header.length > end else header

    def _next_good(self, position: int, end: int) -> int:
        """Return the next position with a good frame header of this segment; `end` if there is none."""
        at = position + 1
        while at < end:
            data, offset = self._look(at, FRAME_HEADER_BYTES)
            if len(data) - offset < FRAME_HEADER_BYTES:
                break
            found = data.find(FRAME_MAGIC, offset)
            if found < 0:
                at += len(data) - offset - len(FRAME_MAGIC) + 1
                continue
            at += found - offset
            if self._header(at, end) is not None:
                return at
            at += 1
        return end

    def _look(self, position: int, size: int) -> tuple[bytes, int]:
        """Return a window with `size` bytes from `position` on (fewer at the file's end), and their offset in it."""
        inside = HEAD_BYTES + position - self._first - self._window_at
        if inside < 0 or inside + size > len(self._window):
            self._window = self._read(position, WINDOW_BYTES)
            self._window_at += inside
            inside = 0
        return self._window, inside

    def _read(self, position: int, size: int) -> bytes:
        return read_whole(self._files, self._fd, size, HEAD_BYTES + position - self._first)


def copy_damaged(files: Files, source: Path, target: Path, offset: int, size: int) -> None:
    """Copy bytes of `source` durably to `target`. Raises OSError, also when `source` is too short."""
    with closing(files, files.open(source)) as fd, closing(files, files.create(target)) as out:
        end = offset + size
        while offset < end:
            part = read_whole(files, fd, min(end - offset, COPY_BYTES), offset)
            if not part:
                raise OSError(f"a file ended at byte {offset} while it was read")
            write_whole(files, out, part)
            offset += len(part)
        files.sync(out)
    files.sync_directory()


def seal(files: Files, fd: int, header: SegmentHeader, gap: Gap) -> None:
    """Turn a gap into frames of TORN_KIND, which nobody reads. Overwrites only the bytes that become their headers.

    `gap` must be larger than a header. Nothing is synced."""
    start = gap.start
    while start < gap.end:
        rest = gap.end - start
        size = SEAL_BYTES_MAX if rest > SEAL_BYTES_MAX + FRAME_HEADER_BYTES else rest
        offset = HEAD_BYTES + start - header.first
        body = read_whole(files, fd, size - FRAME_HEADER_BYTES, offset + FRAME_HEADER_BYTES)
        frame = pack_frame_header(
            header.segment_id, start, kind=TORN_KIND, records=1, back=0, seq=0, at_ms=0, body=body
        )
        files.overwrite(fd, frame, offset)
        start += size
