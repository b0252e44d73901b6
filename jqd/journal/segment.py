"""Segments on disk: their names, and walking their frames. Used by recovery and by readers alike."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jqd.journal.files import Files
from jqd.journal.frame import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    SEGMENT_HEADER_BYTES,
    FrameHeader,
    SegmentHeader,
    body_holds,
    unpack_frame_header,
)

WINDOW_BYTES = 256 << 10  # read ahead: a few hundred small frames in one call
SUFFIX = ".jqd"


@dataclass(slots=True)
class Segment:
    """One append-only file. Position p lies at byte SEGMENT_HEADER_BYTES + p - first."""

    path: Path
    header: SegmentHeader
    end: int
    """Position after its last accepted frame."""
    last_at_ms: int = 0
    damaged: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of positions that hold no good frame."""

    @property
    def first(self) -> int:
        """Position of its first frame."""
        return self.header.first


class Frame(NamedTuple):
    """A frame in its place."""

    start: int
    end: int
    header: FrameHeader


class Gap(NamedTuple):
    """A range without a good frame: damage, or a torn tail when nothing good follows."""

    start: int
    end: int


def name_of(first: int) -> str:
    """File name of the segment that begins at `first`: sorts by position."""
    return f"{first:020d}{SUFFIX}"


class Walker:
    """Walks the frames of one segment from a position on, reading ahead in windows."""

    def __init__(self, files: Files, fd: int, segment_header: SegmentHeader) -> None:
        self._files = files
        self._fd = fd
        self._header = segment_header
        self._window = b""
        self._window_at = 0  # file offset of the window

    def frame_at(self, position: int, end: int) -> FrameHeader | None:
        """The frame header at `position`, None when there is none that could end by `end`."""
        data, offset = self._bytes(position, FRAME_HEADER_BYTES)
        header = unpack_frame_header(self._header.segment_id, data, offset)
        if header is None or position + FRAME_HEADER_BYTES + header.length > end:
            return None
        return header

    def body(self, frame: Frame) -> bytes | None:
        """The body, or None when its checksum does not hold."""
        length = frame.header.length
        data, offset = self._bytes(frame.start + FRAME_HEADER_BYTES, length)
        body = bytes(memoryview(data)[offset : offset + length])
        return body if body_holds(self._header.segment_id, frame.header, body) else None

    def next_good(self, position: int, end: int) -> int | None:
        """The first position after `position` where a whole good frame of this segment stands, None if none does."""
        at = position + 1
        while at < end:
            data, offset = self._bytes(at, min(WINDOW_BYTES, end - at))
            found = data.find(FRAME_MAGIC, offset)
            if found < 0:
                at += max(1, len(data) - offset - len(FRAME_MAGIC) + 1)
                continue
            at += found - offset
            header = self.frame_at(at, end)
            if header and self.body(Frame(at, at + FRAME_HEADER_BYTES + header.length, header)) is not None:
                return at
            at += 1
        return None

    def frames(self, position: int, end: int, *, check: bool) -> Iterator[Frame | Gap]:
        """Frames from `position` (where one begins) to `end`, and the gaps between good ones.

        With `check` bodies are verified too; without, only headers, which is how a reader passes over other lanes'
        frames.
        """
        while position < end:
            header = self.frame_at(position, end)
            if header is not None:
                frame = Frame(position, position + FRAME_HEADER_BYTES + header.length, header)
                good_body = not check or self.body(frame) is not None
                yield frame if good_body else Gap(frame.start, frame.end)
                position = frame.end
                continue
            good = self.next_good(position, end)
            yield Gap(position, end if good is None else good)
            position = end if good is None else good

    def _bytes(self, position: int, size: int) -> tuple[bytes, int]:
        """At least `size` bytes from `position` on (less at the end of the file), and where they begin."""
        offset = SEGMENT_HEADER_BYTES + position - self._header.first
        inside = offset - self._window_at
        if inside < 0 or inside + size > len(self._window):
            parts, wanted, at = [], max(size, WINDOW_BYTES), offset
            while wanted > 0 and (part := self._files.read(self._fd, wanted, at)):
                parts.append(part)
                at += len(part)
                wanted -= len(part)
            self._window, self._window_at, inside = b"".join(parts), offset, 0
        return self._window, inside
