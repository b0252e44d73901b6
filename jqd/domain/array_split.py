"""Splits a large MessagePack array into pieces, and runs long work in short steps, so that it does not block the event
loop."""

from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

import msgpack

from jqd.domain.clock import thread_s

PIECE_BYTES = 131_072  # small values of this size take 0.4 ms to decode, and as much to find out how deep they nest
PIECE_ITEMS = 250  # jobs with 32 tags each take 0.7 ms
HELD_S = 0.0005  # steps hold the loop so long, and one step more, before other tasks run
FED_BYTES = 131_072  # skimmed in one step: 0.2 ms for small values
MALFORMED = (msgpack.UnpackException, ValueError)

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A generator that does long work in steps and returns its result: other tasks may run after each step."""


class Piece(NamedTuple):
    """Some neighbouring items of an encoded array: its bytes from `begin` up to, but not including, `end`."""

    begin: int
    end: int
    items: int


def finish(steps: Steps[T]) -> T:
    """Run all steps without letting other tasks run in between, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value


async def in_steps(steps: Steps[T], breathe: Callable[[], Awaitable[None]]) -> T:
    """Run all steps and return their result. Whenever the steps have used HELD_S of processor time, await `breathe`,
    which lets other tasks run."""
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
    """Return the items of one piece of the array `data` as a MessagePack array of their own."""
    return array_head(piece.items) + data[piece.begin : piece.end]


def array_head(items: int) -> bytes:
    head: bytes = msgpack.Packer().pack_array_header(items)
    return head


def array_items(data: bytes) -> int | None:
    """Return the number of items of the array that `data` begins with; None if it begins with no array."""
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
    """Split the MessagePack array from byte `at` to the end of `data` into pieces. Each piece takes about a millisecond
    to decode, unless one item alone takes more. Raises one of MALFORMED if there is no valid array.

    Data is fed to the parser in windows. The parser continues where it stopped, so it parses an item of any size only
    once.
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
    """Return where each of `values` MessagePack values ends, as a byte position in `data`. The first value begins at
    byte `at`, and each further one behind the value before. Raises one of MALFORMED for invalid MessagePack."""
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
