"""What the disk refuses, nobody is told was accepted; and writing resumes by itself."""

import errno
import math
import random
from pathlib import Path

import pytest
import trio.testing

from jqd.domain.errors import JournalRefused
from jqd.domain.record import Lane
from jqd.journal import commit
from jqd.journal.segment import NEW
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFiles
from tests.journal.conftest import DIRECTORY, FULL, always, no_failure, once, opened, push, read_lane, segments, until

NUMBERS = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EINTR, errno.EAGAIN, 9_999]


@pytest.mark.parametrize("call", ["write", "sync", "in_place"])
@pytest.mark.parametrize("number", NUMBERS)
async def test_an_error_refuses_its_waiters_and_writing_resumes_by_itself(call: str, number: int) -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"before")
        (poisoned,) = segments(files)
        files.fail = once(number, call)
        position = journal.write(Lane.JOBS, 1, b"refused")
        with pytest.raises(JournalRefused) as refused:
            await journal.wsync(position)
        assert refused.value.full is (number in FULL)
        assert poisoned.name in str(refused.value)
        await until(lambda: not journal.refusing)
        with pytest.raises(JournalRefused):
            await journal.wsync(position)  # still refused when somebody asks late
        await push(journal, b"after")
        assert await read_lane(journal) == [b"before", b"after"]
        assert journal.stats().refusals == 1
        assert b"after" not in files.files[poisoned].content
        assert b"refused" not in files.files[poisoned].content  # its space was given back
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"before", b"after"]
        assert journal.stats().damaged == []


async def test_a_journal_says_for_how_long_it_has_refused_nothing() -> None:
    files, clock = MemoryFiles(), ManualClock()
    async with opened(files, clock) as journal:
        assert journal.steady_s == math.inf
        files.fail = always(errno.EIO, "sync")
        with pytest.raises(JournalRefused):
            await push(journal, b"refused")
        assert journal.steady_s == 0
        files.fail = no_failure
        await until(lambda: not journal.refusing)
        clock.advance(7.0)
        assert journal.steady_s == 7


async def test_all_that_waits_is_refused_together_and_positions_are_never_given_twice() -> None:
    files = MemoryFiles()
    async with opened(files, commit_bytes_max=50) as journal:
        await push(journal, b"before")
        files.fail = once(errno.EIO, "sync")
        positions = [journal.write(Lane.JOBS, 1, b"refused") for _ in range(3)]
        for position in positions:
            with pytest.raises(JournalRefused):
                await journal.wsync(position)
        await until(lambda: not journal.refusing)
        assert await push(journal, b"after") > positions[-1]
        assert journal.stats().pending_bytes == 0
        await journal.wsync(50)  # what was durable before stays so


async def test_the_last_of_several_frames_does_not_stand_for_one_before_it_that_was_refused() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"before")
        since = journal.written
        files.fail = once(errno.EIO, "sync")
        refused = journal.write(Lane.JOBS, 1, b"refused")
        with pytest.raises(JournalRefused):
            await journal.wsync(refused)
        await until(lambda: not journal.refusing)
        last = journal.write(Lane.JOBS, 1, b"the last one")
        for position in (None, last):
            with pytest.raises(JournalRefused):
                await journal.wsync(position, since=since)
            await journal.wsync(position, since=refused)
            await journal.wsync(position)
        assert await read_lane(journal) == [b"before", b"the last one"]


async def test_a_sync_that_failed_is_never_tried_again_on_its_file() -> None:
    files = MemoryFiles()
    synced: list[str] = []
    sync = files.sync

    def watched(fd: int) -> None:
        synced.append(next(path.name for path, file in files.files.items() if file is files._fds[fd]))
        sync(fd)

    files.sync = watched  # type: ignore[method-assign]
    async with opened(files) as journal:
        await push(journal, b"before")
        (poisoned,) = segments(files)
        files.fail = once(errno.EIO, "sync")
        with pytest.raises(JournalRefused):
            await push(journal, b"refused")
        count = synced.count(poisoned.name)
        await until(lambda: not journal.refusing)
        await push(journal, b"after")
        assert synced.count(poisoned.name) == count


async def test_while_no_segment_can_be_had_pushes_are_refused_at_once() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        files.fail = always(errno.ENOSPC, "write", "create")
        with pytest.raises(JournalRefused):
            await push(journal, b"x")
        assert journal.refusing_full
        assert "ENOSPC" in (journal.refusing or "")
        assert "free some disk space" in (journal.refusing or "")
        with pytest.raises(JournalRefused) as refused:
            journal.write(Lane.JOBS, 1, b"y")
        assert refused.value.full
        files.free, files.fail = 1_000, no_failure  # a disk with a little room is still full
        looked = files.calls.count("free_bytes")
        await until(lambda: files.calls.count("free_bytes") > looked + 2)
        assert journal.refusing_full
        files.free = 1 << 30
        await until(lambda: not journal.refusing)
        await push(journal, b"z")
        assert await read_lane(journal) == [b"z"]
    assert len(segments(files)) == 1  # what took nothing is gone


@pytest.mark.parametrize("call", ["create", "write", "sync"])
async def test_a_segment_goes_on_while_none_can_be_had_after_it(call: str) -> None:
    """A disk without a free inode refused pushes, with 507, while `df` showed room. Not each commit tries for another
    one, and what it leaves is deleted: these files used up the inodes."""
    files = MemoryFiles()
    clock = ManualClock()
    async with opened(files, clock, segment_bytes=400, retry_s=1.0) as journal:
        bodies = [b"%d" % number * 100 for number in range(7)]
        await push(journal, *bodies[:3])
        (first,) = segments(files)
        of_new = {"create": ["create"], "write": ["create", "write"], "sync": ["create", "write", "sync"]}[call]
        files.fail = lambda *_: errno.ENOSPC if files.calls[-len(of_new) :] == of_new else None
        created = files.calls.count("create")
        for body in bodies[3:5]:
            await push(journal, body)
        assert (segments(files), journal.refusing) == ([first], None)
        assert files.calls.count("create") == created + 1
        clock.advance(1.0)
        await push(journal, bodies[5])
        assert files.calls.count("create") == created + 2
        assert [name for name in files.names(DIRECTORY) if name.endswith(NEW)] == []
        files.fail = no_failure
        clock.advance(1.0)
        await push(journal, bodies[6])
        assert len(segments(files)) == 2
        assert await read_lane(journal) == bodies
    for disk in (files, files.crash(random.Random(1))):
        async with opened(disk) as journal:
            assert await read_lane(journal) == bodies
            assert journal.stats().damaged == []


@pytest.mark.parametrize("call", ["rename", "sync_directory"])
async def test_a_segment_goes_on_no_more_once_there_may_be_another(call: str) -> None:
    files = MemoryFiles()
    async with opened(files, segment_bytes=400) as journal:
        bodies = [b"%d" % number * 100 for number in range(5)]
        await push(journal, *bodies[:3])
        files.fail = once(errno.EIO, call)
        with pytest.raises(JournalRefused, match="a new segment cannot be made"):
            await push(journal, b"refused")
        await until(lambda: not journal.refusing)
        await push(journal, *bodies[3:])
        assert await read_lane(journal) == bodies
    async with opened(files.crash(random.Random(1))) as journal:
        assert await read_lane(journal) == bodies
        assert journal.stats().damaged == []


async def test_a_full_disk_still_reads_and_trimming_is_what_lets_it_write_again() -> None:
    files = MemoryFiles()
    async with opened(files, segment_bytes=50, retention_s=0, retention_bytes=0) as journal:
        await push(journal, b"a" * 60, b"b" * 60)
        unlink = files.unlink

        def freeing(path: Path) -> None:
            unlink(path)
            if not path.name.endswith(NEW):  # what a try leaves has taken no room
                files.free = 1 << 30

        files.unlink = freeing  # type: ignore[method-assign]
        files.free = 30
        with pytest.raises(JournalRefused) as refused:
            await push(journal, b"c" * 60)
        assert refused.value.full
        assert await read_lane(journal) == [b"a" * 60, b"b" * 60]
        assert journal.trim(journal.end) > 0
        await until(lambda: not journal.refusing)
        await push(journal, b"d")
        assert await read_lane(journal) == [b"d"]


async def test_a_disk_that_refuses_every_commit_leaves_one_segment_not_thousands() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"good")
        for n in range(5):
            files.fail = once(errno.EIO, "sync")
            with pytest.raises(JournalRefused):
                await push(journal, b"refused %d" % n)
            await until(lambda: not journal.refusing)
        await push(journal, b"good too")
        assert await read_lane(journal) == [b"good", b"good too"]
    assert len(segments(files)) == 2
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"good", b"good too"]
        assert journal.stats().damaged == []


async def test_only_the_newest_refusals_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "VOIDS_MAX", 2)
    files = MemoryFiles()
    async with opened(files) as journal:
        refused = []
        for _ in range(3):
            files.fail = once(errno.EIO, "sync")
            refused.append(journal.write(Lane.JOBS, 1, b"x"))
            with pytest.raises(JournalRefused):
                await journal.wsync(refused[-1])
            await until(lambda: not journal.refusing)
        for position in refused[1:]:
            with pytest.raises(JournalRefused):
                await journal.wsync(position)


async def test_a_deleted_segment_is_noticed_before_the_ack() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"a")
        (path,) = segments(files)
        del files.files[path]
        with pytest.raises(JournalRefused, match="deleted or replaced"):
            await push(journal, b"b")
        await until(lambda: not journal.refusing)
        await push(journal, b"c")


async def test_a_deleted_directory_is_refused_until_a_restart() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"a")
        files.files.clear()
        with pytest.raises(JournalRefused, match="deleted or replaced"):
            await push(journal, b"b")
        await until(lambda: "lock file" in (journal.refusing or ""))
        assert segments(files) == []
    async with opened(files) as journal:
        await push(journal, b"c")


async def test_a_deleted_lock_file_is_noticed_before_the_ack() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"a")
        del files.files[DIRECTORY / "lock"]
        with pytest.raises(JournalRefused, match="lock file was deleted or replaced"):
            await push(journal, b"b")  # somebody else may have begun to live here, and hold these positions
        await until(lambda: "lock file" in (journal.refusing or ""))
    async with opened(files) as journal:
        await push(journal, b"c")


async def test_a_segment_is_never_begun_over_one_that_holds_something() -> None:
    files = MemoryFiles()
    async with opened(files, segment_bytes=1) as journal:
        position = await push(journal, b"a")
        stranger = next(iter(files.files)).with_name(f"{position:020d}.jqd")
        files.files[stranger] = type(files.files[segments(files)[0]])(b"x" * 9_000)
        with pytest.raises(JournalRefused, match="EEXIST"):
            await push(journal, b"b")
        await until(lambda: not journal.refusing)
        await push(journal, b"c")
        assert files.contents[stranger] == b"x" * 9_000
        assert await read_lane(journal) == [b"a", b"c"]


async def test_a_disk_that_takes_nothing_is_an_error() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        files.short = lambda size: 0
        with pytest.raises(JournalRefused, match="took no bytes"):
            await push(journal, b"x")


async def test_a_rotation_that_fails_refuses_and_resumes() -> None:
    files = MemoryFiles()
    for call in ("create", "write", "sync", "rename", "sync_directory", "size", "in_place", "close"):
        async with opened(files, segment_bytes=1) as journal:
            await push(journal, b"a")
            files.fail = once(errno.EMFILE, call)
            if call in ("close", "create", "write", "sync"):  # nothing depends on it, or the old one goes on
                await push(journal, b"refused")
            else:
                with pytest.raises(JournalRefused):
                    await push(journal, b"refused")
            await until(lambda: not journal.refusing)
            await push(journal, b"b")
    async with opened(files) as journal:
        read = await read_lane(journal)
        assert [body for body in read if body != b"refused"] == [b"a", b"b"] * 8
        assert journal.stats().damaged == []
    assert not [path for path in files.files if path.suffix == ".new"]


async def test_what_cannot_be_cut_back_after_a_refusal_stays_unread() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"a")
        files.fail = once(errno.EIO, "sync", "truncate")
        with pytest.raises(JournalRefused):
            await push(journal, b"refused")
        await until(lambda: not journal.refusing)
        await push(journal, b"b")
        assert any(b"refused" in content for content in files.contents.values())
        assert await read_lane(journal) == [b"a", b"b"]
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a", b"b"]
        assert journal.stats().damaged == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_a_start_on_a_disk_that_takes_nothing_refuses_pushes_reads_and_resumes(number: int) -> None:
    files = MemoryFiles()
    files.fail = always(number, "create")
    async with opened(files) as journal:  # the very first start
        assert journal.refusing_full is (number == errno.ENOSPC)
        assert journal.start == journal.end == 0
        assert journal.read_reserve(Lane.JOBS, 1) is None
        files.fail = no_failure
        await until(lambda: not journal.refusing)
        await push(journal, b"a")
    files.fail = always(number, "create")
    async with opened(files) as journal:
        with pytest.raises(JournalRefused):
            journal.write(Lane.JOBS, 1, b"x")
        assert await read_lane(journal) == [b"a"]
        files.fail = no_failure
        await until(lambda: not journal.refusing)
        await push(journal, b"b")
        assert await read_lane(journal) == [b"b"]


async def test_a_disk_that_does_not_answer_gets_no_new_work() -> None:
    files, clock = MemoryFiles(), ManualClock()
    async with opened(files, clock) as journal:

        def slow(call: str, number: int) -> None:
            if call == "sync":
                clock.advance(9)
                told.append(journal.refusing)
                clock.advance(2)
                told.append(journal.refusing)

        told: list[str | None] = []
        files.fail = slow
        position = journal.write(Lane.JOBS, 1, b"slow")
        await journal.wsync(position)  # slow is not lost
        assert told == [None, "the disk has not answered for 11 s; look at it, pushes resume with it"]
        assert journal.refusing is None
        assert journal.stats().commit_ms_max == 11_000


async def test_a_segment_that_took_nothing_is_not_followed_by_the_next_at_once(
    mock_clock: trio.testing.MockClock,
) -> None:
    files = MemoryFiles()
    async with opened(files, retry_s=0.5) as journal:
        files.fail = once(errno.EIO, "sync")
        with pytest.raises(JournalRefused):
            await push(journal, b"refused")
        calls = len(files.calls)
        for _ in range(100):
            await trio.testing.wait_all_tasks_blocked()
        assert "create" not in files.calls[calls:]
        mock_clock.jump(0.5)
        while journal.refusing:
            await trio.testing.wait_all_tasks_blocked()
        await push(journal, b"after")
