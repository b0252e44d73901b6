"""Start-up: the torn tail is cut, damage is named and kept, another format stays untouched."""

import errno

import pytest

from jqd.domain.errors import JournalDamaged, JournalLocked, JournalRefused, JournalVersion
from jqd.domain.record import Lane
from jqd.journal import JournalConfig, open_journal
from jqd.journal.frame import HEAD_BYTES, HEADER_COPY_BYTES, pack_head, unpack_head
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFile, MemoryFiles
from tests.journal.conftest import DIRECTORY, always, no_failure, once, opened, push, read_lane, segments, until
from tests.journal.disks import damage, filled


async def test_a_torn_tail_is_cut_and_kept_aside() -> None:
    files = await filled([b"a", b"b"])
    (path,) = segments(files)
    files.files[path].content += b"torn"
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a", b"b"]
        assert journal.stats().damaged == []
        await push(journal, b"c")
    aside = DIRECTORY / f"{path.stem}-90.torn"
    assert files.contents[aside] == files.files[aside].synced == b"torn"
    assert len(files.contents[path]) == HEAD_BYTES + 90
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("tail", [b"\0" * 5_000, b"\xf6JQ\x01" * 3_000, b"x" * 300_000])
async def test_zeros_old_bytes_and_magic_are_a_torn_tail_too(tail: bytes) -> None:
    files = await filled([b"a"])
    files.files[segments(files)[0]].content += tail
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a"]
        assert journal.stats().damaged == []


async def test_a_torn_tail_of_a_segment_without_frames_moves_out_of_the_way() -> None:
    files = await filled([b"a"])
    async with opened(files):
        pass
    newest = segments(files)[-1]
    files.files[newest].content += b"torn"
    async with opened(files) as journal:
        await push(journal, b"b")
        assert await read_lane(journal) == [b"a", b"b"]
    assert files.contents[DIRECTORY / f"{newest.stem}-45.torn"].endswith(b"torn")


async def with_torn_tail() -> MemoryFiles:
    files = await filled([b"a"], [b"b"])
    files.files[segments(files)[-1]].content += b"torn"
    return files


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_no_failing_call_of_a_recovery_costs_anything(number: int) -> None:
    files = await with_torn_tail()
    files.calls.clear()
    async with opened(files):
        calls = files.calls.index("in_place")  # the first one that begins a new segment
    starts = 0
    for bad in range(1, calls + 1):
        files = await with_torn_tail()
        files.calls.clear()
        files.fail = lambda _, call_number, bad=bad: number if call_number == bad else None  # type: ignore[misc]
        try:
            async with opened(files) as journal:
                assert await read_lane(journal) == [b"a", b"b"]
                await push(journal, b"c")
                starts += 1
        except JournalRefused as error:
            assert "cannot be opened" in str(error)  # noqa: PT017
        assert files.open_descriptors == 0
        async with opened(files) as journal:
            assert (await read_lane(journal))[:2] == [b"a", b"b"]
            assert journal.stats().damaged == []
    assert starts >= 10  # mending may fail, looking may not


@pytest.mark.parametrize("offset", [HEAD_BYTES + 45, HEAD_BYTES + 45 + 20, HEAD_BYTES + 45 + 44])
async def test_damage_with_good_frames_behind_it_is_named_and_kept_and_they_are_read(offset: int) -> None:
    files = await filled([b"a", b"b", b"c"])
    (path,) = segments(files)
    damage(files, path, offset)
    for _ in range(2):
        async with opened(files) as journal:
            damaged = journal.stats().damaged
            assert await read_lane(journal) == [b"a", b"c"]
            await push(journal, b"d")
        assert path.with_suffix(".damaged") in files.files
        assert damaged
        del files.files[segments(files)[-1]]
    assert "from position 45 to 90" in damaged[1]
    del files.files[path.with_suffix(".damaged")]  # the operator has looked at it, and it is the newest no more


async def test_one_bad_page_of_a_head_costs_nothing() -> None:
    files = await filled([b"a"], [b"b"])
    for path in segments(files):
        files.files[path].content[:HEADER_COPY_BYTES] = bytes(HEADER_COPY_BYTES)
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a", b"b"]
        assert journal.stats().damaged == []


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_a_lost_head_costs_its_segment_loudly_and_no_position_is_given_twice(which: int) -> None:
    lives = [[b"a"], [b"b"], [b"c"]]
    files = await filled(*lives)
    path = segments(files)[which]
    damage(files, path, 20, HEADER_COPY_BYTES + 20)
    expected = [body for n, (body,) in enumerate(lives) if n != which]
    for _ in range(2):
        async with opened(files) as journal:
            assert journal.end >= 45 * 3
            assert await read_lane(journal) == expected
            assert any(f"{path.stem}.damaged" in sentence for sentence in journal.stats().damaged)
    assert path not in files.files
    assert path.with_suffix(".damaged") in files.files
    async with opened(files) as journal:
        assert await push(journal, b"d") > 45 * 3
        assert await read_lane(journal) == [*expected, b"d"]


async def test_a_lost_head_that_cannot_be_renamed_stops_no_start() -> None:
    files = await filled([b"a"], [b"b"])
    path = segments(files)[0]
    damage(files, path, 20, HEADER_COPY_BYTES + 20)
    files.fail = once(errno.EROFS, "rename")
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"b"]
        assert path in files.files


async def test_a_journal_whose_only_head_is_lost_starts_another_behind_it() -> None:
    files = await filled([b"a"])
    (path,) = segments(files)
    damage(files, path, 20, HEADER_COPY_BYTES + 20)
    async with opened(files) as journal:
        assert journal.end == 45
        await push(journal, b"b")
        assert await read_lane(journal) == [b"b"]


async def test_a_missing_segment_and_missing_bytes_are_named() -> None:
    files = await filled([b"a"], [b"b"], [b"c"])
    del files.files[segments(files)[1]]
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a", b"c"]
        assert "45 bytes before position 90 are missing" in journal.stats().damaged[0]
    files = await filled([b"a"], [b"b"])
    del files.files[segments(files)[0]].content[-3:]
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"b"]
        assert "3 bytes before position 45 are missing" in journal.stats().damaged[0]


async def test_an_unfinished_segment_is_cleared_away() -> None:
    files = await filled([b"a"])
    new = DIRECTORY / "00000000000000000045.jqd.new"
    files.files[new] = MemoryFile(b"half a head")
    files.files[DIRECTORY / "notes.txt"] = MemoryFile(b"not ours")
    files.files[DIRECTORY / "12.jqd"] = MemoryFile(b"nor this")
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a"]
        assert journal.stats().damaged == []
    assert new not in files.files
    assert {DIRECTORY / "notes.txt", DIRECTORY / "12.jqd"} <= files.files.keys()


async def test_void_positions_before_an_empty_segment_stay_void() -> None:
    """Refused frames that could not be cut back stand in a file; the empty segment behind it says they do not count."""
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"good")
        files.fail = once(errno.EIO, "sync", "truncate")
        journal.write(Lane.JOBS, 1, b"refused")
        await until(lambda: journal.stats().refusals and not journal.refusing)
    for _ in range(3):
        async with opened(files) as journal:
            assert await read_lane(journal) == [b"good"]
            assert journal.stats().damaged == []
            assert journal.end == 99


async def test_an_older_empty_segment_is_cleared_away() -> None:
    files = await filled([b"a"])
    async with opened(files):
        pass
    empty = segments(files)[-1]
    copy = files.contents[empty]
    async with opened(files) as journal:
        files.fail = once(errno.EIO, "sync")
        journal.write(Lane.JOBS, 1, b"refused")
        await until(lambda: journal.stats().refusals and not journal.refusing)
        await push(journal, b"b")
    files.files[empty] = MemoryFile(copy)  # as if its deletion had not reached the disk
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a", b"b"]
        assert journal.stats().damaged == []
    assert empty not in files.files


async def test_another_format_is_refused_and_left_untouched() -> None:
    files = await filled([b"a"], [b"b"])
    damage(files, segments(files)[0], 20, HEADER_COPY_BYTES + 20)
    content = files.files[segments(files)[-1]].content
    content[8] = content[HEADER_COPY_BYTES + 8] = 99
    before = files.contents
    with pytest.raises(JournalVersion, match="version 99, and this jqd reads version 1"):
        async with opened(files):
            pass
    before.pop(DIRECTORY / "lock")
    after = files.contents
    after.pop(DIRECTORY / "lock")
    assert after == before
    assert files.open_descriptors == 0


async def test_files_that_do_not_belong_where_they_lie_are_refused_and_left_untouched() -> None:
    files, other = await filled([b"a"]), await filled([b"b"], [b"c"])
    stranger = segments(other)[1]
    files.files[stranger] = other.files[stranger]
    with pytest.raises(JournalDamaged, match="another journal"):
        async with opened(files):
            pass
    del files.files[stranger]
    (path,) = segments(files)
    files.files[DIRECTORY / "00000000000000000007.jqd"] = files.files[path]
    with pytest.raises(JournalDamaged, match="renamed"):
        async with opened(files):
            pass
    del files.files[DIRECTORY / "00000000000000000007.jqd"]
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a"]


@pytest.mark.parametrize("call", ["open_directory", "lock", "names", "size", "open", "read"])
async def test_a_directory_that_cannot_be_read_is_refused_by_name(call: str) -> None:
    files = await filled([b"a"])
    files.fail = always(errno.EACCES, call)
    with pytest.raises(JournalRefused, match=f"{DIRECTORY} cannot be opened: .*EACCES|Permission denied"):
        async with opened(files):
            pass
    assert files.open_descriptors == 0
    files.fail = no_failure
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a"]


@pytest.mark.parametrize("ahead_s", [86_400, 60])
async def test_ids_that_go_on_from_a_clock_that_was_ahead_are_told(
    ahead_s: int, capsys: pytest.CaptureFixture[str]
) -> None:
    files, clock = MemoryFiles(), ManualClock()
    clock.set_wall_ms(clock.wall_ms() + ahead_s * 1000)
    async with opened(files, clock) as journal:
        await push(journal, b"a")
    clock.set_wall_ms(clock.wall_ms() - ahead_s * 1000)
    capsys.readouterr()
    async with opened(files, clock):
        pass
    assert ("journal.ids_ahead" in capsys.readouterr().out) == (ahead_s > 600)


async def test_a_directory_in_use_is_refused() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        with pytest.raises(JournalLocked, match="in use by another daemon"):
            async with opened(files):
                pass
        await push(journal, b"a")


async def test_a_segment_whose_head_was_mended_counts_again() -> None:
    files = await filled([b"a"], [b"b"])
    newest = segments(files)[-1]
    whole = files.contents[newest]
    damage(files, newest, 20, HEADER_COPY_BYTES + 20)
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a"]
        await push(journal, b"c")
    del files.files[newest.with_suffix(".damaged")]
    files.files[newest] = MemoryFile(whole)
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a", b"b", b"c"]
        assert journal.stats().damaged == []


async def test_the_second_name_of_a_damaged_segment_counts_for_no_positions() -> None:
    files = await filled([b"a", b"b", b"c"])
    (path,) = segments(files)
    damage(files, path, HEAD_BYTES + 45 + 44)
    async with opened(files):
        pass
    del files.files[segments(files)[-1]]
    files.files[path].content += b"torn"
    async with opened(files) as journal:
        assert journal.end == 135
        await push(journal, b"d")
    async with opened(files) as journal:
        assert "missing" not in " ".join(journal.stats().damaged)


async def test_a_start_that_cannot_make_a_segment_keeps_the_journal_id_of_an_empty_one() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        journal_id = journal.journal_id
    files.fail = always(errno.ENOSPC, "create")
    async with opened(files):
        pass
    files.fail = no_failure
    async with opened(files) as journal:
        assert journal.journal_id == journal_id


async def chained(*journal_ids: bytes | None) -> MemoryFiles:
    """A life under each of these ids; None keeps the one before."""
    files = MemoryFiles()
    for number, journal_id in enumerate(journal_ids):
        config = JournalConfig(directory=DIRECTORY)
        async with open_journal(config, clock=ManualClock(), files=files, journal_id=journal_id) as journal:
            await push(journal, b"%d" % number)
    return files


async def test_a_journal_goes_on_under_a_new_id_and_is_read_through() -> None:
    files = await chained(b"A" * 16, None, b"B" * 16, None, b"C" * 16)
    async with opened(files) as journal:
        assert journal.journal_id == (b"C" * 16).hex()
        assert journal.opened_at == journal.end == 5 * 45
        assert await read_lane(journal) == [b"0", b"1", b"2", b"3", b"4"]
        await push(journal, b"5")
    heads = [unpack_head(files.contents[path], path.name) for path in segments(files)]
    ids = [(head.journal_id[:1], head.before[:1]) for head in heads if head]
    assert ids == [(b"A", b"\0"), (b"A", b"\0"), (b"B", b"A"), (b"B", b"A"), (b"C", b"B"), (b"C", b"B")]
    del files.files[segments(files)[0]]  # trimmed: the chain may begin anywhere
    async with opened(files) as journal:
        assert journal.start == 45
        assert await read_lane(journal) == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize(
    ("before", "journal_id"),
    [(b"A" * 16, b"X" * 16), (b"X" * 16, b"C" * 16), (bytes(16), b"A" * 16)],
)
async def test_an_id_that_follows_no_one_here_is_refused(before: bytes, journal_id: bytes) -> None:
    """Of A, B, C the last is exchanged: for one that follows A, one that follows nobody here, or for A itself."""
    files = await chained(b"A" * 16, b"B" * 16, b"C" * 16)
    path = segments(files)[-1]
    head = unpack_head(files.contents[path], path.name)
    assert head is not None
    files.files[path].content[:HEAD_BYTES] = pack_head(head._replace(journal_id=journal_id, before=before))
    contents = files.contents
    with pytest.raises(JournalDamaged, match="comes from another journal"):
        async with opened(files):
            raise AssertionError("it must not open")
    assert files.contents == contents
