"""Looking at a journal: every damage is named by file, offset and kind, nothing whole is, and nothing is touched."""

import errno
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from jqd.domain.errors import JournalRefused
from jqd.domain.record import Lane
from jqd.journal import Journal, JournalConfig, open_journal
from jqd.journal.frame import HEAD_BYTES, HEADER_COPY_BYTES, KINDS, Frame, pack_head, unpack_head
from jqd.journal.inspect import Kind, Place, frames_of, snapshot, walk
from jqd.journal.repair import repair
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFile, MemoryFiles
from tests.journal.conftest import DIRECTORY, always, no_failure, once, opened, push, segments, until

READ_ONLY = {"names", "open", "close", "read", "size"}
BODY = b"the body of one frame"
FRAME = 44 + len(BODY)


async def filled(*lives: int) -> MemoryFiles:
    """A disk on which each life wrote so many frames of one commit each, and one of two frames at its end."""
    files = MemoryFiles()
    for number in lives:
        async with opened(files) as journal:
            await push(journal, *[BODY] * number)
            journal.write(Lane.OUTCOMES, 1, BODY)
            journal.write(Lane.CANCELS, 1, BODY)
            await journal.wsync()
    return files


def looked(files: MemoryFiles, kinds: Collection[int] = KINDS) -> tuple[list[Place], list[Frame]]:
    """What is said of a directory, and what is read of it. Holds the look to changing nothing."""
    before, calls, descriptors = files.contents, len(files.calls), files.open_descriptors
    places, good = list[Place](), list[Frame]()
    for seen in snapshot(files, DIRECTORY):
        places += seen.places
        for piece in walk(files, seen, kinds=kinds):
            if isinstance(piece, Place):
                places.append(piece)
            else:
                good.append(piece)
    assert set(files.calls[calls:]) <= READ_ONLY
    assert files.open_descriptors == descriptors
    assert files.contents == before
    return places, good


async def test_a_whole_journal_is_read_and_nothing_is_said_of_it() -> None:
    files = await filled(3, 2)
    places, good = looked(files)
    assert places == []
    assert [piece.kind for piece in good] == [1, 1, 1, 2, 3, 1, 1, 2, 3]
    assert {piece.body for piece in good} == {BODY}
    _, good = looked(files, [Lane.OUTCOMES])
    assert [(piece.kind, piece.body) for piece in good] == [(2, BODY)] * 2
    assert [frames_of(files, seen) for seen in snapshot(files, DIRECTORY)] == [5, 4]


async def test_every_flipped_bit_is_named_where_it_is() -> None:
    """One of every byte of all frames, and of the heads. In the last commit it looks torn, elsewhere damaged."""
    files = await filled(3, 2)
    for number, path in enumerate(segments(files)):
        size = len(files.contents[path])
        pages = [page + at for page in (0, HEADER_COPY_BYTES) for at in [*range(100), *range(100, 4_096, 97), 4_095]]
        last_commit = size - 2 * FRAME if number == 1 else size
        for byte in [*pages, *range(HEAD_BYTES, size)]:
            files.files[path].content[byte] ^= 1 << byte % 8
            (place,), good = looked(files)
            files.files[path].content[byte] ^= 1 << byte % 8
            assert place.file == path.name
            assert place.offset <= byte < place.offset + place.size
            if byte < HEAD_BYTES:
                assert (place.kind, place.offset % HEADER_COPY_BYTES, len(good)) == (Kind.BAD_HEAD, 0, 9)
                continue
            assert (place.offset - HEAD_BYTES) % FRAME == 0
            assert len(good) == 8
            if byte >= last_commit:
                assert place.kind is (Kind.TORN_INSIDE if byte < size - FRAME else Kind.TORN)
            else:
                assert place.kind is (Kind.BAD_HEADER if (byte - HEAD_BYTES) % FRAME < 44 else Kind.BAD_BODY)
            assert place.kind.is_damage == (byte < last_commit)


async def test_bytes_that_are_missing_are_counted() -> None:
    files = await filled(3, 2)
    path = segments(files)[0]
    whole = files.contents[path]
    for size in range(HEAD_BYTES, len(whole)):
        files.files[path].content = bytearray(whole[:size])
        places, good = looked(files)
        missing = [place for place in places if place.kind is Kind.MISSING]
        assert missing[0][:3] == (path.name, size, len(whole) - size)
        part = (size - HEAD_BYTES) % FRAME
        others = [place[:4] for place in places if place.kind is not Kind.MISSING]
        assert others == ([(path.name, size - part, part, Kind.BAD_HEADER)] if part else [])
        assert len(good) == (size - HEAD_BYTES) // FRAME + 4
        assert frames_of(files, snapshot(files, DIRECTORY)[0]) is None


async def test_a_segment_that_is_gone_is_missing_bytes_of_the_one_before() -> None:
    files = await filled(1, 1, 1)
    first, gone, _ = segments(files)
    size = len(files.contents[gone]) - HEAD_BYTES
    del files.files[gone]
    (place,), good = looked(files)
    assert (place.file, place.offset, place.size, place.kind) == (
        first.name,
        len(files.contents[first]),
        size,
        Kind.MISSING,
    )
    assert len(good) == 6


@pytest.mark.parametrize("tail", [b"torn", b"\0" * 5_000, b"\xf6JQ\x01" * 100])
async def test_a_torn_tail_is_named_and_is_no_damage(tail: bytes) -> None:
    files = await filled(2)
    (path,) = segments(files)
    size = len(files.contents[path])
    files.files[path].content += tail
    (place,), good = looked(files)
    assert (place.offset, place.size, place.kind) == (size, len(tail), Kind.TORN)
    assert not place.kind.is_damage
    assert len(good) == 4
    assert str(place) == f"{path.name}: byte {size}: torn tail, {len(tail)} bytes; as a rule not acknowledged"


async def test_a_seal_proves_nothing_of_what_is_before_it() -> None:
    """It was put there by whoever found torn bytes; only what a writer wrote knows what was on disk then."""
    files = MemoryFiles()
    async with opened(files) as journal:
        for _ in range(4):
            journal.write(Lane.JOBS, 1, BODY)
        await journal.wsync()
    path = segments(files)[0]
    files.files[path].content[HEAD_BYTES + 2 * FRAME + 50] ^= 1
    assert len(repair(files, DIRECTORY)) == 1
    files.files[path].content[HEAD_BYTES + FRAME + 50] ^= 1
    assert [place.kind for place in looked(files)[0]] == [Kind.TORN_INSIDE]


async def test_what_was_refused_is_void() -> None:
    files = await filled(1)
    async with opened(files) as journal:
        await push(journal, BODY)
        files.fail = always(errno.EIO, "sync", "truncate")
        journal.write(Lane.JOBS, 1, BODY)
        with pytest.raises(JournalRefused):
            await journal.wsync()
        files.fail = no_failure
        await until(lambda: journal.refusing is None)
        await push(journal, BODY)
        (place,), good = looked(files)
    assert (place.offset, place.size, place.kind) == (HEAD_BYTES + FRAME, FRAME, Kind.VOID)
    assert not place.kind.is_damage
    assert len(good) == 5


async def test_a_lost_head_is_named_and_its_neighbours_are_read() -> None:
    files = await filled(1, 2, 1)
    first, lost, _ = segments(files)
    files.files[lost].content[:HEAD_BYTES] = bytes(HEAD_BYTES)
    (place,), good = looked(files)
    assert (place.file, place.offset, place.size, place.kind) == (lost.name, 0, HEAD_BYTES, Kind.BAD_HEAD)
    assert len(good) == 6
    seen = snapshot(files, DIRECTORY)[1]
    assert frames_of(files, seen) is None
    assert list(walk(files, seen)) == []
    # Whoever looked at it before gave it another name; and what stands before it is torn at most, for all one can say.
    files.files[lost.with_suffix(".damaged")] = files.files.pop(lost)
    files.files[first].content[-1] ^= 1
    torn, place = sorted(looked(files)[0])
    assert (place.file, place.kind) == (lost.stem + ".damaged", Kind.BAD_HEAD)
    assert (torn.file, torn.kind) == (first.name, Kind.TORN)


async def test_a_second_name_says_nothing_unless_it_is_the_only_one() -> None:
    files = await filled(1, 1)
    first, _ = segments(files)
    files.files[first.with_suffix(".damaged")] = files.files[first]
    assert looked(files)[0] == []
    del files.files[first]
    (place,), good = looked(files)
    assert (place.file, place.kind, place.kind.is_damage) == (first.stem + ".damaged", Kind.KEPT, False)
    assert len(good) == 3


async def test_strangers_are_named() -> None:
    files, others = await filled(1, 1), await filled(4)
    (other,) = segments(others)
    content = others.contents[other]
    header = unpack_head(content, other.name)
    assert header is not None
    end = max(int(path.stem) for path in segments(files)) + 1_000
    moved = DIRECTORY / f"{end:020d}.jqd"
    files.files[moved] = MemoryFile(content)
    (place,), good = looked(files)
    assert (place.file, place.kind) == (moved.name, Kind.FOREIGN)
    assert place.note == "its head says that it begins at position 0"
    files.files[moved] = MemoryFile(pack_head(header._replace(first=end, previous_end=end)) + content[HEAD_BYTES:])
    (place,), good = looked(files)
    assert (place.file, place.kind) == (moved.name, Kind.FOREIGN)
    ours = unpack_head(files.contents[segments(files)[0]], "")
    assert ours is not None
    assert place.note == f"it is of journal {header.journal_id.hex()}, not of {ours.journal_id.hex()}"
    assert len(good) == 6


async def test_a_journal_that_went_on_under_a_new_id_is_whole() -> None:
    files = await filled(1)
    for _ in range(2):
        async with opened_as(files, b"the second id ..") as journal:
            await push(journal, BODY)
    places, good = looked(files)
    assert places == []
    assert len(good) == 5
    path = segments(files)[1]
    header = unpack_head(files.contents[path], path.name)
    assert header is not None
    files.files[path].content[:HEAD_BYTES] = pack_head(header._replace(before=b"of nobody here .."[:16]))
    assert {(place.file, place.kind) for place in looked(files)[0]} >= {(path.name, Kind.FOREIGN)}


def opened_as(files: MemoryFiles, journal_id: bytes) -> AbstractAsyncContextManager[Journal]:
    return open_journal(JournalConfig(directory=DIRECTORY), clock=ManualClock(), files=files, journal_id=journal_id)


async def test_another_format_is_named_and_no_damage_is_guessed() -> None:
    files = await filled(1, 1)
    _, second = segments(files)
    files.files[second].content[8] = files.files[second].content[HEADER_COPY_BYTES + 8] = 77
    (place,), good = looked(files)
    assert (place.file, place.kind) == (second.name, Kind.VERSION)
    assert "version 77" in place.note
    assert len(good) == 3
    assert frames_of(files, snapshot(files, DIRECTORY)[1]) is None


async def test_what_the_disk_cannot_read_is_named_and_the_rest_is_read() -> None:
    files = await filled(1, 1)
    first, second = snapshot(files, DIRECTORY)
    files.fail = once(errno.EIO, "read")
    (place,) = list(walk(files, first))
    assert isinstance(place, Place)
    assert (place.kind, place.offset) == (Kind.UNREADABLE, HEAD_BYTES)
    assert "Input/output error" in place.note
    assert len(list(walk(files, second))) == 3
    files.fail = always(errno.EIO, "read")
    assert frames_of(files, second) is None
    files.fail = always(errno.EACCES, "names")
    with pytest.raises(JournalRefused, match="cannot be read"):
        snapshot(files, DIRECTORY)
    files.fail = no_failure


async def test_what_is_deleted_meanwhile_is_left_out() -> None:
    files = await filled(1, 1, 1)
    oldest, older, last = segments(files)
    begun = files.files.pop(last)
    seen = snapshot(files, DIRECTORY)
    kept = files.files.pop(oldest)
    assert list(walk(files, seen[0])) == []

    def rolls(call: str, _: int) -> int | None:
        if call == "size" and older in files.files:
            del files.files[older]
            files.files.pop(oldest)
            files.files[last] = begun
        return None

    files.files[oldest] = kept
    files.fail = rolls
    (left,) = snapshot(files, DIRECTORY)
    assert left.path == last, "begun meanwhile, so what stood in the others may stand here now"
    assert left.places == []


async def test_a_name_that_is_listed_and_does_not_open_is_said() -> None:
    files = await filled(1, 1, 1)
    files.fail = always(errno.ENOENT, "open")  # a link to a disk that is not mounted
    with pytest.raises(JournalRefused, match="cannot be read"):
        snapshot(files, DIRECTORY)
    files.fail = no_failure


async def test_a_directory_in_use_can_be_looked_at_all_the_time() -> None:
    files = MemoryFiles()
    async with opened(files, segment_bytes=500) as journal:
        for number in range(40):
            await push(journal, BODY)
            places, good = looked(files)
            assert places == []
            assert len(good) == number + 1
    assert len(segments(files)) == 5


def test_an_empty_directory_has_nothing() -> None:
    assert snapshot(MemoryFiles.holding({Path("/journal/lock"): b""}), DIRECTORY) == []
