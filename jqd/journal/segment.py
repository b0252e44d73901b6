"""Segments on disk: their names, and walking their frames. Used by recovery and by readers alike."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jqd.domain.log import get_logger
from jqd.domain.record import Lane
from jqd.journal.files import Files, read_whole
from jqd.journal.frame import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    HEAD_BYTES,
    FrameHeader,
    Plain,
    SegmentHeader,
    body_holds,
    plain_frames,
    unpack_frame_header,
)

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

    @property
    def first(self) -> int:
        """Position of its first frame."""
        return self.header.first

    @property
    def size(self) -> int:
        """Bytes of accepted frames."""
        return self.end - self.first


class Frame(NamedTuple):
    """A frame in its place."""

    start: int
    end: int
    header: FrameHeader


class Gap(NamedTuple):
    """A range of positions without a good frame: damage, or a torn tail when nothing good follows."""

    start: int
    end: int


def name_of(first: int) -> str:
    """File name of the segment that begins at `first`: sorts by position."""
    return f"{first:020d}{SUFFIX}"


def first_of(name: str) -> int | None:
    """The position in the name of a segment, good or damaged; None when it is no segment."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def quarantine(files: Files, segment: Segment, gap: Gap) -> str | None:
    """Note damage in `segment` and keep its bytes from deletion under a second name; good frames are still read.

    Returns a sentence that says where, or None when this gap was noted before.
    """
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
    """Walks the frames of one segment from a position on, reading ahead in windows. Memory: one window, one body."""

    def __init__(self, files: Files, fd: int, header: SegmentHeader) -> None:
        self._files = files
        self._fd = fd
        self._id = header.segment_id
        self._first = header.first
        self._window = b""
        self._window_at = 0  # file offset of the window

    def frames(self, position: int, end: int, *, check: bool) -> Iterator[Frame | Gap]:
        """Frames from `position` (where one begins) to `end`, and the gaps between good ones.

        With `check` bodies are verified too; without, only headers, which is how a reader passes over other lanes'
        frames. Raises OSError.
        """
        while position < end:
            piece = self.piece_at(position, end)
            bad = check and isinstance(piece, Frame) and self.body(piece) is None
            yield Gap(piece.start, piece.end) if bad else piece
            position = piece.end

    def plain(self, position: int, end: int, lane: Lane | None, frames_max: int) -> list[Plain]:
        """As many good frames from `position` on as the window holds, in one go; may be none. See plain_frames."""
        data, offset = self._look(position, FRAME_HEADER_BYTES)
        return plain_frames(self._id, position, data, offset, end, lane=lane, frames_max=frames_max)

    def piece_at(self, position: int, end: int) -> Frame | Gap:
        """The frame that begins at `position`, or the gap up to the next good one; its body is not looked at."""
        return self.frame_at(position, end) or Gap(position, self._next_good(position, end))

    def frame_at(self, position: int, end: int) -> Frame | None:
        """The frame with a good header at `position`; None when there is none, or when it would end behind `end`."""
        data, offset = self._look(position, FRAME_HEADER_BYTES)
        header = unpack_frame_header(self._id, position, data, offset)
        if header is None or position + FRAME_HEADER_BYTES + header.length > end:
            return None
        return Frame(position, position + FRAME_HEADER_BYTES + header.length, header)

    def body(self, frame: Frame) -> bytes | None:
        """The body, or None when its checksum does not hold."""
        length = frame.header.length
        at = frame.start + FRAME_HEADER_BYTES
        if length > WINDOW_BYTES:
            body = self._read(at, length)
        else:
            data, offset = self._look(at, length)
            body = data[offset : offset + length]
        return body if body_holds(self._id, frame.start, frame.header, body) else None

    def _next_good(self, position: int, end: int) -> int:
        """The first position after `position` where a good frame header of this segment stands; `end` if none does."""
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
            if self.frame_at(at, end) is not None:
                return at
            at += 1
        return end

    def _look(self, position: int, size: int) -> tuple[bytes, int]:
        """A window that holds at least `size` bytes from `position` on (less at the end of the file), and where."""
        inside = HEAD_BYTES + position - self._first - self._window_at
        if inside < 0 or inside + size > len(self._window):
            self._window = self._read(position, WINDOW_BYTES)
            self._window_at += inside
            inside = 0
        return self._window, inside

    def _read(self, position: int, size: int) -> bytes:
        return read_whole(self._files, self._fd, size, HEAD_BYTES + position - self._first)
