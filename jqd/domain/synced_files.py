"""Copies files and syncs the copies to disk."""

import os
import shutil
from pathlib import Path

PIECE_BYTES = 1 << 20
PART = ".part"  # suffix of a directory that is being filled


def copy_synced(source: Path, target: Path) -> int:
    """Copy a file up to its present end, and sync the copy to disk; others may append to the file meanwhile. Returns
    the number of bytes copied.

    Raises OSError.
    """
    size = 0
    with source.open("rb") as read, target.open("xb") as written:
        left = os.fstat(read.fileno()).st_size
        while left and (piece := read.read(min(left, PIECE_BYTES))):
            written.write(piece)
            left -= len(piece)
            size += len(piece)
        written.flush()
        os.fsync(written.fileno())
    return size


def begin_directory(goal: Path) -> Path:
    """Make the directory that will be renamed to `goal` when it is whole, and return it. One that was left by an
    earlier try is deleted."""
    part = goal.with_name(goal.name + PART)
    if part.exists():
        shutil.rmtree(part)
    part.mkdir(mode=0o700, parents=True)
    return part


def end_directory(part: Path) -> None:
    """Rename a directory of `begin_directory` to its goal, durably."""
    part.replace(part.with_suffix(""))
    sync_directory(part.parent)


def sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
