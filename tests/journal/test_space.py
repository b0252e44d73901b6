"""Segments go when what they hold is applied and past retention; what it costs does not grow with what is there."""

import errno
import tracemalloc
from pathlib import Path

import pytest

from jqd.domain.record import Lane
from jqd.journal import JournalConfig
from jqd.journal.files import Files
from jqd.journal.recover import recover
from jqd.journal.writer import Pending, Start, Writer
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFiles
from tests.journal.conftest import DIRECTORY, always, no_failure, once, opened, push, read_lane, segments, until


async def test_segments_are_trimmed_only_when_applied_and_past_retention() -> None:
    files, clock = MemoryFiles(), ManualClock()
    async with opened(files, clock, segment_bytes=50, retention_s=100.0) as journal:
        await push(journal, *[b"x" * 56] * 5)
        assert journal.retirable(journal.end) == 0
        clock.advance(101)
        assert journal.retirable(0) == 0
        assert journal.retirable(299) == 200
        assert journal.retirable(journal.end) == 400
        assert journal.trim(0) == 0
        assert journal.trim(299) == 200
        assert journal.trim(journal.end) == 200
        assert journal.start == 400
        assert journal.stats().segments == 1  # the one that is written to stays
        await until(lambda: len(segments(files)) == 1)
        assert files.calls[-4:] == ["unlink", "sync_directory"] * 2
        assert await read_lane(journal) == [b"x" * 56]
    async with opened(files, clock) as journal:
        assert journal.stats().damaged == []
        assert journal.start == 400


@pytest.mark.parametrize("leap_s", [86_400, -86_400])
async def test_a_clock_that_is_set_neither_hurries_nor_holds_up_retention(leap_s: int) -> None:
    files, clock = MemoryFiles(), ManualClock()
    async with opened(files, clock, segment_bytes=50, retention_s=100.0) as journal:
        await push(journal, *[b"x" * 56] * 2)
        clock.set_wall_ms(clock.wall_ms() + leap_s * 1000)
        assert (journal.retirable(200), journal.overdue(200)) == (0, 0)
        await push(journal, b"x" * 56)
        clock.set_wall_ms(clock.wall_ms() - leap_s * 1000)
        assert journal.retirable(300) == 0
        clock.suspend(101)
        assert journal.retirable(300) == 200
    async with opened(files, clock, segment_bytes=50, retention_s=100.0) as journal:
        assert journal.retirable(300) == (100 if leap_s > 0 else 200), "one seems to be of tomorrow"
        clock.advance(101)
        assert journal.retirable(300) == 300, "it is older than this life"


async def test_a_clock_that_is_ahead_at_the_start_hurries_retention_no_longer_than_nobody_knows_better() -> None:
    files, clock = MemoryFiles(), ManualClock()
    async with opened(files, clock, segment_bytes=50, retention_s=100.0) as journal:
        await push(journal, *[b"x" * 56] * 3)
    right_ms = clock.wall_ms()
    clock.set_wall_ms(right_ms + 86_400_000)
    async with opened(files, clock, segment_bytes=50, retention_s=100.0) as journal:
        assert journal.retirable(200) == 200
        clock.suspend(50)
        journal.opened_by(right_ms + 50_000)
        assert (journal.retirable(200), journal.overdue(200)) == (0, 0)
        journal.opened_by(clock.wall_ms() + 86_400_000)
        clock.suspend(51)
        assert journal.retirable(200) == 200, "by then it is as old as that"


async def test_another_retention_holds_from_when_it_is_said() -> None:
    clock = ManualClock()
    async with opened(MemoryFiles(), clock, segment_bytes=50, retention_s=1_000.0) as journal:
        await push(journal, *[b"x" * 56] * 5)
        clock.advance(101)
        assert journal.retirable(journal.end) == 0
        journal.keep(JournalConfig(directory=DIRECTORY, retention_s=100.0))
        assert journal.retirable(journal.end) == 400


async def test_more_than_the_retention_bytes_goes_before_its_time() -> None:
    files = MemoryFiles()
    async with opened(files, segment_bytes=50, retention_bytes=250) as journal:
        await push(journal, *[b"x" * 56] * 5)
        assert journal.retirable(journal.end) == 300
        assert journal.retirable(150) == 100
        assert journal.trim(journal.retirable(journal.end)) == 300
        assert journal.stats().bytes == 200


async def test_jobs_of_a_quiet_open_segment_are_past_retention_some_day_too() -> None:
    """All of them: it would keep what ended them at other daemons for ever."""
    files, clock = MemoryFiles(), ManualClock()
    async with opened(files, clock, segment_bytes=150, retention_s=10.0, segment_age_s=100.0) as journal:
        await push(journal, *[b"x" * 56] * 3)
        assert journal.is_behind(Lane.JOBS)
        await read_lane(journal)
        assert not journal.is_behind(Lane.JOBS)
        clock.advance(99)
        assert journal.retirable(journal.end) == 200, "of the closed one"
        await journal.retire(200)
        assert (journal.retired, journal.retirable(journal.end)) == (200, 200)
        clock.advance(2)
        assert journal.retirable(journal.end) == journal.end == 300
        assert journal.retirable(journal.end - 1) == 200


async def test_what_is_kept_for_others_has_an_end_in_time_and_in_bytes() -> None:
    files, clock = MemoryFiles(), ManualClock()
    limits = {"retention_s": 10.0, "others_s": 100.0, "retention_bytes": 100, "others_bytes": 250}
    async with opened(files, clock, segment_bytes=50, **limits) as journal:
        assert journal.others_s == 100.0
        await push(journal, *[b"x" * 56] * 5)
        assert journal.written == journal.end == 500
        assert (journal.closed(250), journal.closed(99), journal.closed(500)) == (200, 0, 400)
        assert journal.overdue(journal.end) == 200, "more than 350 bytes are there"
        assert journal.overdue(100) == 100
        clock.advance(111)
        assert journal.overdue(journal.end) == 400, "the open one stays"


async def test_a_position_is_told_as_a_segment_and_a_byte() -> None:
    async with opened(MemoryFiles(), segment_bytes=50) as journal:
        await push(journal, *[b"x" * 56] * 2)
        assert journal.place_of(120) == "00000000000000000100.jqd, byte 8212 (position 120)"
        assert journal.place_of(999) == "position 999"


async def test_a_segment_that_cannot_be_deleted_is_tried_again_before_any_younger_one() -> None:
    files = MemoryFiles()
    async with opened(files, segment_bytes=50, retention_s=0) as journal:
        await push(journal, *[b"x" * 56] * 5)
        oldest, *_ = segments(files)
        files.fail = always(errno.EIO, "unlink")
        assert journal.trim(200) == 200
        await until(lambda: "unlink" in files.calls)
        assert oldest in files.files
        files.fail = once(errno.ENOENT, "unlink")  # somebody else was faster
        del files.files[oldest]
        await push(journal, b"x" * 56)
        await until(lambda: len(segments(files)) == 4)
        assert journal.trim(300) == 100
        files.fail = always(errno.EIO, "unlink")
    assert len(segments(files)) == 4
    files.fail = no_failure
    async with opened(files) as journal:
        assert journal.stats().damaged == []
        assert len(await read_lane(journal)) == 4


async def test_deletions_that_wait_at_the_end_are_made() -> None:
    files = MemoryFiles()
    async with opened(files, segment_bytes=50, retention_s=0) as journal:
        await push(journal, *[b"x" * 56] * 3)
        assert journal.trim(journal.end) == 200
    assert len(segments(files)) == 1


async def test_appending_costs_the_same_with_much_and_with_little_in_the_journal() -> None:
    """Counted in disk calls and in books kept, not in seconds."""
    files = MemoryFiles()
    async with opened(files, segment_bytes=50_000) as journal:

        async def calls_of_a_push() -> list[str]:
            before = len(files.calls)
            await push(journal, b"x")
            return files.calls[before:]

        first = await calls_of_a_push()
        tracemalloc.start()
        for _ in range(10):
            for _ in range(500):
                journal.write(Lane.JOBS, 1, b"x" * 56)
            await journal.wsync()
        await push(journal, b"x")
        assert await calls_of_a_push() == first == ["write", "sync", "in_place", "in_place"]
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        on_disk = 2 * sum(len(content) for content in files.contents.values())
        assert kept - on_disk < 200_000  # 5,000 frames leave no objects behind but their segments


def test_a_start_with_a_long_journal_takes_little_memory(tmp_path: Path) -> None:
    """One segment of 1.2 MB with 12,000 frames: recovery keeps a window, not the frames."""
    disk = Files()
    disk.open_directory(tmp_path)
    lock = disk.lock(tmp_path / "lock")
    writer = Writer(disk, tmp_path, b"j" * 16, lock=(lock, tmp_path / "lock"), random_bytes=lambda n: b"r" * n)
    writer.begin(Start(0, 0, 1, 1))
    size, frames = 44 + 56, 12_000
    for first in range(0, frames, 4_000):
        numbers = range(first, first + 4_000)
        writer.commit([Pending(n * size, (n + 1) * size, n + 1, 1, Lane.JOBS, 1, b"x" * 56) for n in numbers])
    writer.close()
    disk.close(lock)
    tracemalloc.start()
    found = recover(disk, tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    disk.release()
    assert found.end == frames * size
    assert found.next_seq == frames + 1
    assert peak < 700_000
