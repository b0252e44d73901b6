"""Frames of a lane as records: a large one is decoded a piece at a time, and once, however many reads it takes."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import trio

from jqd.journal import Journal, Slice
from jqd.loops.readable import unreadable
from jqd.words.cuts import in_steps
from jqd.words.errors import JournalDamaged
from jqd.words.record import CARRIED, DECODERS, Lane, decode_in_pieces

LARGE_BYTES = 262_144  # of a frame: some 2 ms of decoding where its jobs are small, 0.5 where they are large
BREATH_S = 0.001  # between pieces, for others: a push needs some ten passes of the loop

Record = TypeVar("Record")


class Frames(Generic[Record]):
    """See the module."""

    def __init__(self, lane: Lane, journal: Journal) -> None:
        self._lane = lane
        self._journal = journal
        self._large: dict[int, Sequence[Any]] = {}
        """By position, of large frames that were read last."""

    async def open(self, slices: Sequence[Slice]) -> None:
        """Decode what is large, so that `records` of these need not."""
        before, self._large = self._large, {}
        if self._lane not in CARRIED:
            return
        for piece in slices:
            if len(piece.body) <= LARGE_BYTES:
                continue
            if piece.start in before:
                self._large[piece.start] = before[piece.start]
                continue
            with suppress(JournalDamaged):  # `records` says so, when all before it was sent
                self._large[piece.start] = await in_steps(decode_in_pieces(piece.body), _breathe)

    def records(self, piece: Slice) -> Sequence[Record]:
        """Those of the frame that a slice is of. Raises JournalVersion."""
        if (known := self._large.get(piece.start)) is not None:
            if piece.stop == len(known):
                del self._large[piece.start]
            return known
        try:
            return DECODERS[self._lane](piece.body)
        except JournalDamaged as error:
            raise unreadable(self._journal, piece.start, error) from error


async def _breathe() -> None:
    await trio.sleep(BREATH_S)
