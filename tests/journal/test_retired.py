"""From where on jobs are read is on disk before anybody relies on it, and believed only where it can be true."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jqd.domain.errors import JournalRefused
from jqd.domain.record import Lane
from jqd.journal import Journal, JournalConfig, open_journal
from jqd.journal.inspect import retired_in, snapshot
from jqd.journal.recover import RETIRED
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFiles

DIRECTORY = Path("/j")
PATH = DIRECTORY / RETIRED


@asynccontextmanager
async def opened(files: MemoryFiles) -> AsyncIterator[Journal]:
    async with open_journal(JournalConfig(directory=DIRECTORY), clock=ManualClock(), files=files) as journal:
        yield journal


async def fill(journal: Journal) -> int:
    """Some frames of each lane; returns where the second of jobs begins."""
    middle = 0
    for number in range(4):
        for lane in Lane:
            await journal.wsync(journal.write(lane, 1, b"%d" % number))
        middle = middle or journal.end
    return middle


async def read(journal: Journal, lane: Lane) -> list[bytes]:
    """As a lane that begins anew reads it."""
    journal.read_cancel(lane, 0)
    bodies: list[bytes] = []
    while token := journal.read_reserve(lane, 100):
        bodies += [piece.body for piece in await journal.read(token)]
        journal.rsync(lane, token.end)
    return bodies


def contents(files: MemoryFiles) -> bytes:
    fd = files.open(PATH)
    try:
        return files.read(fd, 999, 0)
    finally:
        files.close(fd)


def put(files: MemoryFiles, data: bytes) -> None:
    fd = files.create(PATH)
    files.write(fd, [data])
    files.close(fd)


async def test_jobs_before_it_are_never_read_again_and_endings_are() -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        middle = await fill(journal)
        await journal.retire(middle)
    async with opened(files) as journal:
        assert (journal.start, journal.retired) == (0, middle)
        for lane in Lane:
            whole = lane not in (Lane.JOBS, Lane.CHANGES)
            assert await read(journal, lane) == [b"0", b"1", b"2", b"3"][0 if whole else 1 :]
            assert journal.oldest(lane) == (0 if whole else middle)
        assert not journal.stats().damaged


@pytest.mark.parametrize("how", ["torn", "flipped", "empty"])
async def test_what_cannot_be_read_is_said_and_nothing_is_skipped(how: str) -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        await journal.retire(await fill(journal))
    data = contents(files)
    put(files, {"torn": data[:-3], "flipped": data.replace(b" 1 ", b" 1  "), "empty": b""}[how])
    async with opened(files) as journal:
        assert journal.retired == 0
        assert len(await read(journal, Lane.JOBS)) == 4
        assert any(RETIRED in sentence for sentence in journal.stats().damaged)
        await journal.retire(journal.end)
    async with opened(files) as journal:
        assert not journal.stats().damaged


async def test_one_that_is_newer_than_the_segments_beside_it_hides_no_job() -> None:
    files, newer = MemoryFiles(), MemoryFiles()
    async with opened(files) as journal:
        await fill(journal)
    async with opened(newer) as journal:
        middle = await fill(journal)
        await fill(journal)  # the copies lie here
        await journal.retire(middle)
        newer_end = journal.end
    put(files, contents(newer))
    async with opened(files) as journal:
        assert journal.retired == 0
        assert any("newer" in sentence for sentence in journal.stats().damaged)
        while journal.end < newer_end:
            await fill(journal)
    async with opened(files) as journal:
        assert journal.retired == 0, "it is not believed once the journal has grown past it, either"
        assert journal.stats().damaged == []


async def test_who_looks_at_a_journal_is_told_from_where_jobs_are_read() -> None:
    """So that what followed jobs of before is not said again."""
    files = MemoryFiles()
    assert retired_in(files, []) == 0
    async with opened(files) as journal:
        middle = await fill(journal)
        assert retired_in(files, snapshot(files, DIRECTORY)) == 0, "nothing is retired"
        await journal.retire(middle)
    seen = snapshot(files, DIRECTORY)
    assert retired_in(files, seen) == middle

    def fail(call: str, number: int) -> None:
        if call == "open":
            raise OSError(5, "Input/output error")

    files.fail = fail
    with pytest.raises(JournalRefused, match=r"cannot be read.*Input/output"):
        retired_in(files, seen)


async def test_a_disk_that_refuses_it_leaves_all_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    async with opened(files) as journal:
        middle = await fill(journal)
        monkeypatch.setattr(files, "rename", _refuse)
        with pytest.raises(JournalRefused, match="written down"):
            await journal.retire(middle)
        assert journal.retired == 0
        monkeypatch.undo()
        await journal.retire(middle)
        assert journal.retired == middle


def _refuse(old: Path, new: Path) -> None:
    raise OSError(28, "No space left on device")
