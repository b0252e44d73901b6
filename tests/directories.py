"""Directories of servers that tests kill: removed once the last of them has ended."""

import errno
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REMOVED_S = 20.0  # a server whose daemon was killed ends within milliseconds where cores are free
STEP_S = 0.01


def remove(directory: Path) -> None:
    """Remove a directory in which a killed server, or its child that rewrites the log, may still make a file.

    Raises:
        OSError: there is something new in it after 20 s still.
    """
    deadline_s = time.monotonic() + REMOVED_S
    while True:
        try:
            shutil.rmtree(directory)
            return
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.ENOENT} or time.monotonic() > deadline_s:
                raise
            if not directory.exists():
                return
        time.sleep(STEP_S)  # watches processes of their own


@contextmanager
def short_directory() -> Iterator[Path]:
    """A directory whose path leaves room for a unix socket (108 bytes)."""
    directory = Path(tempfile.mkdtemp(prefix="jqd-"))
    try:
        yield directory
    finally:
        remove(directory)
