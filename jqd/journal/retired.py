"""The position from which jobs are read: those before it have ended, or were copied behind it, and never come again.

Their segments may have to stay longer, for the endings in them that other daemons' jobs need (docs/adr/0008).

    retired    jqd-retired 1 <position> <end> <CRC-32 of what stands before it>

`end` is where the journal ended when the file was written: the copies lie before it. If the directory ends earlier, it
is older than the file; then the file is not believed, and all jobs are read.
"""

import re
import zlib
from pathlib import Path
from typing import NamedTuple

from jqd.journal.files import Files, closing, write_whole
from jqd.journal.segment import NEW

RETIRED = "retired"

_LINE = re.compile(rb"(jqd-retired 1 (\d{1,20}) (\d{1,20}) )([0-9a-f]{8})\n")
_BYTES_MAX = 128


class Retired(NamedTuple):
    """The position in the file; 0 when there is no file."""

    position: int = 0
    end: int = 0


NOTHING_RETIRED = Retired()


def write_retired(files: Files, directory: Path, retired: Retired) -> None:
    """Write it durably in place of the old one. Raises OSError. Blocks: for a thread."""
    line = f"jqd-retired 1 {retired.position} {retired.end} ".encode()
    path = directory / RETIRED
    new = path.with_name(RETIRED + NEW)
    with closing(files, files.create(new)) as fd:
        write_whole(files, fd, line + b"%08x\n" % zlib.crc32(line))
        files.sync(fd)
    files.rename(new, path)
    files.sync_directory()


def read_retired(files: Files, directory: Path, end: int) -> tuple[Retired, str | None]:
    """The position in the file, and a sentence when it cannot be believed. `end`: of the journal.

    Raises OSError when the disk does not let it be read.
    """
    path = directory / RETIRED
    with closing(files, files.open(path)) as fd:
        data = files.read(fd, _BYTES_MAX, 0)
    match = _LINE.fullmatch(data)
    if match is None or int(match[4], 16) != zlib.crc32(match[1]):
        return (
            Retired(),
            f"{RETIRED}: it cannot be read, so jobs that ended long ago are applied again when a store was emptied",
        )
    found = Retired(int(match[2]), int(match[3]))
    if found.end > end:
        return Retired(), f"{RETIRED}: it is newer than the segments beside it, so all jobs in them are read"
    return found, None
