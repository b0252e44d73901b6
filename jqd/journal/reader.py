"""Reads reserved ranges back from the segments. The same walk as recovery; runs in a thread."""

from collections.abc import Iterator, Sequence

from jqd.journal.cursor import Reservation, Slice
from jqd.journal.files import Files
from jqd.journal.segment import Frame, Gap, Segment, Walker
from jqd.log import get_logger


class Reader:
    """One lane's way through the segments. Keeps the last segment open, and remembers where a frame began."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._log = get_logger("journal")
        self._segment: Segment | None = None
        self._fd: int | None = None
        self._frame_start = 0  # a position where a frame of the open segment begins
        self.damaged: list[str] = []

    def read(self, token: Reservation, segments: Sequence[Segment]) -> list[Slice]:
        """The lane's records from token.start on, up to its limits; lowers token.end to what was looked at."""
        slices: list[Slice] = []
        position, records, size = token.start, 0, 0
        for segment in segments:
            if position >= segment.end:
                continue
            if segment.first >= token.end:
                break
            position = max(position, segment.first)
            for piece in self._walk(segment, position, min(segment.end, token.end)):
                if isinstance(piece, Gap):
                    self._report(segment, piece)
                    position = piece.end
                    continue
                if piece.end <= position or piece.header.kind != token.lane:
                    position = max(position, piece.end)
                    continue
                first = max(0, position - piece.start)
                take = min(piece.header.records - first, token.records_max - records)
                body = self._walker.body(piece)
                if body is None:
                    self._report(segment, Gap(piece.start, piece.end))
                    position = piece.end
                    continue
                whole = first + take == piece.header.records
                position = piece.end if whole else piece.start + first + take
                slices.append(Slice(token.lane, piece.start, body, first, first + take, position))
                self._frame_start = piece.start
                records += take
                size += piece.end - piece.start
                if records >= token.records_max or size >= token.bytes_max:
                    token.end = position
                    return slices
        token.end = max(position, token.start)
        return slices

    def close(self) -> None:
        """Let go of the open segment."""
        if self._fd is not None:
            self._files.close(self._fd)
        self._fd = self._segment = None

    def _walk(self, segment: Segment, position: int, stop: int) -> Iterator[Frame | Gap]:
        if self._segment is not segment:
            self.close()
            self._fd = self._files.open(segment.path)
            self._segment = segment
            self._frame_start = segment.first
        assert self._fd is not None
        self._walker = Walker(self._files, self._fd, segment.header)
        begin = self._frame_start if segment.first <= self._frame_start <= position else segment.first
        return self._walker.frames(begin, stop, check=False)

    def _report(self, segment: Segment, gap: Gap) -> None:
        if (gap.start, gap.end) not in segment.damaged:
            segment.damaged.append((gap.start, gap.end))
            sentence = f"{segment.path.name}: no good frame from position {gap.start} to {gap.end}"
            self.damaged.append(sentence)
            self._log.error("journal.damaged", place=sentence)
