"""read_reserve, read, rsync, read_cancel: each lane at its own pace, and nothing is lost."""

import errno
import random
from contextlib import aclosing

import pytest
import trio
import trio.testing

from jqd.domain.errors import JournalDamaged, JournalStuck
from jqd.domain.record import Lane
from jqd.journal import Journal, Slice, frame, reader
from jqd.journal.frame import HEAD_BYTES
from tests.harness.files import MemoryFiles
from tests.journal.conftest import always, no_failure, once, opened, push, read_lane, segments, until


async def take(journal: Journal, records_max: int, lane: Lane = Lane.JOBS) -> list[Slice]:
    token = journal.read_reserve(lane, records_max)
    assert token is not None
    slices = await journal.read(token)
    journal.rsync(token.lane, token.end)
    return slices


async def test_lanes_are_read_apart() -> None:
    async with opened(MemoryFiles()) as journal:
        await push(journal, b"job")
        await push(journal, b"outcome", lane=Lane.OUTCOMES)
        await push(journal, b"job 2")
        assert await read_lane(journal, Lane.OUTCOMES) == [b"outcome"]
        assert journal.read_reserve(Lane.CANCELS, 1) is None
        assert await read_lane(journal) == [b"job", b"job 2"]
        assert journal.read_point(Lane.CANCELS) == journal.end
        middle = journal.written - 44 - len(b"job 2")
        assert journal.reached(Lane.OUTCOMES, middle) == journal.end, "the rest is jobs"
        assert journal.reached(Lane.JOBS, middle) == middle


async def test_a_lane_with_nothing_new_walks_over_nothing() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, *[b"job"] * 20)
        calls = len(files.calls)
        assert journal.read_reserve(Lane.OUTCOMES, 1) is None
        assert journal.read_point(Lane.OUTCOMES) == journal.end
        assert len(files.calls) == calls


async def test_a_frame_can_be_read_in_parts() -> None:
    async with opened(MemoryFiles()) as journal:
        start = journal.end
        end = journal.write(Lane.JOBS, 5, b"five records")
        await journal.wsync(end)
        seen = []
        while token := journal.read_reserve(Lane.JOBS, 2):
            (piece,) = await journal.read(token)
            seen.append((piece.start, piece.first, piece.stop, piece.end))
            journal.rsync(token.lane, token.end)
        assert seen == [(start, 0, 2, start + 2), (start, 2, 4, start + 4), (start, 4, 5, end)]
        journal.read_cancel(Lane.JOBS, start + 3)
        (piece,) = await take(journal, 10)
        assert (piece.first, piece.stop, piece.end) == (3, 5, end)


async def test_a_store_that_went_back_a_little_reads_on_from_there() -> None:
    async with opened(MemoryFiles()) as journal:
        await push(journal, b"one", b"two", b"three")
        assert len(await read_lane(journal)) == 3
        journal.read_cancel(Lane.JOBS, 47)
        assert await read_lane(journal) == [b"two", b"three"]
        journal.read_cancel(Lane.JOBS, 0)
        assert await read_lane(journal, records_max=1) == [b"one", b"two", b"three"]


async def test_a_position_that_no_record_has_reads_on_behind_its_frame() -> None:
    async with opened(MemoryFiles()) as journal:
        await push(journal, b"first", b"second")
        for position in range(1, 49):
            journal.read_cancel(Lane.JOBS, position)
            assert [piece.body for piece in await take(journal, 10)] == [b"second"]


async def test_a_read_stops_at_its_bytes() -> None:
    async with opened(MemoryFiles()) as journal:
        await push(journal, *[b"x" * 56] * 5)
        token = journal.read_reserve(Lane.JOBS, 100, bytes_max=150)
        assert token is not None
        assert len(await journal.read(token)) == 2
        assert token.end == 200


async def test_a_body_larger_than_the_window_is_read_whole() -> None:
    async with opened(MemoryFiles()) as journal:
        bodies = [random.Random(n).randbytes(300_000) for n in range(3)]
        await push(journal, b"small", *bodies, b"small")
        assert await read_lane(journal, records_max=2) == [b"small", *bodies, b"small"]


async def test_what_follows_may_be_read_before_the_first_is_in_the_store() -> None:
    async with opened(MemoryFiles()) as journal:
        end = await push(journal, b"one", b"two", b"three")
        first = journal.read_reserve(Lane.JOBS, 1)
        assert first is not None
        assert [piece.body for piece in await journal.read(first)] == [b"one"]
        second = journal.read_reserve(Lane.JOBS, 1, start=first.end)
        assert second is not None
        assert [piece.body for piece in await journal.read(second)] == [b"two"]
        assert journal.read_point(Lane.JOBS) == 0, "reading moves nothing"
        journal.rsync(Lane.JOBS, first.end)
        journal.rsync(Lane.JOBS, 0)
        assert journal.read_point(Lane.JOBS) == second.start, "it only goes on"
        assert journal.read_reserve(Lane.JOBS, 1, start=end) is None
        again = journal.read_reserve(Lane.JOBS, 9)
        assert again is not None
        assert [piece.body for piece in await journal.read(again)] == [b"two", b"three"]
        journal.rsync(Lane.JOBS, again.end)
        assert journal.read_point(Lane.JOBS) == end
        journal.read_cancel(Lane.JOBS, second.start)  # and all that is behind it
        assert await read_lane(journal) == [b"two", b"three"]


async def test_the_store_may_be_behind_but_never_ahead() -> None:
    async with opened(MemoryFiles(), segment_bytes=50, retention_s=0, retention_bytes=0) as journal:
        await push(journal, *[b"x" * 56] * 5)
        assert await read_lane(journal) == [b"x" * 56] * 5
        journal.read_cancel(Lane.JOBS, 200)
        assert await read_lane(journal) == [b"x" * 56] * 3
        assert journal.trim(300) == 300
        journal.read_cancel(Lane.JOBS, 0)
        assert journal.read_point(Lane.JOBS) == journal.start == 300
        assert await read_lane(journal) == [b"x" * 56] * 2
        with pytest.raises(JournalDamaged, match="older copy"):
            journal.read_cancel(Lane.JOBS, journal.end + 1)


async def test_a_reader_is_woken_for_its_own_lane_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 2,000 commits a second, readers of four quiet lanes that look each time take a tenth of the loop."""
    async with opened(MemoryFiles()) as journal:
        await push(journal, b"x")
        await journal.wait_readable(Lane.JOBS)
        woken, looks, is_behind = trio.Event(), list[Lane](), journal.is_behind

        def look(lane: Lane, reader: int = 0) -> bool:
            looks.append(lane)
            return is_behind(lane, reader)

        async def wait() -> None:
            await journal.wait_readable(Lane.CANCELS)
            woken.set()

        monkeypatch.setattr(journal, "is_behind", look)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await push(journal, b"y")
            await trio.testing.wait_all_tasks_blocked()
            assert looks == [Lane.CANCELS]
            await push(journal, b"z", lane=Lane.CANCELS)
            await woken.wait()
        assert looks == [Lane.CANCELS] * 2


async def test_one_read_looks_at_a_bounded_number_of_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FRAMES_MAX", 10)
    async with opened(MemoryFiles()) as journal:
        await push(journal, *[b"job"] * 25)
        await push(journal, b"outcome", lane=Lane.OUTCOMES)
        reads = []
        while token := journal.read_reserve(Lane.OUTCOMES, 5):
            reads.append(len(await journal.read(token)))
            journal.rsync(token.lane, token.end)
        assert reads == [0, 0, 1]


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_range_is_reached_however_many_frames_lie_before_it(
    monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    """What a store forgot is read again from deep in a segment, by a reader that knows no frame of it."""
    monkeypatch.setattr(reader, "FRAMES_MAX", 4)
    monkeypatch.setattr(frame, "AT_ONCE", 3)
    files = MemoryFiles()
    async with opened(files) as journal:
        for _ in range(8):
            await push(journal, b"a", b"bc")
            await push(journal, b"other", lane=Lane.OUTCOMES)

        async def starts_from(position: int) -> list[int]:
            pieces = [each async for each in journal.read_range(Lane.JOBS, position, journal.end)]
            return [piece.start for slices in pieces for piece in slices]

        if damaged:
            starts = await starts_from(0)
            (path,) = segments(files)
            files.files[path].content[HEAD_BYTES + starts[3] + 6] ^= 255  # in a frame's head
        good = await starts_from(0)
        assert len(good) == 16 - damaged
        for position in range(journal.end):
            assert await starts_from(position) == [start for start in good if start >= position], position


async def test_a_tail_without_frames_does_not_hold_a_reader_up() -> None:
    """Positions that were given out and refused stand at the end of an earlier life: nothing to read, no spinning."""
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"good")
        files.fail = once(errno.EIO, "sync")
        journal.write(Lane.JOBS, 1, b"refused")
        await until(lambda: journal.end > 48)
    async with opened(files) as journal:
        assert journal.end > 48
        assert await read_lane(journal) == [b"good"]
        assert journal.read_point(Lane.JOBS) == journal.end


@pytest.mark.parametrize("call", ["open", "read", "close"])
async def test_a_disk_that_cannot_be_read_is_waited_for_and_nothing_is_passed_over(call: str) -> None:
    files = MemoryFiles()
    async with opened(files, segment_bytes=50) as journal:
        await push(journal, b"a" * 56, b"b" * 56)
        files.fail = lambda name, _: errno.EIO if name in (call, "read") else None
        token = journal.read_reserve(Lane.JOBS, 10)
        assert token is not None
        slices: list[Slice] = []

        async def read() -> None:
            slices.extend(await journal.read(token))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await until(lambda: journal.stats().damaged)
            assert "jobs cannot be read" in journal.stats().damaged[0]
            assert "EIO" in journal.stats().damaged[0]
            await until(lambda: files.calls.count("open") > 6)
            files.fail = no_failure
        assert [piece.body for piece in slices] == [b"a" * 56, b"b" * 56]
        assert journal.stats().damaged == []
    assert files.open_descriptors == 0


async def test_a_range_that_cannot_be_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.journal.journal.RANGE_S", 0.05)
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, b"a")
        files.fail = always(errno.EIO, "read")
        with pytest.raises(JournalStuck, match="EIO"):
            async with aclosing(journal.read_range(Lane.JOBS, 0, journal.end)) as pieces:
                await anext(pieces)
        assert files.calls.count("read") > 1
        files.fail = no_failure
        assert await read_lane(journal) == [b"a"]


@pytest.mark.parametrize("where", ["header", "body"])
@pytest.mark.parametrize("refused", [None, "link", "sync_directory"])
async def test_damage_met_while_reading_is_reported_kept_and_passed_over(where: str, refused: str | None) -> None:
    files = MemoryFiles()
    async with opened(files, segment_bytes=50, retention_s=0, retention_bytes=0) as journal:
        await push(journal, b"a" * 56, b"b" * 56, b"c" * 56)
        path = segments(files)[1]
        files.files[path].content[8_192 + (20 if where == "header" else 54)] ^= 4
        if refused:
            files.fail = once(errno.EIO, refused)
        assert await read_lane(journal) == [b"a" * 56, b"c" * 56]
        (sentence,) = journal.stats().damaged
        assert path.name in sentence
        assert "from position 100 to 200" in sentence
        assert "byte 8192 on" in sentence
        journal.read_cancel(Lane.JOBS, 0)
        assert await read_lane(journal) == [b"a" * 56, b"c" * 56]
        journal.read_cancel(Lane.CANCELS, 0)
        assert len(journal.stats().damaged) == 1  # told once
        journal.trim(journal.end)
    kept = path.with_suffix(".damaged")
    assert path not in files.files
    assert (kept in files.files) is (refused != "link")
    async with opened(files) as journal:
        if refused != "link":
            assert f"{kept.name}: kept since damage was found" in journal.stats().damaged[0]


async def test_a_segment_with_many_damaged_places_is_named_a_bounded_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "DAMAGED_MAX", 3)
    files = MemoryFiles()
    async with opened(files) as journal:
        await push(journal, *[b"x" * 56] * 20)
        (path,) = segments(files)
        for n in range(0, 20, 2):
            files.files[path].content[8_192 + n * 100 + 74] ^= 1
        assert len(await read_lane(journal)) == 10
        assert len(journal.stats().damaged) == 3


async def test_a_range_is_read_without_moving_anybodys_read_point_and_names_damage() -> None:
    files = MemoryFiles()
    async with opened(files, segment_bytes=100) as journal:
        await push(journal, b"a", b"b")
        await push(journal, b"outcome", lane=Lane.OUTCOMES)
        await push(journal, b"c", b"d")
        token = journal.read_reserve(Lane.JOBS, 1)  # a range needs no reservation, and disturbs none
        assert token is not None

        async def bodies(start: int, end: int) -> list[bytes]:
            found = []
            async with aclosing(journal.read_range(Lane.JOBS, start, end)) as pieces:
                async for slices in pieces:
                    found += [piece.body for piece in slices]
            return found

        assert await bodies(0, journal.end + 1_000) == [b"a", b"b", b"c", b"d"]
        assert await bodies(45, journal.end - 45) == [b"b", b"c"]
        assert await bodies(90, 141) == []  # nothing of ours there
        assert await bodies(journal.end, journal.end) == []
        assert journal.read_point(Lane.JOBS) == 0
        assert [piece.body for piece in await journal.read(token)] == [b"a"]
        files.files[segments(files)[0]].content[HEAD_BYTES + 45 + 44] ^= 1
        assert await bodies(0, journal.end) == [b"a", b"c", b"d"]
        assert len(journal.stats().damaged) == 1
        assert files.open_descriptors == 3  # the lock, the segment that is written to, and the lane's reader


async def test_what_is_written_into_a_window_that_was_read_before_is_seen() -> None:
    """Frames are taken by the window, other lanes' between them, up to the records, bytes and frames of one read."""
    async with opened(MemoryFiles()) as journal:
        for number in range(3_000):
            journal.write(Lane.JOBS if number % 3 else Lane.OUTCOMES, 1, b"%04d" % number)
        await journal.wsync()
        expected = [b"%04d" % number for number in range(3_000) if number % 3]
        for records_max in (1_999, 7):
            journal.read_cancel(Lane.JOBS, 0)
            assert await read_lane(journal, records_max=records_max) == expected
        await push(journal, b"later")
        assert await read_lane(journal) == [b"later"]
