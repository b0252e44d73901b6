"""What was committed last is read from memory, and is what the disk has."""

import random
from collections.abc import Callable

import pytest

from jqd.domain.record import Lane
from jqd.journal import tail
from jqd.journal.reader import Reader, Reservation, Slice
from jqd.journal.writer import Pending
from tests.harness.files import MemoryFiles
from tests.journal.conftest import opened, push, read_lane

pytestmark = pytest.mark.usefixtures("in_memory")
HEADER = 44


def reads(files: MemoryFiles) -> int:
    return sum(call.startswith("read") for call in map(str, files.calls))


async def test_what_was_just_committed_is_read_without_the_disk() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"one", b"two")
        await push(journal, b"outcome", lane=Lane.OUTCOMES)
        before = reads(files)
        assert await read_lane(journal) == [b"one", b"two"]
        assert await read_lane(journal, Lane.OUTCOMES) == [b"outcome"]
        assert reads(files) == before
    async with opened(files) as journal:
        before = reads(files)
        assert await read_lane(journal) == [b"one", b"two"], "an earlier life's lie on the disk only"
        assert reads(files) > before


async def test_who_is_behind_what_is_kept_reads_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "TAIL_BYTES", 4 * (HEADER + 5))
    files = MemoryFiles()
    async with opened(files) as journal:
        bodies = [b"job %d" % number for number in range(10)]
        for number, body in enumerate(bodies):
            await push(journal, body)
            before = reads(files)
            assert (await read_lane(journal)) == [body]
            assert reads(files) == before, number
        journal.read_cancel(Lane.JOBS, 0)
        assert await read_lane(journal) == bodies
        assert reads(files) > before
        journal.read_cancel(Lane.JOBS, journal.end - (HEADER + 5))
        before = reads(files)
        assert await read_lane(journal) == bodies[-1:]
        assert reads(files) == before


async def test_memory_gives_what_the_disk_gives() -> None:
    """From any position, with any limits: each record once, up to the same end."""
    source, files = random.Random(7), MemoryFiles()
    async with opened(files) as journal:
        for _ in range(30):
            records = source.choice((1, 1, 2, 5))
            lane = source.choice((Lane.JOBS, Lane.JOBS, Lane.OUTCOMES))
            journal.write(lane, records, bytes(records) + b"x" * source.randrange(20))
        await journal.wsync()
        disk, kept = Reader(files), tail.Tail(0)
        whole = Reservation(Lane.JOBS, 0, journal.end, 1_000, 1 << 20)
        frames = disk.read(whole, journal.segments)
        for one in frames:
            kept.add(Pending(one.start, one.end, 0, 0, Lane.JOBS, one.stop, one.body))
        for _ in range(300):
            start, end = source.randrange(journal.end), source.choice((journal.end, *(one.start for one in frames)))
            limits = source.choice((1, 2, 3, 50)), source.choice((1, 100, 4_000))

            def memory(token: Reservation) -> list[Slice]:
                slices = kept.read(token)
                assert slices is not None
                return slices

            ways = memory, lambda token: disk.read(token, journal.segments)
            ours, theirs = (records_through(way, start, end, limits) for way in ways)
            assert ours == theirs
        disk.close()


def records_through(
    read: Callable[[Reservation], list[Slice]], start: int, end: int, limits: tuple[int, int]
) -> list[tuple[int, bytes, int]]:
    found, position = list[tuple[int, bytes, int]](), start
    while position < end:
        token = Reservation(Lane.JOBS, position, end, *limits)
        for piece in read(token):
            found += [(piece.start, piece.body, record) for record in range(piece.first, piece.stop)]
        assert position < token.end <= end
        position = token.end
    return found


async def test_a_large_frame_is_kept_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "TAIL_BYTES", 100)
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"small", b"x" * 200)
        before = reads(files)
        assert await read_lane(journal) == [b"small", b"x" * 200]
        assert reads(files) > before
        await push(journal, b"after")
        before = reads(files)
        assert await read_lane(journal) == [b"after"]
        assert reads(files) == before
