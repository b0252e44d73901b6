"""Whatever the frames and however much is reserved at once: each read goes on, and every record is given once.

A read that came back to where it began once kept a core busy and every later push waiting, with all lights green.
"""

import itertools

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from jqd.domain.record import Lane
from jqd.journal import Reservation, reader
from jqd.journal.segment import Segment
from tests.harness.files import MemoryFiles
from tests.journal.conftest import opened, push

RECORDS_MAX = 10_000  # of one request, so of one frame
READS_MAX = 60  # of one example: what is reserved is a share of what there is

Frames = list[tuple[Lane, int]]


async def _written(frames: Frames, files: MemoryFiles) -> tuple[list[Segment], int]:
    async with opened(files, segment_bytes=30_000) as journal:
        for lane, records in frames:
            journal.write(lane, records, bytes(records))
        await journal.wsync()
        return list(journal.segments), journal.end


def read_all(files: MemoryFiles, segments: list[Segment], end: int, reserve: int) -> list[int]:
    """The positions of all records of the jobs lane, as reads of `reserve` records give them."""
    disk, position, given = reader.Reader(files), 0, list[int]()
    while position < end:
        token = Reservation(Lane.JOBS, position, end, reserve, 4 << 20)
        for piece in disk.read(token, segments):
            given += range(piece.start + piece.first, piece.start + piece.stop)
        assert token.end > position, f"a read of {reserve} records from {position} on came back to {token.end}"
        position = token.end
    disk.close()
    return given


def expected(frames: Frames) -> list[int]:
    position, records = 0, list[int]()
    for lane, size in frames:
        if lane is Lane.JOBS:
            records += range(position, position + size)
        position += 44 + size
    return records


def test_small_frames_by_every_reserve_size() -> None:
    for sizes in itertools.product((1, 2, 3, 5), repeat=3):
        frames = [(Lane.JOBS, size) for size in sizes]
        files = MemoryFiles()
        segments, end = trio.run(_written, frames, files)
        for reserve in range(1, 12):
            assert read_all(files, segments, end, reserve) == expected(frames), (sizes, reserve)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([Lane.JOBS, Lane.JOBS, Lane.OUTCOMES]), st.integers(1, RECORDS_MAX)),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, RECORDS_MAX + 1),
)
def test_frames_of_any_size_by_any_reserve_size(frames: Frames, reserve: int) -> None:
    reserve = max(reserve, sum(records for _, records in frames) // READS_MAX)
    files = MemoryFiles()
    segments, end = trio.run(_written, frames, files)
    assert read_all(files, segments, end, reserve) == expected(frames)


async def test_the_array_that_was_seen_to_stop_it() -> None:
    """Something has run, and an array is longer than one reservation: its second part lies before a longer frame."""
    async with opened(MemoryFiles()) as journal:
        await push(journal, b"ran")
        for records in (4_100, 4_000, 10_000):
            await journal.wsync(journal.write(Lane.JOBS, records, bytes(records)))
        taken = 0
        while token := journal.read_reserve(Lane.JOBS, 4_000):
            taken += sum(piece.stop - piece.first for piece in await journal.read(token))
            journal.rsync(token.lane, token.end)
        assert taken == 18_101
