"""Every cut and every flipped bit of a small journal: no wrong record is ever accepted, no good one silently dropped.

The long form: `python -m pytest tests/crash --journal-bytes 65536`.
"""

import random

import pytest

from jqd.errors import JournalVersion
from jqd.record import Lane
from jqd.testing.files import MemoryFiles
from tests.journal.conftest import opened, read_lane

SEED = 20_260


async def build(size: int) -> tuple[MemoryFiles, list[bytes], list[int]]:
    """A journal of about `size` bytes: its disk, its bodies, and the file offset behind each frame."""
    source = random.Random(SEED)
    files, bodies, ends = MemoryFiles(), [], []
    async with opened(files) as journal:
        while journal.end < size:
            # Payloads that hold whole frames of this very segment must not be taken for them.
            earlier = bytes(next(iter(files.data.values())))[80:][-90:]
            body = source.randbytes(source.randint(1, 60)) + (earlier if source.random() < 0.3 else b"")
            bodies.append(body)
            await journal.wsync(journal.write(Lane.JOBS, 1, body))
            ends.append(80 + journal.end)
    return files, bodies, ends


def copy(files: MemoryFiles, change: object) -> MemoryFiles:
    fresh = MemoryFiles()
    for path, content in files.data.items():
        fresh.data[path] = bytearray(content)
        change(fresh.data[path])  # type: ignore[operator]
    return fresh


async def test_cut_at_every_byte(journal_bytes: int) -> None:
    files, bodies, ends = await build(journal_bytes)
    for cut in range(ends[-1] + 1):

        def shorten(content: bytearray, cut: int = cut) -> None:
            del content[cut:]

        async with opened(copy(files, shorten)) as journal:
            whole = sum(end <= cut for end in ends)
            assert await read_lane(journal, Lane.JOBS) == bodies[:whole], f"cut at {cut}"
            assert journal.stats().damaged == []


async def test_flip_every_bit(journal_bytes: int) -> None:
    files, bodies, ends = await build(journal_bytes // 8)
    for offset in range(ends[-1]):
        for bit in range(8):

            def flip(content: bytearray, offset: int = offset, bit: int = bit) -> None:
                content[offset] ^= 1 << bit

            try:
                async with opened(copy(files, flip)) as journal:
                    read = await read_lane(journal, Lane.JOBS)
                    loud = bool(journal.stats().damaged)
            except JournalVersion:
                # A flipped version byte reads as a newer format: refused as a whole, which loses nothing.
                assert offset in (8, 9)
                continue
            assert set(read) <= set(bodies), f"byte {offset} bit {bit}: a wrong record"
            lost = [n for n, body in enumerate(bodies) if body not in read]
            # Only the frame that was hit is gone, and unless it was the last one (a torn tail) somebody is told.
            if offset >= 80:
                assert lost == [next(n for n, end in enumerate(ends) if offset < end)]
                assert loud or lost == [len(bodies) - 1]
            else:
                assert loud or not lost


@pytest.mark.parametrize("size", [512, 4096])
async def test_zeroed_sectors(size: int) -> None:
    files, bodies, ends = await build(4 * size)
    for start in range(0, ends[-1], size):

        def wipe(content: bytearray, start: int = start) -> None:
            content[start : start + size] = bytes(len(content[start : start + size]))

        async with opened(copy(files, wipe)) as journal:
            read = await read_lane(journal, Lane.JOBS)
            assert set(read) <= set(bodies)
            untouched = [b for n, b in enumerate(bodies) if ends[n] <= start and start >= 80]
            assert read[: len(untouched)] == untouched
