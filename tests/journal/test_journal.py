"""write / wsync / read_reserve / read / read_cancel / rsync, over a disk in memory."""

import errno
import random
from pathlib import Path

import pytest
import trio
import trio.testing

from jqd.clock import ManualClock
from jqd.errors import JournalDamaged, JournalLocked, JournalRefused, JournalVersion
from jqd.jobid import parse_id
from jqd.journal import JournalConfig, open_journal
from jqd.record import Lane
from jqd.testing.files import MemoryFiles
from tests.journal.conftest import opened, read_lane


async def test_what_was_synced_is_read_back_exactly_also_in_a_later_life() -> None:
    files = MemoryFiles()
    bodies = [bytes([65 + n]) * (n + 1) for n in range(20)]
    async with opened(files) as journal:
        for body in bodies:
            journal.write(Lane.JOBS, 1, body)
        await journal.wsync()
        assert await read_lane(journal, Lane.JOBS) == bodies
        assert journal.read_reserve(Lane.JOBS, 10) is None
    async with opened(files) as journal:
        assert await read_lane(journal, Lane.JOBS) == bodies
        assert journal.stats().damaged == []


async def test_lanes_are_read_apart() -> None:
    async with opened(MemoryFiles()) as journal:
        journal.write(Lane.JOBS, 1, b"job")
        journal.write(Lane.OUTCOMES, 1, b"outcome")
        journal.write(Lane.JOBS, 1, b"job 2")
        await journal.wsync()
        assert await read_lane(journal, Lane.OUTCOMES) == [b"outcome"]
        assert journal.read_reserve(Lane.CANCELS, 1) is None
        assert await read_lane(journal, Lane.JOBS) == [b"job", b"job 2"]
        assert journal.read_point(Lane.CANCELS) == journal.end


async def test_a_frame_can_be_read_in_parts() -> None:
    async with opened(MemoryFiles()) as journal:
        start = journal.end
        end = journal.write(Lane.JOBS, 5, b"five records")
        await journal.wsync(end)
        seen = []
        while token := journal.read_reserve(Lane.JOBS, 2):
            (piece,) = await journal.read(token)
            seen.append((piece.start, piece.first, piece.stop, piece.end))
            journal.rsync(token)
        assert seen == [(start, 0, 2, start + 2), (start, 2, 4, start + 4), (start, 4, 5, end)]
        journal.seek(Lane.JOBS, start + 3)
        token = journal.read_reserve(Lane.JOBS, 10)
        assert token is not None
        (piece,) = await journal.read(token)
        assert (piece.first, piece.stop, piece.end) == (3, 5, end)


async def test_a_cancelled_or_overdue_reservation_is_given_back_whether_or_not_it_was_read() -> None:
    clock = ManualClock()
    async with opened(MemoryFiles(), clock, reserve_timeout_s=5.0) as journal:
        await journal.wsync(journal.write(Lane.JOBS, 1, b"job"))
        token = journal.read_reserve(Lane.JOBS, 1)
        assert token is not None
        await journal.read(token)
        with pytest.raises(RuntimeError, match="reserved already"):
            journal.read_reserve(Lane.JOBS, 1)
        journal.read_cancel(token)
        token = journal.read_reserve(Lane.JOBS, 1)
        assert token is not None
        clock.advance(6)
        again = journal.read_reserve(Lane.JOBS, 1)
        assert again is not None
        assert await journal.read(again) != []
        with pytest.raises(RuntimeError, match="given back"):
            journal.rsync(token)
        journal.rsync(again)
        journal.read_cancel(again)
        assert journal.read_reserve(Lane.JOBS, 1) is None


async def test_many_waiters_share_one_sync() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        before = journal.stats().commits
        async with trio.open_nursery() as nursery:
            for n in range(50):
                nursery.start_soon(journal.wsync, journal.write(Lane.JOBS, 1, b"%d" % n))
        assert journal.stats().commits - before == 1
        assert journal.stats().frames_per_commit_mean == 50


async def test_a_commit_takes_no_more_than_its_bytes() -> None:
    async with opened(MemoryFiles(), commit_bytes_max=100) as journal:
        for _ in range(6):
            journal.write(Lane.JOBS, 1, b"x" * 40)
        await journal.wsync()
        assert journal.stats().commits == 3


async def test_segments_rotate_and_are_read_through() -> None:
    files = MemoryFiles()
    bodies = [b"%03d" % n * 30 for n in range(30)]
    async with opened(files, segment_bytes=300) as journal:
        for body in bodies:
            await journal.wsync(journal.write(Lane.JOBS, 1, body))
        assert journal.stats().segments > 5
        assert await read_lane(journal, Lane.JOBS, 7) == bodies
    async with opened(files) as journal:
        assert await read_lane(journal, Lane.JOBS) == bodies


@pytest.mark.parametrize("call", ["write", "sync", "links"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG])
async def test_an_error_refuses_its_waiters_and_writing_resumes_by_itself(
    call: str, number: int, autojump_clock: None
) -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await journal.wsync(journal.write(Lane.JOBS, 1, b"before"))
        failures = [number]
        files.fail = lambda name, _: failures.pop() if name == call and failures else None
        position = journal.write(Lane.JOBS, 1, b"refused")
        with pytest.raises(JournalRefused) as refused:
            await journal.wsync(position)
        assert refused.value.full is (number in (errno.ENOSPC, errno.EDQUOT)) or journal.refusing is None
        while journal.refusing:
            await trio.sleep(0.1)
        with pytest.raises(JournalRefused):
            await journal.wsync(position)  # still refused when somebody asks late
        await journal.wsync(journal.write(Lane.JOBS, 1, b"after"))
        assert await read_lane(journal, Lane.JOBS) == [b"before", b"after"]
    files.fail = lambda name, _: None
    async with opened(files) as journal:
        assert await read_lane(journal, Lane.JOBS) == [b"before", b"after"]
        assert journal.stats().damaged == []


async def test_while_no_segment_can_be_had_pushes_are_refused_at_once(autojump_clock: None) -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        files.fail = lambda name, _: errno.ENOSPC if name in ("write", "create") else None
        with pytest.raises(JournalRefused):
            await journal.wsync(journal.write(Lane.JOBS, 1, b"x"))
        assert journal.refusing_full
        assert "ENOSPC" in (journal.refusing or "")
        with pytest.raises(JournalRefused) as refused:
            journal.write(Lane.JOBS, 1, b"y")
        assert refused.value.full
        looks = 0

        def count(name: str, _: int) -> None:
            nonlocal looks
            looks += name == "free_bytes"

        files.free, files.fail = 1_000, count  # a disk with a little room is still full
        while looks < 3:
            await trio.sleep(0.1)
        assert journal.refusing_full
        files.free = 1 << 30
        while journal.refusing:
            await trio.sleep(0.1)
        await journal.wsync(journal.write(Lane.JOBS, 1, b"z"))
        assert await read_lane(journal, Lane.JOBS) == [b"z"]


async def test_a_deleted_segment_is_noticed_before_the_ack(autojump_clock: None) -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await journal.wsync(journal.write(Lane.JOBS, 1, b"a"))
        files.data.clear()
        with pytest.raises(JournalRefused, match="deleted"):
            await journal.wsync(journal.write(Lane.JOBS, 1, b"b"))


async def test_short_writes_go_on_behind_themselves() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        files.short = lambda size: min(size, 7)
        bodies = [b"%05d" % n for n in range(30)]
        for body in bodies:
            journal.write(Lane.JOBS, 1, body)
        await journal.wsync()
        assert await read_lane(journal, Lane.JOBS) == bodies


async def test_a_disk_that_takes_nothing_is_an_error(autojump_clock: None) -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        files.short = lambda size: 0
        with pytest.raises(JournalRefused):
            await journal.wsync(journal.write(Lane.JOBS, 1, b"x"))


async def test_too_much_waiting_is_refused_and_absurd_frames_are_bugs() -> None:
    async with opened(MemoryFiles(), frame_bytes_max=100, pending_bytes_max=160) as journal:
        journal.write(Lane.JOBS, 1, b"x" * 100)
        with pytest.raises(JournalRefused, match="wait for the disk"):
            journal.write(Lane.JOBS, 1, b"x" * 100)
        for records, body in ((0, b"x"), (2, b"x"), (1, b"x" * 101)):
            with pytest.raises(ValueError, match="a frame takes"):
                journal.write(Lane.JOBS, records, body)


async def test_a_cancelled_waiter_cancels_no_commit() -> None:
    async with opened(MemoryFiles()) as journal:
        position = journal.write(Lane.JOBS, 1, b"x")
        with trio.CancelScope() as scope:
            scope.cancel()
            await journal.wsync(position)
        await journal.wsync(position)
        assert await read_lane(journal, Lane.JOBS) == [b"x"]


async def test_what_is_pending_at_the_end_is_committed() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        journal.write(Lane.JOBS, 1, b"last words")
    async with opened(files) as journal:
        assert await read_lane(journal, Lane.JOBS) == [b"last words"]


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


async def test_empty_lives_leave_no_segments_behind() -> None:
    files = MemoryFiles()
    for _ in range(5):
        async with opened(files) as journal:
            assert journal.end == 0
    assert len(files.data) == 1


async def test_the_store_may_be_behind_but_never_ahead() -> None:
    async with opened(MemoryFiles(), segment_bytes=50, retention_s=0, retention_bytes=0) as journal:
        for _ in range(5):
            await journal.wsync(journal.write(Lane.JOBS, 1, b"x" * 60))
        assert await read_lane(journal, Lane.JOBS) == [b"x" * 60] * 5
        assert journal.trim(journal.end) > 0
        journal.seek(Lane.JOBS, 0)
        assert journal.read_point(Lane.JOBS) == journal.start > 0
        with pytest.raises(JournalDamaged, match="older copy"):
            journal.seek(Lane.JOBS, journal.end + 1)


async def test_segments_are_trimmed_only_when_applied_and_past_retention() -> None:
    files, clock = MemoryFiles(), ManualClock()
    async with opened(files, clock, segment_bytes=50, retention_s=100.0) as journal:
        for _ in range(5):
            await journal.wsync(journal.write(Lane.JOBS, 1, b"x" * 60))
        segments = journal.stats().segments
        assert journal.trim(journal.end) == 0
        clock.advance(101)
        assert journal.trim(0) == 0
        files.fail = lambda name, _: errno.EIO if name == "unlink" else None
        assert journal.trim(journal.end) == 0
        files.fail = lambda name, _: None
        assert journal.trim(journal.end) > 0
        assert 1 == journal.stats().segments < segments


async def test_wait_readable_returns_for_its_own_lane_only() -> None:
    async with opened(MemoryFiles()) as journal:
        await journal.wsync(journal.write(Lane.JOBS, 1, b"x"))
        await journal.wait_readable(Lane.JOBS)
        woken = trio.Event()

        async def wait() -> None:
            await journal.wait_readable(Lane.CANCELS)
            woken.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await journal.wsync(journal.write(Lane.JOBS, 1, b"y"))
            await trio.testing.wait_all_tasks_blocked()
            assert not woken.is_set()
            await journal.wsync(journal.write(Lane.CANCELS, 1, b"z"))
            await woken.wait()


@pytest.mark.parametrize(
    "settings",
    [{"frame_bytes_max": 0}, {"segment_bytes": 0}, {"retention_s": -1.0}, {"pending_bytes_max": 1}],
)
def test_absurd_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be above|negative"):
        JournalConfig(directory=Path("x"), **settings)  # type: ignore[arg-type]


async def test_a_crash_keeps_what_was_synced() -> None:
    source = random.Random(5)
    for _ in range(50):
        files = MemoryFiles()
        acknowledged = []
        async with opened(files, segment_bytes=200) as journal:
            for n in range(source.randint(1, 20)):
                body = b"%02d" % n * source.randint(1, 40)
                await journal.wsync(journal.write(Lane.JOBS, 1, body))
                acknowledged.append(body)
            files.fail = lambda name, _: errno.EIO if name == "sync" else None
            journal.write(Lane.JOBS, 1, b"never acknowledged")
        async with opened(files.crash(source)) as journal:
            bodies = await read_lane(journal, Lane.JOBS)
            assert bodies[: len(acknowledged)] == acknowledged
            assert journal.stats().damaged == []


async def test_a_newer_format_is_left_untouched() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await journal.wsync(journal.write(Lane.JOBS, 1, b"x"))
    (path,) = files.data
    files.data[path][8] = 99
    before = bytes(files.data[path])
    with pytest.raises(JournalVersion, match="99"):
        async with opened(files):
            pass
    assert files.data[path] == before


async def test_a_real_directory_is_locked_and_private(tmp_path: Path) -> None:
    config = JournalConfig(directory=tmp_path / "a" / "j")
    async with open_journal(config, clock=ManualClock()) as journal:
        await journal.wsync(journal.write(Lane.JOBS, 1, b"real"))
        assert config.directory.stat().st_mode & 0o077 == 0
        assert all(path.stat().st_mode & 0o077 == 0 for path in config.directory.iterdir())
        with pytest.raises(JournalLocked, match="in use by another daemon"):
            async with open_journal(config, clock=ManualClock()):
                pass
    async with open_journal(config, clock=ManualClock()) as journal:
        assert await read_lane(journal, Lane.JOBS) == [b"real"]
        real = config.directory / "00000000000000000000.jqd"
        with real.open("ab") as file:
            file.write(b"torn")
    (newest,) = [p for p in config.directory.glob("*.jqd") if p != real]
    newest.unlink()
    async with open_journal(config, clock=ManualClock()) as journal:
        assert await read_lane(journal, Lane.JOBS) == [b"real"]
        assert [p.read_bytes() for p in config.directory.glob("*.torn")] == [b"torn"]
