"""Frames of a lane as records: a large one is decoded a piece at a time, and once, however many reads it takes."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Generic, TypeVar

import trio

from jqd.domain.array_split import in_steps
from jqd.domain.errors import JournalDamaged, JournalStuck
from jqd.domain.record import CARRIED, DECODERS, Lane, decode_in_pieces
from jqd.journal import Journal, Slice

LARGE_BYTES = 262_144  # of a frame: some 2 ms of decoding where its jobs are small, 0.5 where they are large
BREATH_S = 0.001  # between pieces, for others: a push needs some ten passes of the loop

Record = TypeVar("Record")


class LaneFrames(Generic[Record]):
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
        """Those of the frame that a slice is of. Raises JournalStuck for one that cannot be decoded."""
        if (known := self._large.get(piece.start)) is not None:
            if piece.stop == len(known):
                del self._large[piece.start]
            return known
        try:
            return DECODERS[self._lane](piece.body)
        except JournalDamaged as error:
            raise unreadable(self._journal, piece.start, error) from error


async def expect_readable(journal: Journal, lanes: Iterable[Lane], applied: Mapping[Lane, int]) -> None:
    """Read what a store has not applied of these lanes. Waits for a disk that fails; raises JournalStuck."""
    for lane in lanes:
        async with aclosing(journal.read_range(lane, applied[lane], journal.end)) as pieces:
            async for slices in pieces:
                await trio.to_thread.run_sync(_decode, journal, lane, slices, abandon_on_cancel=True)


def _decode(journal: Journal, lane: Lane, slices: Sequence[Slice]) -> None:
    frames = LaneFrames[Any](lane, journal)
    for piece in slices:
        frames.records(piece)


def unreadable(journal: Journal, position: int, error: JournalDamaged) -> JournalStuck:
    """What to say of a frame that is as it was written, and that cannot be decoded."""
    return JournalStuck(
        f"{journal.place_of(position)}: {error}. Nothing of it is lost, and nothing behind it is read. This is a "
        "mistake in jqd: report it with the output of `jqd journal cat`"
    )


async def _breathe() -> None:
    await trio.sleep(BREATH_S)
