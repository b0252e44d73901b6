"""Reads reserved ranges of positions back from the segments, with the `Walker` that recovery uses. Runs in a thread."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from jqd.domain.record import Lane
from jqd.journal.files import Files
from jqd.journal.frame import Frame
from jqd.journal.segment import Gap, Segment, Walker, quarantine
from jqd.journal.writer import Pending

FRAMES_MAX = 20_000  # frames scanned in one read, other lanes' included: some 50 ms
DAMAGED_MAX = 100  # damaged places that are listed


@dataclass(slots=True)
class Reservation:
    """A range of a lane's positions to read, with limits."""

    lane: Lane
    start: int
    end: int
    """At first the journal's durable end; `read` lowers it to where it stopped."""
    records_max: int
    bytes_max: int
    reader: int = 0


class Slice(msgspec.Struct, gc=False):
    """Part of a frame: its records `first` … `stop` - 1 lie in the range that was read."""

    lane: Lane
    start: int
    """Position of the frame; its record k has position start + k."""
    body: bytes
    first: int
    stop: int
    end: int
    """Position after the last record of this slice."""


def cut(frames: Iterable[Frame | Pending], token: Reservation) -> list[Slice]:
    """Return the lane's records in `frames` that lie in the reserved range, up to the token's limits. If these are
    reached, token.end is lowered to where that was."""
    slices: list[Slice] = []
    lane, position, records_left, bytes_left = token.lane, token.start, token.records_max, token.bytes_max
    frames_left = FRAMES_MAX
    for frame in frames:
        # Frames before the range count towards no limit; else a range deep in a segment would never be reached: half a
        # million single jobs fill a segment.
        if frame.end <= position:
            continue
        first, position = max(0, position - frame.start), frame.end
        frames_left -= 1
        if frame.kind == lane and first < frame.records:
            stop = min(frame.records, first + records_left)
            if stop < frame.records:
                position = frame.start + stop
            slices.append(Slice(lane, frame.start, frame.body, first, stop, position))
            records_left -= stop - first
            bytes_left -= frame.end - frame.start
        if records_left <= 0 or bytes_left <= 0 or frames_left <= 0:
            token.end = position
            break
    return slices


class Reader:
    """Reads one lane through the segments. Keeps the last segment open, and remembers where a frame of it began."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._segment: Segment | None = None
        self._fd: int | None = None
        self._frame_start = 0  # a position where a frame of the open segment begins
        self.damaged: list[str] = []

    def read(self, token: Reservation, segments: Sequence[Segment]) -> list[Slice]:
        """Return the lane's records from token.start on, up to the token's limits. Lowers token.end to where it
        stopped.

        Raises OSError. After that the next call opens the segment again, and no record is skipped."""
        try:
            return cut(self._frames(token, segments), token)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        fd, self._fd = self._fd, None
        self._segment = None
        if fd is not None:
            # The file was only read: nothing depends on closing it.
            with contextlib.suppress(OSError):
                self._files.close(fd)

    def _frames(self, token: Reservation, segments: Sequence[Segment]) -> Iterator[Frame]:
        """Yield all good frames up to token.end, from one on that begins at token.start or before, with the bodies of
        the lane. Reports what is damaged between them."""
        for segment in segments:
            if segment.end <= token.start:
                continue
            if segment.first >= token.end:
                break
            walker, at = self._begin(segment, max(token.start, segment.first))
            for piece in walker.frames(at, min(segment.end, token.end), (int(token.lane),)):
                if isinstance(piece, Gap):
                    self._report(segment, piece)
                else:
                    self._frame_start = piece.start
                    yield piece

    def _begin(self, segment: Segment, position: int) -> tuple[Walker, int]:
        """Open `segment`; return a walker, and a position where a frame begins, at or before `position`."""
        if self._segment is not segment:
            self.close()
            self._fd = self._files.open(segment.path)
            self._segment = segment
            self._frame_start = segment.first
        assert self._fd is not None
        # A new walker each time: the window of the last one may end in bytes that were not written yet.
        walker = Walker(self._files, self._fd, segment.header)
        return walker, self._frame_start if self._frame_start <= position else segment.first

    def _report(self, segment: Segment, gap: Gap) -> None:
        sentence = quarantine(self._files, segment, gap)
        if sentence is not None and len(self.damaged) < DAMAGED_MAX:
            self.damaged.append(sentence)
