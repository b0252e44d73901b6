"""Mending a journal: afterwards it is whole, starts, and gives every good frame; what was cut lies beside."""

import errno
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from jqd.domain.errors import JournalDamaged, JournalLocked, JournalRefused, JournalVersion
from jqd.domain.record import Lane
from jqd.journal import Files
from jqd.journal.frame import HEAD_BYTES, HEADER_COPY_BYTES, pack_head, unpack_head
from jqd.journal.inspect import Kind
from jqd.journal.repair import id_with, repair
from tests.harness.files import MemoryFile, MemoryFiles
from tests.journal.conftest import DIRECTORY, always, no_failure, opened, push, segments
from tests.journal.damage import damage_and_repair, said
from tests.journal.mended import BODIES, FRAME, filled, flip, kept, mended, read_end

Damage = Callable[[MemoryFiles], None]


async def test_a_whole_journal_is_left_as_it_is() -> None:
    files = await filled(3, 2)
    before = files.contents
    assert await mended(files, BODIES[:5]) == []
    assert {path: files.contents[path] for path in before} == before


@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("inside", [0, 8, 20, 44, FRAME - 1])
async def test_a_bad_frame_is_sealed_and_its_bytes_are_kept(segment: int, inside: int) -> None:
    files = await filled(3, 3)
    offset = HEAD_BYTES + FRAME
    flip(files, segment, offset + inside)
    cut = files.contents[segments(files)[segment]][offset : offset + FRAME]
    left = [body for number, body in enumerate(BODIES[:6]) if number != 3 * segment + 1]
    (line,) = await mended(files, left)
    assert f"byte {offset}: bad {'header' if inside < 44 else 'body'}, {FRAME} bytes: kept as" in line
    assert kept(files) == cut
    # It ends where the next one begins, or the newest with a frame that says all before it was on disk.
    assert await read_end(files) == BODIES[5]


async def test_missing_frames_are_no_longer_said_to_be_there() -> None:
    whole = await filled(3, 2)
    path = segments(whole)[0]
    content = whole.contents[path]
    for size in [*range(HEAD_BYTES, len(content), 7), HEAD_BYTES + FRAME + 44, HEAD_BYTES + FRAME + 45]:
        files = MemoryFiles.holding(whole.contents)
        del files.files[path].content[size:]
        left = BODIES[: (size - HEAD_BYTES) // FRAME] + BODIES[3:5]
        done = await mended(files, left)
        assert any("frames before it are lost, so its head says now that they end at" in line for line in done)
    files = await filled(1, 1, 1)
    del files.files[segments(files)[1]]
    (line,) = await mended(files, [BODIES[0], BODIES[2]])
    assert line.startswith(segments(files)[1].name)


async def test_a_torn_tail_is_cut_and_kept() -> None:
    files = await filled(2)
    files.files[segments(files)[0]].content += b"torn"
    (line,) = await mended(files, BODIES[:2])
    assert "torn tail, 4 bytes" in line
    assert kept(files) == b"torn"


async def test_a_torn_tail_before_a_lost_head_is_left_and_void() -> None:
    files = await filled(2, 2)
    flip(files, 0, HEAD_BYTES + FRAME + 60)
    flip(files, 1, 5, HEADER_COPY_BYTES + 5)
    await mended(files, [BODIES[0], *BODIES[2:4]])
    assert [place.kind for place in said(files)[0]] == [Kind.VOID]


async def test_what_is_torn_inside_the_last_commit_is_sealed() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        for body in BODIES[:3]:
            journal.write(Lane.JOBS, 1, body)
        await journal.wsync()
    flip(files, 0, HEAD_BYTES + FRAME + 50)
    (line,) = await mended(files, [BODIES[0], BODIES[2]])
    assert "torn inside" in line


async def test_more_than_a_seal_holds_takes_several() -> None:
    files = MemoryFiles()
    big = os.urandom(3 << 20)
    async with opened(files) as journal:
        await push(journal, b"a", big, b"b")
    path = segments(files)[0]
    files.files[path].content[HEAD_BYTES + 45 + 44 + 1_000] ^= 1
    damaged = files.contents[path][HEAD_BYTES + 45 : HEAD_BYTES + 45 + 44 + len(big)]
    await mended(files, [b"a", b"b"])
    assert kept(files) == damaged


async def test_a_segment_that_is_bad_all_over_is_kept_whole() -> None:
    files = MemoryFiles()
    bodies = [b"%02d" % number for number in range(60)]
    async with opened(files) as journal:
        await push(journal, *bodies)
    for number in range(0, 40, 2):
        flip(files, 0, HEAD_BYTES + 46 * number + 44)
    before = files.contents[segments(files)[0]]
    done = await mended(files, [body for number, body in enumerate(bodies) if number % 2 or number >= 40])
    assert len(done) == 20
    assert files.contents[DIRECTORY / f"{segments(files)[0].stem}-whole.torn"] == kept(files) == before


async def test_names_that_are_of_no_more_use_go_away() -> None:
    files = await filled(1, 1)
    first, second = segments(files)
    files.files[first.with_suffix(".damaged")] = files.files[first]
    files.files[second.with_suffix(".damaged")] = MemoryFile(b"a copy of what was damaged")
    files.files[second.with_suffix(".kept")] = MemoryFile(b"one of an earlier time, ")
    files.files[DIRECTORY / "00000000000000009999.jqd.new"] = MemoryFile(b"half a head")
    done = await mended(files, BODIES[:2])
    assert [line.partition(": ")[2] for line in done] == [
        "a second name of a segment: removed",
        f"kept as {second.stem}-2.kept: look at it, then delete it",
        "a segment that was never begun: removed",
    ]
    assert kept(files) == b"a copy of what was damagedone of an earlier time, "


async def test_what_was_kept_of_a_deleted_segment_is_put_away() -> None:
    files = await filled(1, 1)
    first = segments(files)[0]
    files.files[first.with_suffix(".damaged")] = files.files.pop(first)
    await mended(files, BODIES[1:2])
    assert first.with_suffix(".kept") in files.files


async def test_nothing_kept_before_is_overwritten() -> None:
    files = await filled(3, 1)
    name = f"{segments(files)[0].stem}-{FRAME}"
    files.files[DIRECTORY / f"{name}.torn"] = MemoryFile(b"of an earlier time")
    flip(files, 0, HEAD_BYTES + FRAME + 50)
    await mended(files, [BODIES[0], *BODIES[2:4]])
    assert files.contents[DIRECTORY / f"{name}.torn"] == b"of an earlier time"
    assert len(files.contents[DIRECTORY / f"{name}-2.torn"]) == FRAME


async def test_what_may_not_be_touched_is_refused() -> None:
    files = await filled(2, 1)
    flip(files, 0, HEAD_BYTES + 50)  # there is something to mend
    path = segments(files)[1]
    header = unpack_head(files.contents[path], path.name)
    assert header is not None
    whole = files.contents

    def refused(content: bytes, error: type[Exception], match: str) -> None:
        files.files[path] = MemoryFile(content)
        before = files.contents
        with pytest.raises(error, match=match):
            repair(files, DIRECTORY)
        assert files.contents | {DIRECTORY / "lock": b""} == before | {DIRECTORY / "lock": b""}
        assert files.open_descriptors == 0

    frames = whole[path][HEAD_BYTES:]
    refused(pack_head(header._replace(journal_id=b"another journal!")) + frames, JournalDamaged, "does not belong")
    other = bytearray(whole[path])
    other[8] = other[HEADER_COPY_BYTES + 8] = 77
    refused(bytes(other), JournalVersion, "format version 77")
    del files.files[path]
    path = DIRECTORY / f"{1:020d}.jqd"  # by its name it begins in the first frame of the first segment
    refused(b"whatever" * 2_000, JournalDamaged, "does not belong where it lies: it has no head, and good frames")


async def test_a_directory_in_use_is_refused() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"a")
        with pytest.raises(JournalLocked, match="in use by another daemon"):
            repair(files, DIRECTORY, dry_run=True)


async def test_a_directory_that_is_not_there_is_not_made() -> None:
    files = MemoryFiles()
    files.fail = always(errno.ENOENT, "names")
    with pytest.raises(JournalRefused, match="cannot be repaired"):
        repair(files, DIRECTORY)
    assert "open_directory" not in files.calls


async def test_a_disk_that_cannot_be_read_is_refused() -> None:
    files = await filled(2)
    flip(files, 0, 5)
    before = files.contents

    def fail(call: str, _: int) -> int | None:
        return errno.EIO if call == "read" and files.calls.count("read") > 1 else None

    files.calls.clear()
    files.fail = fail
    with pytest.raises(JournalRefused, match="copy what can be read"):
        repair(files, DIRECTORY)
    files.fail = no_failure
    assert files.contents | {DIRECTORY / "lock": b""} == before | {DIRECTORY / "lock": b""}


def test_nothing_stays_open_on_a_real_disk(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    assert repair(Files(), tmp_path) == []
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("seed", range(25))
async def test_after_any_damage_what_was_good_is_read(seed: int) -> None:
    await damage_and_repair(seed)


async def test_a_file_that_shrinks_while_it_is_copied_is_an_error() -> None:
    files = await filled(2)
    files.files[segments(files)[0]].content += b"torn"

    def shrink(call: str, _: int) -> int | None:
        if call == "create":
            del files.files[segments(files)[0]].content[-2:]
        return None

    files.fail = shrink
    with pytest.raises(JournalRefused, match="ended at byte"):
        repair(files, DIRECTORY)


async def test_a_close_that_fails_changes_nothing() -> None:
    files = await filled(2)
    flip(files, 0, 5)
    files.fail = lambda call, _: errno.EIO if call == "close" else None
    assert len(repair(files, DIRECTORY)) == 1
    files.fail = no_failure
    assert repair(files, DIRECTORY) == [], "what counts was synced before, or only read"


@pytest.mark.parametrize("crc", [0, 1, 0xFFFF_FFFF, 0x8000_0000, *struct.unpack("<4I", bytes(range(16)))])
def test_an_id_can_be_made_for_any_checksum(crc: int) -> None:
    made = id_with(crc, os.urandom)
    assert (len(made), zlib.crc32(made)) == (16, crc)


def test_an_empty_directory_needs_nothing() -> None:
    assert repair(MemoryFiles.holding({Path("/journal/lock"): b""}), DIRECTORY) == []
