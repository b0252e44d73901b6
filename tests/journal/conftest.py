"""A journal on a disk in memory, and how to read it back."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from jqd.clock import ManualClock
from jqd.journal import Journal, JournalConfig, open_journal
from jqd.record import Lane
from jqd.testing.files import MemoryFiles

DIRECTORY = Path("/journal")
Opener = Callable[..., AbstractAsyncContextManager[Journal]]


def opened(
    files: MemoryFiles, clock: ManualClock | None = None, **settings: object
) -> AbstractAsyncContextManager[Journal]:
    config = JournalConfig(directory=DIRECTORY, **settings)  # type: ignore[arg-type]
    return open_journal(config, clock=clock or ManualClock(), files=files)


async def read_lane(journal: Journal, lane: Lane, records_max: int = 1_000) -> list[bytes]:
    """The bodies of all frames of a lane from its read point on, each once."""
    bodies: list[bytes] = []
    while token := journal.read_reserve(lane, records_max):
        bodies += [piece.body for piece in await journal.read(token) if piece.first == 0]
        journal.rsync(token)
    return bodies
