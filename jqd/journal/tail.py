"""Keeps a lane's newest frames in memory. Most frames are applied milliseconds after they were written, and are then
read without a thread, the disk or checksums."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice
from operator import attrgetter

from jqd.journal.reader import Reservation, Slice, cut
from jqd.journal.writer import Pending

TAIL_BYTES = 2 << 20  # per lane: some tenths of a second of single pushes; older frames are read from disk
_end = attrgetter("end")


class Tail:
    """The newest frames of one lane, without a gap."""

    def __init__(self, end: int) -> None:
        """`end`: the journal's end when this process started."""
        self._begin = end
        """`_frames` holds every frame of the lane behind this position."""
        self._frames: list[Pending] = []
        self._bytes = 0

    def add(self, frame: Pending) -> None:
        """Add a frame that is on disk; drop old frames if there is no room."""
        self._frames.append(frame)
        self._bytes += frame.end - frame.start
        if self._bytes > TAIL_BYTES:
            self._drop()

    def _drop(self) -> None:
        """Drop the older half of the frames at once, because dropping a single frame moves all others."""
        gone = 0
        while self._bytes > TAIL_BYTES // 2:
            frame = self._frames[gone]
            self._bytes -= frame.end - frame.start
            self._begin = frame.end
            gone += 1
        del self._frames[:gone]

    def read(self, token: Reservation) -> list[Slice] | None:
        """Return the reserved records, as `Reader.read` does; None if the range begins before the frames kept here."""
        if token.start < self._begin:
            return None
        return cut(self._within(token), token)

    def _within(self, token: Reservation) -> Iterable[Pending]:
        first = bisect_right(self._frames, token.start, key=_end)
        behind = bisect_right(self._frames, token.end, first, key=_end)
        return islice(self._frames, first, behind)
