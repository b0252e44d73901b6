"""Random lives on a bad disk, each ended by a power cut: what was acknowledged is there, whatever was not synced.

The long form: `python -m pytest tests/crash --power-cuts 100000 --timeout 0`.
"""

import errno
import random

import trio

from jqd.domain.errors import JournalRefused
from jqd.domain.record import Lane
from jqd.journal import Journal
from jqd.testing.clock import ManualClock
from tests.crash.disk import quiet
from tests.harness.files import MemoryFiles
from tests.journal.conftest import opened, read_lane, until

SEED = 7
NUMBERS = (errno.EIO, errno.ENOSPC, errno.EROFS)


async def test_nothing_acknowledged_is_lost_over_many_power_cuts(power_cuts: int) -> None:
    for seed in range(SEED, SEED + power_cuts):
        with quiet():
            try:
                await walk(random.Random(seed))
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise


async def walk(source: random.Random) -> None:
    """Some lives in a row over one disk, which loses at each cut what it may lose."""
    files = MemoryFiles()
    acknowledged: list[bytes] = []
    written: set[bytes] = set()
    end = 0
    for life in range(source.randint(1, 4)):
        # The cut may come at any call of the life, so the disk is looked at in the middle of it.
        cut_after = source.randint(1, 60)
        snapshot: list[tuple[MemoryFiles, int]] = []

        def fail(
            call: str,
            number: int,
            cut_after: int = cut_after,
            snapshot: list[tuple[MemoryFiles, int]] = snapshot,
            files: MemoryFiles = files,
        ) -> int | None:
            if number == cut_after:
                snapshot.append((files.crash(source), len(acknowledged)))
            return source.choice(NUMBERS) if source.random() < 0.03 and call != "names" else None

        files.calls.clear()
        files.fail = fail
        files.short = lambda size: source.randint(1, size) if source.random() < 0.2 else size
        try:
            async with opened(files, ManualClock(), segment_bytes=source.randint(1, 600)) as journal:
                assert journal.end >= end, "positions went back"
                await work(journal, source, life, acknowledged, written)
        except JournalRefused:
            pass  # this start was refused
        promised = len(acknowledged)
        files, promised = snapshot[0] if snapshot else (files.crash(source), promised)
        del acknowledged[promised:]  # said after the cut: nobody heard it
        async with opened(files) as journal:
            found = await read_lane(journal)
            # A cut may leave the last frame, of which nobody was told, in full length with bad bytes: it says so.
            assert [each for each in journal.stats().damaged if "has its full length" not in each] == []
            end = journal.end
        assert [body for body in found if body in acknowledged] == acknowledged
        assert set(found) <= written
        assert len(found) == len(set(found))
        acknowledged[:] = found  # what is there now stays there


async def work(
    journal: Journal, source: random.Random, life: int, acknowledged: list[bytes], written: set[bytes]
) -> None:
    for n in range(source.randint(0, 12)):
        batch = []
        for k in range(source.randint(1, 3)):
            body = b"%d-%d-%d " % (life, n, k) + source.randbytes(source.randint(0, 700))
            written.add(body)
            try:
                batch.append((journal.write(Lane.JOBS, 1, body), body))
            except JournalRefused:
                break
        for position, body in batch:
            try:
                await journal.wsync(position)
                acknowledged.append(body)
            except JournalRefused:
                continue
        if source.random() < 0.5:
            with trio.move_on_after(0.005):
                await until(lambda: not journal.refusing)
