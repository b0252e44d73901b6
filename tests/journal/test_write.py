"""write and wsync: one sync for all who wait, and not one word before it."""

import errno
import struct
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from jqd.domain.errors import JournalRefused
from jqd.domain.jobid import SEQUENCES, parse_id
from jqd.domain.record import Lane
from jqd.journal import Journal, JournalConfig
from jqd.journal.frame import HEAD_BYTES
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFiles
from tests.journal.conftest import once, opened, push, read_lane, segments, until


async def test_what_was_synced_is_read_back_exactly_also_in_a_later_life() -> None:
    files = MemoryFiles()
    bodies = [bytes([65 + n]) * (n + 1) for n in range(20)]
    async with opened(files) as journal:
        for body in bodies:
            journal.write(Lane.JOBS, 1, body)
        await journal.wsync()
        assert await read_lane(journal) == bodies
        assert journal.read_reserve(Lane.JOBS, 10) is None
    async with opened(files) as journal:
        assert await read_lane(journal) == bodies
        assert journal.stats().damaged == []
    assert files.open_descriptors == 0


async def test_write_makes_no_disk_call_and_wsync_returns_after_the_sync() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        calls = len(files.calls)
        position = journal.write(Lane.JOBS, 1, b"job")
        assert len(files.calls) == calls
        assert journal.end < position
        await journal.wsync(position)
        assert files.calls[calls:] == ["write", "sync", "in_place", "in_place"]
        assert journal.end == position
        (path,) = segments(files)
        assert files.files[path].synced.endswith(b"job")


async def test_many_waiters_share_one_sync() -> None:
    async with opened(MemoryFiles()) as journal:
        async with trio.open_nursery() as nursery:
            for n in range(50):
                nursery.start_soon(journal.wsync, journal.write(Lane.JOBS, 1, b"%d" % n))
        stats = journal.stats()
        assert stats.commits == 1
        assert stats.frames_per_commit_mean == 50
        assert stats.bytes_per_commit_mean == journal.end == stats.synced == stats.written == stats.bytes
        assert (stats.pending_bytes, stats.refusals, stats.refusing) == (0, 0, None)


async def test_a_commit_takes_no_more_than_its_bytes() -> None:
    async with opened(MemoryFiles(), commit_bytes_max=168) as journal:
        for _ in range(6):
            journal.write(Lane.JOBS, 1, b"x" * 40)
        await journal.wsync()
        assert journal.stats().commits == 3


async def test_a_commit_waits_for_more_no_longer_than_its_time_and_bytes(mock_clock: MockClock) -> None:
    async with opened(MemoryFiles(), commit_linger_ms=60_000, commit_bytes_max=1_000) as journal:
        first = journal.write(Lane.JOBS, 1, b"a")
        await wait_all_tasks_blocked()
        second = journal.write(Lane.JOBS, 1, b"b")
        await wait_all_tasks_blocked()
        assert journal.end < first
        mock_clock.jump(60)
        await journal.wsync(second)
        assert journal.stats().commits == 1
        journal.write(Lane.JOBS, 1, b"c")
        await wait_all_tasks_blocked()
        await journal.wsync(journal.write(Lane.JOBS, 1, b"d" * 1_000))  # enough bytes: no clock moves here
        assert journal.end > second
        last = journal.write(Lane.JOBS, 1, b"e")
        await wait_all_tasks_blocked()
    await journal.wsync(last)  # a stop waits for nothing


async def test_a_commit_of_more_buffers_than_a_call_takes_is_written_whole() -> None:
    async with opened(MemoryFiles()) as journal:
        bodies = [b"%05d" % n for n in range(1_300)]
        for body in bodies:
            journal.write(Lane.JOBS, 1, body)
        await journal.wsync()
        assert journal.stats().commits == 1
        assert await read_lane(journal) == bodies


@pytest.mark.parametrize("taken", [1, 7, 44, 45, 100])
async def test_short_writes_go_on_behind_themselves(taken: int) -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        files.short = lambda size: min(size, taken)
        bodies = [b"%05d" % n for n in range(30)]
        for body in bodies:
            journal.write(Lane.JOBS, 1, body)
        await journal.wsync()
        assert await read_lane(journal) == bodies


async def test_a_cancelled_waiter_cancels_no_commit() -> None:
    async with opened(MemoryFiles()) as journal:
        position = journal.write(Lane.JOBS, 1, b"x")
        with trio.CancelScope() as scope:
            scope.cancel()
            await journal.wsync(position)
        await journal.wsync(position)
        assert await read_lane(journal) == [b"x"]


async def test_a_shielded_waiter_waits_on_and_hears_how_it_ended() -> None:
    heard: list[str] = []

    async def wait(journal: Journal, position: int) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await journal.wsync(position, shielded=True)
            except JournalRefused as error:
                heard.append(str(error))
            else:
                heard.append("synced" if journal.end >= position else "too soon")

    files = MemoryFiles()
    async with opened(files, commit_bytes_max=50) as journal, trio.open_nursery() as nursery:
        for n in range(3):  # each has a commit of its own
            nursery.start_soon(wait, journal, journal.write(Lane.JOBS, 1, b"%d" % n))
    assert heard == ["synced"] * 3
    async with opened(files) as journal, trio.open_nursery() as nursery:
        files.fail = once(errno.EIO, "sync")
        nursery.start_soon(wait, journal, journal.write(Lane.JOBS, 1, b"x"))
    assert "cannot be" in heard[3]


async def test_what_is_pending_at_the_end_is_committed_and_then_nothing_is_taken() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        position = journal.write(Lane.JOBS, 1, b"last words")
    await journal.wsync(position)
    with pytest.raises(JournalRefused, match="closed"):
        journal.write(Lane.JOBS, 1, b"too late")
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"last words"]


async def test_segments_rotate_and_are_read_through() -> None:
    files = MemoryFiles()
    bodies = [b"%03d" % n * 30 for n in range(30)]
    async with opened(files, segment_bytes=300) as journal:
        await push(journal, *bodies)
        assert journal.stats().segments > 5
        assert await read_lane(journal, records_max=7) == bodies
    async with opened(files) as journal:
        assert await read_lane(journal) == bodies
        assert journal.stats().damaged == []


async def test_a_segment_is_closed_when_it_is_old_and_holds_something() -> None:
    files, clock = MemoryFiles(), ManualClock()
    async with opened(files, clock, segment_age_s=60.0) as journal:
        clock.advance(61)
        await push(journal, b"a")  # old, but empty until now: closing it would leave an empty file
        assert journal.stats().segments == 1
        await push(journal, b"b", b"c")
        assert journal.stats().segments == 2
        clock.advance(59)
        await push(journal, b"d")
        assert journal.stats().segments == 2
        clock.advance(1)
        await push(journal, b"e")
        assert journal.stats().segments == 3
        assert await read_lane(journal) == [b"a", b"b", b"c", b"d", b"e"]


async def test_sequence_numbers_have_no_gap_and_dates_never_decrease() -> None:
    files, clock = MemoryFiles(), ManualClock()
    async with opened(files, clock, segment_bytes=100) as journal:
        await push(journal, b"a", b"b")
        clock.set_wall_ms(clock.wall_ms() - 5_000)
        await push(journal, b"c", b"d", b"e")
    async with opened(files, clock) as journal:
        files.fail = once(errno.EIO, "sync")
        with pytest.raises(JournalRefused):
            await push(journal, b"refused")
        await until(lambda: not journal.refusing)
        await push(journal, b"f")
    frames = []
    for path in segments(files):
        content = files.contents[path]
        at = HEAD_BYTES
        while at < len(content):
            length, _, records, _, seq, at_ms = struct.unpack_from("<IIIIQQ", content, at + 8)
            frames.append((seq, at_ms, records))
            at += 44 + length
    assert [seq for seq, _, _ in frames] == [1, 2, 3, 4, 5, 6]
    assert [at_ms for _, at_ms, _ in frames] == sorted(at_ms for _, at_ms, _ in frames)


async def test_ids_and_dates_of_a_later_life_come_after_those_of_the_earlier() -> None:
    files, clock = MemoryFiles(), ManualClock()
    async with opened(files, clock) as journal:
        first = journal.ids.take(3)
        await journal.wsync(journal.write(Lane.JOBS, 3, b"abc"))
        journal_id = journal.journal_id
    clock.set_wall_ms(clock.wall_ms() - 3_600_000)  # the clock was set back an hour
    async with opened(files, clock) as journal:
        later = journal.ids.take(1)
        assert journal.journal_id == journal_id
        assert later.first > first.ids()[-1]
        parts, earlier = parse_id(later.first), parse_id(first.first)
        assert parts is not None
        assert earlier is not None
        assert parts.journal == earlier.journal


async def test_a_later_life_gives_no_id_that_an_earlier_one_borrowed_from_the_future() -> None:
    files, clock = MemoryFiles(), ManualClock()
    async with opened(files, clock) as journal:
        clock.advance(5)  # the segment is older than its frames
        for _ in range(3):
            last = journal.ids.take(SEQUENCES).ids()[-1]  # a millisecond's worth each
        await push(journal, b"abc")
    clock.set_wall_ms(clock.wall_ms() - 5_000)
    async with opened(files, clock) as journal:
        assert journal.ids.take(1).first > last


async def test_empty_lives_leave_no_segments_behind() -> None:
    files = MemoryFiles()
    for _ in range(5):
        async with opened(files) as journal:
            assert journal.end == 0
    assert len(segments(files)) == 1
    assert len(files.files) == 2  # and the lock


async def test_too_much_waiting_is_refused_and_absurd_frames_are_bugs() -> None:
    async with opened(MemoryFiles(), frame_bytes_max=100, pending_bytes_max=160) as journal:
        position = journal.write(Lane.JOBS, 1, b"x" * 100)
        with pytest.raises(JournalRefused, match="wait for the disk") as refused:
            journal.write(Lane.JOBS, 1, b"x" * 100)
        assert not refused.value.full
        await journal.wsync(position)
        journal.write(Lane.JOBS, 1, b"x" * 100)
        for records, body in ((0, b"x"), (2, b"x")):
            with pytest.raises(ValueError, match="a frame takes"):
                journal.write(Lane.JOBS, records, body)
        with pytest.raises(
            JournalRefused, match=r"raise journal\.frame_bytes_max"
        ):  # a copy, from before it was lowered
            journal.write(Lane.JOBS, 1, b"x" * 101)
        with pytest.raises(AssertionError, match="never given out"):
            await journal.wsync(1_000_000)


async def test_outcomes_are_taken_while_so_much_waits_that_pushes_are_refused() -> None:
    async with opened(MemoryFiles(), frame_bytes_max=100, pending_bytes_max=160) as journal:
        journal.write(Lane.JOBS, 1, b"x" * 100)
        for lane in set(Lane) - {Lane.OUTCOMES}:
            with pytest.raises(JournalRefused, match=r"limit 160"):
                journal.write(lane, 1, b"x" * 100)
        position = journal.write(Lane.OUTCOMES, 1, b"x" * 100)  # the largest there is has a place
        with pytest.raises(JournalRefused, match=r"wait for the disk"):
            journal.write(Lane.OUTCOMES, 1, b"x" * 100)
        with pytest.raises(JournalRefused, match=r"limit 160"):
            journal.write(Lane.JOBS, 1, b"x")
        await journal.wsync(position)
        assert journal.stats().pending_bytes == 0


async def test_an_error_of_the_block_leaves_as_it_came() -> None:
    files = MemoryFiles()
    with pytest.raises(KeyError, match="of the block"):  # noqa: PT012
        async with opened(files) as journal:
            journal.write(Lane.JOBS, 1, b"x")
            raise KeyError("of the block")
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"x"]


@pytest.mark.parametrize("shielded", [False, True])
async def test_a_bug_in_the_commit_task_stops_whoever_holds_the_journal(shielded: bool) -> None:
    files = MemoryFiles()

    def broken(call: str, number: int) -> None:
        if call == "sync":
            raise ZeroDivisionError("a bug")

    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
        async with opened(files) as journal:
            files.fail = broken
            await journal.wsync(journal.write(Lane.JOBS, 1, b"x"), shielded=shielded)
    assert caught.group_contains(ZeroDivisionError)
    assert files.open_descriptors == 0


async def test_a_bug_in_two_commits_in_a_row_leaves_nobody_waiting() -> None:
    """Who is shielded cannot be cancelled either: the daemon would neither die nor serve."""
    files = MemoryFiles()

    def broken(call: str, number: int) -> None:
        if call == "sync":
            raise ZeroDivisionError("a bug")

    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
        async with opened(files, commit_bytes_max=50) as journal, trio.open_nursery() as nursery:
            files.fail = broken
            for n in range(3):  # each has a commit of its own
                nursery.start_soon(partial(journal.wsync, journal.write(Lane.JOBS, 1, b"%d" % n), shielded=True))
    assert caught.group_contains(ZeroDivisionError)


def test_a_frame_has_to_fit_into_what_may_wait() -> None:
    with pytest.raises(ValueError, match=r"a frame of frame_bytes_max must fit into pending_bytes_max"):
        JournalConfig(directory=Path("x"), pending_bytes_max=1)
