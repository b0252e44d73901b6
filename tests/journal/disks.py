"""Disks of earlier lives, and what spoils them."""

from pathlib import Path

from tests.harness.files import MemoryFiles
from tests.journal.conftest import opened, push


async def filled(*lives: list[bytes]) -> MemoryFiles:
    """A disk on which each life wrote its bodies."""
    files = MemoryFiles()
    for bodies in lives:
        async with opened(files) as journal:
            await push(journal, *bodies)
    return files


def damage(files: MemoryFiles, path: Path, *offsets: int) -> None:
    for offset in offsets:
        files.files[path].content[offset] ^= 0x40
