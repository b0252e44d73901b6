"""Reads reserved ranges of positions back from the segments, with the `Walker` that recovery uses. Runs in a thread."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from jqd.domain.errors import JournalStuck
from jqd.domain.record import Lane
from jqd.journal.files import Files
from jqd.journal.segment import Frame, Gap, Segment, Walker, quarantine

FRAMES_MAX = 20_000  # frames scanned in one read, other lanes' included: some 50 ms
DAMAGED_MAX = 100  # damaged places that are listed
PLAIN_FRAMES = 1_000  # frames decoded at once: a window holds about so many single jobs


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


@dataclass(slots=True)
class Left:
    """How many records and bytes one read may still return, and how many frames it may still scan."""

    records: int
    bytes: int
    frames: int

    def out(self) -> bool:
        return self.records <= 0 or self.bytes <= 0 or self.frames <= 0


class Reader:
    """Reads one lane through the segments. Keeps the last segment open, and remembers where a frame of it began."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._segment: Segment | None = None
        self._walker: Walker | None = None
        self._fd: int | None = None
        self._frame_start = 0  # a position where a frame of the open segment begins
        self._left = Left(0, 0, 0)
        self.damaged: list[str] = []

    def read(self, token: Reservation, segments: Sequence[Segment]) -> list[Slice]:
        """Return the lane's records from token.start on, up to the token's limits. Lowers token.end to where it
        stopped.

        Raises OSError, and JournalStuck when token.end would not lie behind token.start. After such an error the next
        call opens the segment again, and no record is skipped."""
        try:
            slices = self._read(token, segments)
            _expect_progress(token, slices)
            return slices
        except (OSError, JournalStuck):
            self.close()
            raise

    def close(self) -> None:
        fd, self._fd = self._fd, None
        self._segment = self._walker = None
        if fd is not None:
            # The file was only read: nothing depends on closing it.
            with contextlib.suppress(OSError):
                self._files.close(fd)

    def _read(self, token: Reservation, segments: Sequence[Segment]) -> list[Slice]:
        slices: list[Slice] = []
        position, self._left = token.start, Left(token.records_max, token.bytes_max, FRAMES_MAX)
        for segment in segments:
            if segment.end <= position:
                continue
            if segment.first >= token.end:
                break
            position = max(position, segment.first)
            at, stop = self._begin(segment, position), min(segment.end, token.end)
            assert self._walker is not None
            while at < stop:
                # Most frames are whole and good, and are taken many at once. Others are judged one by one.
                if at < position:
                    at = self._skip_plain(token.lane, at, min(position, stop))
                if at >= position:
                    at = position = self._take_plain(token.lane, at, stop, slices)
                if at < stop and not self._left.out():
                    piece = self._walker.piece_at(at, stop)
                    at = piece.end
                    position = self._take(segment, piece, token.lane, position, slices)
                if self._left.out():
                    token.end = position
                    return slices
        return slices

    def _skip_plain(self, lane: Lane, at: int, position: int) -> int:
        """Walk from `at` to `position`, or to the first frame that is bad or sealed. Return the position reached.

        Frames before the range count towards no limit; else a range deep in a segment would never be reached: half a
        million single jobs fill a segment, and are passed in half a second."""
        assert self._walker is not None
        while plain := self._walker.plain(at, position, lane, PLAIN_FRAMES):
            self._frame_start, at = plain[-1].start, plain[-1].end
        return at

    def _take_plain(self, lane: Lane, at: int, stop: int, slices: list[Slice]) -> int:
        """Append to `slices` the whole good frames of the lane from `at` on, but none behind `stop`. Return the
        position where this stopped."""
        assert self._walker is not None
        left, self._frame_start = self._left, at
        while not left.out() and (plain := self._walker.plain(at, stop, lane, min(left.frames, PLAIN_FRAMES))):
            for frame in plain:
                if frame.kind == lane:
                    if left.out() or frame.records > left.records:
                        return at
                    slices.append(Slice(lane, frame.start, frame.body, 0, frame.records, frame.end))
                    left.records -= frame.records
                    left.bytes -= frame.end - frame.start
                left.frames -= 1
                self._frame_start = at = frame.end
        return at

    def _take(self, segment: Segment, piece: Frame | Gap, lane: Lane, position: int, slices: list[Slice]) -> int:
        """Append to `slices` the lane's records in `piece` from `position` on; if `piece` is damaged, report that.
        Return the position to read next."""
        left = self._left
        left.frames -= piece.end > position  # frames before the range count towards no limit
        behind = max(position, piece.end)
        if isinstance(piece, Gap):
            self._report(segment, piece)
            return behind
        self._frame_start = piece.start
        first = max(0, position - piece.start)
        if first >= piece.header.records or piece.header.kind != lane:
            return behind
        assert self._walker is not None
        body = self._walker.body(piece)
        if body is None:
            self._report(segment, Gap(piece.start, piece.end))
            return behind
        stop = min(piece.header.records, first + left.records)
        end = piece.end if stop == piece.header.records else piece.start + stop
        slices.append(Slice(lane, piece.start, body, first, stop, end))
        left.records -= stop - first
        left.bytes -= piece.end - piece.start
        return end

    def _begin(self, segment: Segment, position: int) -> int:
        """Open `segment`; return a position where a frame begins, at or before `position`."""
        if self._segment is not segment:
            self.close()
            self._fd = self._files.open(segment.path)
            self._segment = segment
            self._frame_start = segment.first
        assert self._fd is not None
        # A new walker each time: the window of the last one may end in bytes that were not written yet.
        self._walker = Walker(self._files, self._fd, segment.header)
        return self._frame_start if self._frame_start <= position else segment.first

    def _report(self, segment: Segment, gap: Gap) -> None:
        sentence = quarantine(self._files, segment, gap)
        if sentence is not None and len(self.damaged) < DAMAGED_MAX:
            self.damaged.append(sentence)


def _expect_progress(token: Reservation, slices: Sequence[Slice]) -> None:
    """Raise JournalStuck unless the read moved on; else the same records would be read and applied for ever."""
    behind = token.start
    for piece in slices:
        if piece.end <= behind:
            break
        behind = piece.end
    else:
        if behind <= token.end > token.start:
            return
    raise JournalStuck(
        f"lane {token.lane.name.lower()} cannot be read from position {token.start} on: the read came back to "
        f"{min(behind, token.end)}. Nothing of it is lost, and nothing behind it is read. This is a mistake in jqd: "
        "report it with the output of `jqd journal verify`, and start the daemon again"
    )
