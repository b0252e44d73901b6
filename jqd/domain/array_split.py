"""Cuts a large MessagePack array into smaller ones: work on all of it at once would hold up the loop."""

from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

import msgpack

from jqd.domain.clock import thread_s

PIECE_BYTES = 131_072  # of small values some 0.4 ms of decoding, and as much of looking how deep they nest
PIECE_ITEMS = 250  # with 32 tags each 0.7 ms
HELD_S = 0.0005  # of the loop, and a step more, before other tasks run: half of what they meet beside small requests
FED_BYTES = 131_072  # looked through in one piece; of small values 0.2 ms
MALFORMED = (msgpack.UnpackException, ValueError)

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that may be left for a moment at each step."""


class Piece(NamedTuple):
    """Neighbouring items of an array."""

    begin: int
    end: int
    items: int


def finish(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value


async def in_steps(steps: Steps[T], breathe: Callable[[], Awaitable[None]]) -> T:
    """Run `steps`, and await `breathe` whenever the loop was held for HELD_S."""
    began_s = thread_s()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value
        if thread_s() - began_s >= HELD_S:
            await breathe()
            began_s = thread_s()


def array_of(data: bytes, piece: Piece) -> bytes:
    """Return a piece's items as an array of their own."""
    return array_head(piece.items) + data[piece.begin : piece.end]


def array_head(items: int) -> bytes:
    head: bytes = msgpack.Packer().pack_array_header(items)
    return head


def array_items(data: bytes) -> int | None:
    """Return the number of items in the array that `data` begins with; None when it begins none."""
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


def cut(data: bytes, at: int = 0) -> Steps[list[Piece]]:
    """Return the pieces of the array that begins at `at` and ends `data`, each a millisecond of work unless one item is
    more. Raises MALFORMED.

    The reader goes on where it ended when more is fed to it, so that an item of any size is looked through once.
    """
    reader = msgpack.Unpacker(max_buffer_size=len(data) + 1)
    windows = _windows(data, at)
    reader.feed(next(windows, b""))
    items, pieces = reader.read_array_header(), list[Piece]()
    begin, number = at + reader.tell(), 0
    for index in range(items):
        yield from _skip(reader, windows)
        number, end = number + 1, at + reader.tell()
        if number == PIECE_ITEMS or end - begin >= PIECE_BYTES or index == items - 1:
            pieces.append(Piece(begin, end, number))
            begin, number = end, 0
            yield
    if begin != len(data):
        raise ValueError(f"the array ends at byte {begin} of {len(data)}")
    return pieces


def skipped(data: bytes, at: int, values: int) -> list[int]:
    """Return where each of the next `values` values ends. Raises MALFORMED."""
    reader, windows, ends = msgpack.Unpacker(max_buffer_size=len(data) + 1), _windows(data, at), list[int]()
    for _ in range(values):
        finish(_skip(reader, windows))
        ends.append(at + reader.tell())
    return ends


def _skip(reader: msgpack.Unpacker, windows: Iterator[memoryview]) -> Steps[None]:
    while True:
        try:
            reader.skip()
            break
        except msgpack.OutOfData:
            if (window := next(windows, None)) is None:
                raise
            reader.feed(window)
        yield


def _windows(data: bytes, at: int) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[begin : begin + FED_BYTES] for begin in range(at, len(data), FED_BYTES))
