"""A journal on a disk in memory, and how to read it back."""

import errno
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from jqd.domain.record import Lane
from jqd.journal import Journal, JournalConfig, open_journal, tail
from jqd.testing.clock import ManualClock
from tests.harness.files import MemoryFiles

DIRECTORY = Path("/journal")


@pytest.fixture(autouse=True)
def _reads_the_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read all from the disk, but where a test is about what is kept in memory."""
    if "in_memory" not in request.fixturenames:
        monkeypatch.setattr(tail, "TAIL_BYTES", 0)


@pytest.fixture
def in_memory() -> None:
    """Keep the frames that were committed last in memory, as a daemon does."""


def opened(
    files: MemoryFiles, clock: ManualClock | None = None, **settings: object
) -> AbstractAsyncContextManager[Journal]:
    """A journal on that disk; it tries a failing disk again at once, so that nobody waits for half seconds."""
    config = JournalConfig(directory=DIRECTORY, **{"retry_s": 0.001, **settings})  # type: ignore[arg-type]
    return open_journal(config, clock=clock or ManualClock(), files=files)


async def push(journal: Journal, *bodies: bytes, lane: Lane = Lane.JOBS) -> int:
    """Write and sync each, one commit after the other; returns the last position."""
    position = 0
    for body in bodies:
        position = journal.write(lane, 1, body)
        await journal.wsync(position)
    return position


async def read_lane(journal: Journal, lane: Lane = Lane.JOBS, records_max: int = 1_000) -> list[bytes]:
    """The bodies of all frames of a lane from its read point on, each once."""
    bodies: list[bytes] = []
    while token := journal.read_reserve(lane, records_max):
        bodies += [piece.body for piece in await journal.read(token) if piece.first == 0]
        journal.rsync(token.lane, token.end)
    return bodies


async def until(condition: Callable[[], object]) -> None:
    """Return once it holds: for what the journal does by itself and tells nobody."""
    while not condition():
        await trio.sleep(0.001)


def always(number: int, *calls: str) -> Callable[[str, int], int | None]:
    """For MemoryFiles.fail: these calls fail from now on."""
    return lambda call, _: number if call in calls else None


def once(number: int, *calls: str) -> Callable[[str, int], int | None]:
    """For MemoryFiles.fail: the next call of each of these names fails."""
    left = list(calls)

    def fail(call: str, _: int) -> int | None:
        if call not in left:
            return None
        left.remove(call)
        return number

    return fail


def no_failure(call: str, number: int) -> None:
    """For MemoryFiles.fail: a good disk."""


def segments(files: MemoryFiles) -> list[Path]:
    """Paths of the segments, oldest first."""
    return sorted(path for path in files.files if path.suffix == ".jqd")


FULL = (errno.ENOSPC, errno.EDQUOT)
