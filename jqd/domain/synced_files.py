"""Copies files and syncs the copies to disk."""

import os
from pathlib import Path

PIECE_BYTES = 1 << 20


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


def sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
