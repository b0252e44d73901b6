"""Lost and bad heads of segments, mended."""

import zlib

import pytest

from jqd.domain.record import Lane
from jqd.journal import JournalConfig, open_journal
from jqd.journal.frame import HEAD_BYTES, HEADER_COPY_BYTES, pack_frame_header, unpack_head
from jqd.journal.repair import repair
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFiles
from tests.journal.conftest import DIRECTORY, opened, push, segments
from tests.journal.damage import said
from tests.journal.mended import BODIES, filled, flip, kept, mended


@pytest.mark.parametrize("page", [0, HEADER_COPY_BYTES])
@pytest.mark.parametrize("inside", [3, 60, 2_000])
async def test_one_bad_copy_of_a_head_is_written_anew(page: int, inside: int) -> None:
    files = await filled(2, 2)
    head = files.contents[segments(files)[0]][:HEAD_BYTES]
    flip(files, 0, page + inside)
    bad = files.contents[segments(files)[0]][:HEAD_BYTES]
    (line,) = await mended(files, BODIES[:4])
    assert "one copy of its head was bad" in line
    assert files.contents[segments(files)[0]][:HEAD_BYTES] == head
    assert kept(files) == bad


@pytest.mark.parametrize("segment", [0, 1, 2])
@pytest.mark.parametrize("lost", [b"\0" * HEAD_BYTES, b"\xff" * HEAD_BYTES])
async def test_a_lost_head_is_found_again_in_the_frames(segment: int, lost: bytes) -> None:
    files = await filled(2, 2, 2)
    before = [unpack_head(files.contents[path], "") for path in segments(files)]
    files.files[segments(files)[segment]].content[:HEAD_BYTES] = lost
    (line,) = await mended(files, BODIES[:6])
    assert "made anew from its frames" in line
    now = [unpack_head(files.contents[path], "") for path in segments(files)]
    old, new = before[segment], now[segment]
    assert old is not None
    assert new is not None
    assert new._replace(segment_id=b"", created_at_ms=0) == old._replace(segment_id=b"", created_at_ms=0)
    assert zlib.crc32(new.segment_id) == zlib.crc32(old.segment_id)
    assert kept(files) == lost


@pytest.mark.parametrize("segment", range(4))
async def test_a_lost_head_is_found_again_where_the_journal_got_a_new_id(segment: int) -> None:
    files = await filled(2, 2)
    bodies = iter(BODIES[4:])
    for _ in range(2):
        config = JournalConfig(directory=DIRECTORY)
        async with open_journal(config, clock=ManualClock(), files=files, journal_id=b"the second id ..") as journal:
            await push(journal, next(bodies))
    files.files[segments(files)[segment]].content[:HEAD_BYTES] = bytes(HEAD_BYTES)
    await mended(files, BODIES[:6])


async def test_a_head_lost_before_a_start_comes_back_under_its_old_name() -> None:
    files = await filled(2, 2, 2)
    lost = segments(files)[1]
    files.files[lost].content[:HEAD_BYTES] = bytes(HEAD_BYTES)
    async with opened(files) as journal:
        assert len(journal.stats().damaged) > 0
    assert lost.with_suffix(".damaged") in files.files
    await mended(files, BODIES[:6])
    assert lost in files.files
    assert lost.with_suffix(".damaged") not in files.files


async def test_a_lost_head_of_the_only_segment_begins_a_new_journal() -> None:
    files = await filled(3)
    files.files[segments(files)[0]].content[:HEAD_BYTES] = bytes(HEAD_BYTES)
    (line,) = await mended(files, BODIES[:3])
    assert "The journal's id is lost too" in line


async def test_the_frames_of_a_payload_are_not_taken_for_those_of_a_lost_head() -> None:
    """A payload that holds a whole other segment, many frames of it: they outnumber the one that holds them."""
    others = await filled(*[12])
    inner = others.contents[segments(others)[0]][HEAD_BYTES:]
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"first")
    async with opened(files) as journal:
        await push(journal, b"pad" + inner, inner)
    files.files[segments(files)[1]].content[:HEAD_BYTES] = bytes(HEAD_BYTES)
    await mended(files, [b"first", b"pad" + inner, inner])


async def test_a_lost_head_of_many_frames_is_found_by_the_first_of_them() -> None:
    files = MemoryFiles()
    bodies = [b"%d" % number for number in range(1_500)]
    async with opened(files) as journal:
        for body in bodies:
            journal.write(Lane.JOBS, 1, body)
        await journal.wsync()
    files.files[segments(files)[0]].content[:HEAD_BYTES] = bytes(HEAD_BYTES)
    repair(files, DIRECTORY)
    assert said(files) == ([], bodies)


async def test_a_lost_head_with_nothing_good_behind_it_keeps_its_positions() -> None:
    files = await filled(2, 2)
    path = segments(files)[1]
    size = len(files.contents[path])
    # Looks like a frame at a glance, and makes itself one of a kind that nobody knows.
    header = pack_frame_header(b"i" * 16, 0, kind=9, records=1, back=0, seq=1, at_ms=1, body=b"b")
    files.files[path].content[:] = bytes(HEAD_BYTES) + header.ljust(size - HEAD_BYTES, b"\xf6")
    end = int(path.stem) + size - HEAD_BYTES
    (first, second) = await mended(files, BODIES[:2])
    assert "no frame in it is good" in first
    assert "sealed" in second
    assert int(segments(files)[-1].stem) >= end, "its positions were perhaps given to the store"


async def test_a_lost_head_before_less_than_a_frame_is_an_empty_segment() -> None:
    files = await filled(2, 2)
    content = files.files[segments(files)[1]].content
    content[:HEAD_BYTES] = bytes(HEAD_BYTES)
    del content[HEAD_BYTES + 30 :]
    (head, tail) = await mended(files, BODIES[:2])
    assert "no frame in it is good" in head
    assert "30 bytes: kept" in tail


async def test_a_file_cut_within_its_head_is_an_empty_segment() -> None:
    files = await filled(2, 2)
    path = segments(files)[1]
    del files.files[path].content[100:]
    (line,) = await mended(files, BODIES[:2])
    assert "no frame in it is good" in line or "one copy" in line
    assert kept(files)[:8] == b"jqd-log\n"
