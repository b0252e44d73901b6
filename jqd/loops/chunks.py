"""Cutting what was read of a journal's lane into pieces that one script call may take. Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from jqd.domain.errors import JournalStuck
from jqd.journal import Slice

CHUNK_RECORDS = 500  # one script call must stay below about 5 ms
CHUNK_BYTES = 1 << 20

Record = TypeVar("Record")


class Chunk(NamedTuple, Generic[Record]):
    """Consecutive records of a lane, and the position after the last of them."""

    end: int
    records: list[Record]


def chunks(
    slices: Sequence[Slice],
    decode: Callable[[Slice], Sequence[Record]],
    size_bytes: Callable[[Record], int],
    mine: Callable[[Record], bool] | None = None,
) -> Iterator[Chunk[Record]]:
    """Cut what was read into bounded chunks that may span frames. Records that are not mine are left out. Pure.

    A chunk's end moves over what was left out: its records alone could not tell that nothing between them is missing.
    Raises what `decode` raises, once all before it was given.
    """
    batch: list[Record] = []
    batch_bytes = end = 0
    for piece in slices:
        try:
            records = decode(piece)
        except JournalStuck:
            if batch:
                yield Chunk(end, batch)
            raise
        for index in range(piece.first, piece.stop):
            record = records[index]
            if mine is None or mine(record):
                size = size_bytes(record)
                if batch and (len(batch) == CHUNK_RECORDS or batch_bytes + size > CHUNK_BYTES):
                    yield Chunk(end, batch)
                    batch, batch_bytes = [], 0
                batch.append(record)
                batch_bytes += size
            end = piece.end if index == piece.stop - 1 else piece.start + index + 1
    if batch:
        yield Chunk(end, batch)
