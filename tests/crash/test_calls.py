"""Every file call fails, with every errno, once and for good: nothing unhandled, nothing acknowledged and lost."""

import errno
import random
from dataclasses import dataclass, field

import pytest
import trio

from jqd.domain.errors import JournalRefused
from jqd.domain.record import Lane
from jqd.testing.clock import ManualClock
from tests.harness.files import CALLS, Fail, MemoryFiles
from tests.journal.conftest import no_failure, opened

ERRNOS = (
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EMFILE,
    errno.EINTR,
    errno.EAGAIN,
    errno.EFBIG,
    errno.ENOENT,
)
PATIENCE_S = 0.02  # for what hangs as long as the disk fails: the journal tries it every millisecond


@dataclass
class Ledger:
    """What was said to whom."""

    acknowledged: list[bytes] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    read: list[bytes] = field(default_factory=list)
    number: int = 0


async def life(files: MemoryFiles, in_flight: Ledger) -> None:
    """One life of a daemon: pushes, one by one and together, reads as the store would, trims."""
    async with opened(files, ManualClock(), segment_bytes=150, retention_s=1e9, retention_bytes=400) as journal:

        async def one_push() -> None:
            in_flight.number += 1
            body = b"job %03d " % in_flight.number + bytes(in_flight.number % 40)
            try:
                await journal.wsync(journal.write(Lane.JOBS, 1, body))
            except JournalRefused:
                in_flight.refused.append(body)
            else:
                in_flight.acknowledged.append(body)

        for _ in range(3):
            await one_push()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(one_push)
        with trio.move_on_after(PATIENCE_S):
            while token := journal.read_reserve(Lane.JOBS, 4):
                slices = await journal.read(token)
                in_flight.read += [piece.body for piece in slices]
                journal.rsync(token.lane, token.end)
        for _ in range(2):
            await one_push()
        journal.trim(journal.read_point(Lane.JOBS))


async def sweep(fail: Fail) -> Ledger:
    """Two lives with failures, a power cut, and a life without: then everything is compared."""
    files, in_flight = MemoryFiles(), Ledger()
    await life(files, in_flight)
    files.calls.clear()
    files.fail = fail
    try:
        await life(files, in_flight)
    except JournalRefused as error:
        assert "cannot be opened" in str(error)  # noqa: PT017  a start that is refused, in words
    assert files.open_descriptors == 0
    trimmed = set(in_flight.read)  # only what was read may be gone
    for disk in (files, files.crash(random.Random(1))):
        disk.fail = no_failure
        async with opened(disk) as journal:
            assert journal.stats().damaged == []
            found = []
            while token := journal.read_reserve(Lane.JOBS, 100):
                found += [piece.body for piece in await journal.read(token)]
                journal.rsync(token.lane, token.end)
            await journal.wsync(journal.write(Lane.JOBS, 1, b"after"))
        assert len(found) == len(set(found)), "a record twice"
        assert set(found) <= {*in_flight.acknowledged, *in_flight.refused}
        assert set(in_flight.acknowledged) - set(found) <= trimmed, "acknowledged and lost"
        # Refused means unknown: what reached the disk all the same may run. But the order is that of the pushes.
        assert found == sorted(found)
    return in_flight


async def calls_of_a_life() -> list[str]:
    files, in_flight = MemoryFiles(), Ledger()
    await life(files, in_flight)
    files.calls.clear()
    await life(files, in_flight)
    assert in_flight.refused == []
    return files.calls


@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_every_single_call_fails(number: int, for_good: bool) -> None:
    calls = await calls_of_a_life()
    assert {*calls} >= {*CALLS} - {"link", "truncate", "overwrite", "free_bytes"}
    for bad in range(1, len(calls) + 1):
        in_flight = await sweep(lambda _, n, bad=bad: number if n == bad or (for_good and n > bad) else None)  # type: ignore[misc]
        if not for_good:
            assert len(in_flight.acknowledged) >= 8


@pytest.mark.parametrize("call", CALLS)
async def test_every_kind_of_call_fails_with_every_errno(call: str) -> None:
    for number in ERRNOS:
        for which in (1, 2, 4):
            seen = 0

            def fail(name: str, _: int, which: int = which, number: int = number) -> int | None:
                nonlocal seen
                seen += name == call
                return number if name == call and seen >= which else None

            await sweep(fail)


async def test_short_writes_at_every_size() -> None:
    for taken in (1, 3, 43, 44, 45, 100):
        files, in_flight = MemoryFiles(), Ledger()
        files.short = lambda size, taken=taken: min(size, taken)  # type: ignore[misc]
        await life(files, in_flight)
        assert in_flight.refused == []
        assert len(in_flight.acknowledged) == 8
