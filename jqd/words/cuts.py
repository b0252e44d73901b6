"""A large MessagePack array, cut into smaller ones: what is done with all of it at once holds up everybody else."""

from collections.abc import Generator, Iterator
from typing import NamedTuple, TypeVar

import msgpack

PIECE_BYTES = 131_072  # of small values some 0.4 ms of decoding, and as much of looking how deep they nest
PIECE_ITEMS = 250  # with 32 tags each 0.7 ms
FED_BYTES = 131_072  # looked through in one piece; of small values 0.2 ms
MALFORMED = (msgpack.UnpackException, ValueError)

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that may be left for a moment at each step."""


class Piece(NamedTuple):
    """Items that stand behind each other."""

    begin: int
    end: int
    items: int


def finish(steps: Steps[T]) -> T:
    """All of it at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value


def array_of(data: bytes, piece: Piece) -> bytes:
    """These items as an array of their own."""
    return array_head(piece.items) + data[piece.begin : piece.end]


def array_head(items: int) -> bytes:
    """How an array of so many begins, in as few bytes as can be."""
    head: bytes = msgpack.Packer().pack_array_header(items)
    return head


def array_items(data: bytes) -> int | None:
    """The items of the array that `data` begins with, as its head has them; None when it begins none."""
    if not data:
        return None
    match data[0]:
        case head if 0x90 <= head <= 0x9F:
            return head & 0x0F
        case 0xDC if len(data) >= 3:
            return int.from_bytes(data[1:3], "big")
        case 0xDD if len(data) >= 5:
            return int.from_bytes(data[1:5], "big")
    return None


def cut(data: bytes) -> Steps[list[Piece]]:
    """The pieces of an array, each of a millisecond of work unless one item is more. Raises MALFORMED.

    The reader goes on where it ended when more is fed to it, so that an item of any size is looked through once.
    """
    reader = msgpack.Unpacker(max_buffer_size=len(data) + 1)
    windows = _windows(data)
    reader.feed(next(windows))
    items, pieces = reader.read_array_header(), list[Piece]()
    begin, number = reader.tell(), 0
    for index in range(items):
        while True:
            try:
                reader.skip()
                break
            except msgpack.OutOfData:
                if (window := next(windows, None)) is None:
                    raise
                reader.feed(window)
            yield
        number, end = number + 1, reader.tell()
        if number == PIECE_ITEMS or end - begin >= PIECE_BYTES or index == items - 1:
            pieces.append(Piece(begin, end, number))
            begin, number = end, 0
            yield
    if begin != len(data):
        raise ValueError(f"the array ends at byte {begin} of {len(data)}")
    return pieces


def _windows(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[begin : begin + FED_BYTES] for begin in range(0, len(data), FED_BYTES))
