"""Reads reserved ranges back from the segments. The same walk as recovery; runs in a thread."""

import contextlib
from collections.abc import Iterator, Sequence

from jqd.journal.cursor import Reservation, Slice
from jqd.journal.files import Files
from jqd.journal.segment import Frame, Gap, Segment, Walker, quarantine

FRAMES_MAX = 20_000  # looked at in one read, other lanes' included: some 50 ms, far below a reservation's timeout
DAMAGED_MAX = 100  # places told of; a disk that is worse than that needs no longer list


class Reader:
    """One lane's way through the segments. Keeps the last segment open, and remembers where a frame began."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._segment: Segment | None = None
        self._walker: Walker | None = None
        self._fd: int | None = None
        self._frame_start = 0  # a position where a frame of the open segment begins
        self.damaged: list[str] = []

    def read(self, token: Reservation, segments: Sequence[Segment]) -> list[Slice]:
        """The lane's records from token.start on, up to its limits; lowers token.end to what was looked at.

        Raises OSError; nothing is skipped then, and the next call begins anew.
        """
        try:
            return self._read(token, segments)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the open segment."""
        fd, self._fd = self._fd, None
        self._segment = self._walker = None
        if fd is not None:
            # It was only read: nothing depends on its closing.
            with contextlib.suppress(OSError):
                self._files.close(fd)

    def _read(self, token: Reservation, segments: Sequence[Segment]) -> list[Slice]:
        slices: list[Slice] = []
        position, records, size, looked = token.start, 0, 0, 0
        for segment in segments:
            if segment.end <= position:
                continue
            if segment.first >= token.end:
                break
            position = max(position, segment.first)
            for piece in self._walk(segment, position, min(segment.end, token.end)):
                looked += 1
                taken = self._take(segment, piece, token, position, token.records_max - records)
                if taken is None:
                    position = max(position, piece.end)
                else:
                    slices.append(taken)
                    position = taken.end
                    records += taken.stop - taken.first
                    size += piece.end - piece.start
                if records >= token.records_max or size >= token.bytes_max or looked >= FRAMES_MAX:
                    token.end = position
                    return slices
        return slices

    def _take(
        self, segment: Segment, piece: Frame | Gap, token: Reservation, position: int, records_max: int
    ) -> Slice | None:
        """What `piece` holds for us from `position` on. Damage is reported, and passed over."""
        if isinstance(piece, Gap):
            self._report(segment, piece)
            return None
        self._frame_start = piece.start
        first = max(0, position - piece.start)
        if first >= piece.header.records or piece.header.kind != token.lane:
            return None
        assert self._walker is not None
        body = self._walker.body(piece)
        if body is None:
            self._report(segment, Gap(piece.start, piece.end))
            return None
        stop = min(piece.header.records, first + records_max)
        end = piece.end if stop == piece.header.records else piece.start + stop
        return Slice(token.lane, piece.start, body, first, stop, end)

    def _walk(self, segment: Segment, position: int, stop: int) -> Iterator[Frame | Gap]:
        if self._segment is not segment:
            self.close()
            self._fd = self._files.open(segment.path)
            self._segment = segment
            self._frame_start = segment.first
        assert self._fd is not None
        # A fresh walker: the window of an older one may end in bytes that were not written yet.
        self._walker = Walker(self._files, self._fd, segment.header)
        begin = self._frame_start if self._frame_start <= position else segment.first
        return self._walker.frames(begin, stop, check=False)

    def _report(self, segment: Segment, gap: Gap) -> None:
        sentence = quarantine(self._files, segment, gap)
        if sentence is not None and len(self.damaged) < DAMAGED_MAX:
            self.damaged.append(sentence)
