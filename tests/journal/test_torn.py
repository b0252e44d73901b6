"""Commits that a power cut tears: what was synced before stays, and no torn place is called damage."""

import errno
from pathlib import Path

import pytest

from jqd.domain.record import Lane
from jqd.journal.frame import HEAD_BYTES, pack_frame_header, unpack_head
from tests.harness.files import MemoryFiles
from tests.journal.conftest import once, opened, push, read_lane, segments
from tests.journal.disks import damage, filled


async def test_good_frames_that_were_never_synced_are_synced_before_they_count() -> None:
    files = await filled([b"a"])
    (path,) = segments(files)
    files.files[path].synced = files.files[path].synced[:-1]  # a daemon killed between write and sync
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a"]
        assert files.files[path].synced.endswith(b"a")


async def test_good_frames_whose_sync_fails_at_a_start_count_and_health_says_that_they_may_be_on_no_disk() -> None:
    """The last commit of a killed daemon may be acknowledged: no later frame says so, and it is not given up."""
    files = await filled([b"a"])
    (path,) = segments(files)
    files.calls.clear()
    files.fail = once(errno.EIO, "sync")
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a"]
        (told,) = journal.stats().damaged
        assert told.startswith(f"{path.name}: its sync failed at the start")


async def test_a_last_frame_that_was_damaged_later_is_told_by_its_length() -> None:
    """A crash leaves the begin of a frame; this one was written whole, and perhaps acknowledged."""
    files = await filled([b"a", b"body"])
    (path,) = segments(files)
    whole = files.contents
    damage(files, path, len(whole[path]) - 1)
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a"]
        (told,) = journal.stats().damaged
        assert f"{path.name}: the last frame, at position 45, has its full length and bad bytes" in told
    async with opened(files) as journal:
        assert journal.stats().damaged == [], "it is cut, and not told for ever"
    for size in range(HEAD_BYTES + 46, len(whole[path])):
        files = MemoryFiles.holding(whole)
        del files.files[path].content[size:]
        async with opened(files) as journal:
            assert journal.stats().damaged == []


async def test_a_payload_that_contains_whole_frames_of_its_segment_is_never_taken_for_them() -> None:
    files = await filled([b"a"])
    (path,) = segments(files)
    frame = files.contents[path][HEAD_BYTES:]
    async with opened(files) as journal:
        await push(journal, frame * 3, b"end")
    newest = segments(files)[-1]
    own = files.contents[newest][HEAD_BYTES:]
    async with opened(files) as journal:
        await push(journal, own, b"end")
    newest = segments(files)[-1]
    damage(files, newest, HEAD_BYTES + 5)  # now the scanner searches inside the payload
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"a", frame * 3, b"end", b"end"]


async def one_commit(*bodies: bytes) -> tuple[MemoryFiles, Path]:
    """A journal whose last commit took all these frames at once, behind one that was synced before."""
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"before")
        for body in bodies:
            journal.write(Lane.JOBS, 1, body)
        await journal.wsync()
        assert journal.stats().commits == 2
    return files, segments(files)[0]


@pytest.mark.parametrize("offset", [3, 30, 44])
async def test_what_a_power_cut_tears_inside_a_commit_is_sealed_not_called_damage(offset: int) -> None:
    """Sectors reach the disk in any order: a later frame of a commit that never ended may be whole, an earlier not."""
    files, path = await one_commit(b"a", b"b", b"c", b"d")
    damage(files, path, HEAD_BYTES + 50 + 45 + offset)
    for _ in range(3):
        async with opened(files) as journal:
            assert await read_lane(journal) == [b"before", b"a", b"c", b"d"]
            assert journal.stats().damaged == []
            await push(journal, b"later")
            await push(journal, b"later")
        for later in segments(files)[1:]:
            del files.files[later]


async def test_the_first_frame_of_a_torn_commit_may_be_missing_but_what_was_synced_before_it_may_not() -> None:
    files, path = await one_commit(b"a", b"b")
    damage(files, path, HEAD_BYTES + 50 + 44)
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"before", b"b"]
        assert journal.stats().damaged == []
    damage(files, path, HEAD_BYTES + 44)
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"b"]
        assert journal.stats().damaged != []


async def test_a_torn_place_that_cannot_be_sealed_stops_no_start() -> None:
    files, path = await one_commit(b"a", b"b")
    damage(files, path, HEAD_BYTES + 50 + 44)
    files.fail = once(errno.EIO, "overwrite")
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"before", b"b"]
        assert journal.stats().damaged != []  # a reader cannot know


async def test_a_place_too_small_for_a_frame_is_not_sealed_over_its_neighbour() -> None:
    files, path = await one_commit(b"a")
    content = files.files[path].content
    header = unpack_head(bytes(content), path.name)
    assert header is not None
    at = header.first + len(content) - HEAD_BYTES + 10
    content += b"short gap!" + pack_frame_header(
        header.segment_id, at, kind=1, records=1, back=20, seq=9, at_ms=9, body=b"forged"
    )
    content += b"forged"
    before = bytes(content)
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"before", b"a", b"forged"]
    assert files.contents[path] == before


async def test_a_place_that_was_sealed_and_torn_again_is_still_no_damage() -> None:
    files, path = await one_commit(b"a", b"b", b"c", b"d")
    for offset in (50 + 44, 50 + 90 + 44):
        damage(files, path, HEAD_BYTES + offset)
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"before", b"b", b"d"]
        assert journal.stats().damaged == []
    del files.files[segments(files)[-1]]
    damage(files, path, HEAD_BYTES + 50 + 20)  # as if only the second seal had reached the disk
    async with opened(files) as journal:
        assert await read_lane(journal) == [b"before", b"b", b"d"]
        assert journal.stats().damaged == []
