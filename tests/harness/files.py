"""A disk in memory that fails as disks do: the journal's `Files`, without a disk.

What it models:
- bytes are volatile until their file is synced, names until the directory is; a crash keeps what was synced, and of
  the rest any mixture of 512-byte sectors, and of the changed names any first part;
- any call fails with any errno, once or for ever; a write may be short;
- a sync that failed loses what it should have written, and the next one says yes all the same: what real kernels do;
- files deleted or replaced under their owner, a full disk.

What it does not: sectors that were synced and turn bad later (tests change `content` themselves), or a disk that lies
about a sync that it never made.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from jqd.domain.errors import JournalLocked
from jqd.journal.files import Files

SECTOR_BYTES = 512
CALLS = (
    "open_directory",
    "lock",
    "create",
    "open",
    "close",
    "write",
    "overwrite",
    "read",
    "sync",
    "sync_directory",
    "size",
    "in_place",
    "names",
    "rename",
    "link",
    "unlink",
    "truncate",
    "free_bytes",
)

Fail = Callable[[str, int], int | None]


class MemoryFile:
    """One file: what programs see of it, and what the disk has."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.synced = content
        self._unwritable: list[tuple[int, int]] = []  # ranges a failed sync dropped: seen, but never on disk

    def sync(self) -> None:
        """All but what an earlier failed sync dropped is on disk."""
        on_disk = bytearray(self.content)
        for start, stop in self._unwritable:
            on_disk[start:stop] = bytes(len(on_disk[start:stop]))
        self.synced = bytes(on_disk)

    def fail_sync(self) -> None:
        """What was not on disk yet never gets there."""
        self._unwritable.append((len(self.synced), len(self.content)))

    def after_crash(self, source: random.Random) -> bytes:
        """What was synced; behind it sectors that made it and, in between, zeros, up to any length."""
        length = source.randint(len(self.synced), max(len(self.synced), len(self.content)))
        kept = bytearray(self.synced)
        while len(kept) < length:
            stop = min(length, (len(kept) // SECTOR_BYTES + 1) * SECTOR_BYTES)
            made_it = source.random() < 0.5
            kept += self.content[len(kept) : stop] if made_it else bytes(stop - len(kept))
        return bytes(kept)


class MemoryFiles(Files):
    """A disk in memory. Thread-safe enough for one writer and readers, as the journal has them."""

    def __init__(self) -> None:
        self.files: dict[Path, MemoryFile] = {}
        self.calls: list[str] = []
        """Names of all calls made, in order."""
        self.fail: Fail = lambda call, number: None
        """Given a call's name and its running number from 1, the errno to fail with, or None."""
        self.short: Callable[[int], int] = lambda size: size
        """Given the bytes of a write, how many are taken."""
        self.free = 1 << 40
        """Bytes there is still room for; a write beyond them is cut, then refused."""
        self._durable: dict[Path, MemoryFile] = {}
        self._since: list[Callable[[dict[Path, MemoryFile]], None]] = []  # changes of names not durable yet
        self._fds: dict[int, MemoryFile] = {}
        self._next_fd = 1_000
        self._locks: dict[int, Path] = {}

    @classmethod
    def holding(cls, contents: dict[Path, bytes]) -> "MemoryFiles":
        """A disk that has these files, durably."""
        disk = cls()
        disk.files = {path: MemoryFile(content) for path, content in contents.items()}
        disk._durable = dict(disk.files)
        return disk

    @property
    def contents(self) -> dict[Path, bytes]:
        """What programs see, by path."""
        return {path: bytes(file.content) for path, file in self.files.items()}

    @property
    def open_descriptors(self) -> int:
        """How many were not closed yet."""
        return len(self._fds)

    def crash(self, source: random.Random) -> "MemoryFiles":
        """The disk as a power cut leaves it."""
        names = dict(self._durable)
        for change in self._since[: source.randint(0, len(self._since))]:
            change(names)
        after: dict[int, bytes] = {id(file): file.after_crash(source) for file in names.values()}
        return MemoryFiles.holding({path: after[id(file)] for path, file in names.items()})

    # ------------------------------------------------------------ the seam

    def open_directory(self, path: Path) -> None:
        """See Files."""
        self._call("open_directory")

    def release(self) -> None:
        """See Files."""

    def lock(self, path: Path) -> int:
        """See Files."""
        self._call("lock")
        if path in self._locks.values():
            raise JournalLocked(f"{path.parent} is in use by another daemon (process {os.getpid()})")
        if path not in self.files:
            file = MemoryFile()
            self._change(lambda names: names.__setitem__(path, file))
        fd = self._descriptor_of(self.files[path])
        self._locks[fd] = path
        return fd

    def create(self, path: Path) -> int:
        """See Files."""
        self._call("create")
        file = MemoryFile()
        self._change(lambda names: names.__setitem__(path, file))
        return self._descriptor_of(file)

    def open(self, path: Path, *, write: bool = False) -> int:
        """See Files."""
        self._call("open")
        return self._descriptor_of(self._file(path))

    def close(self, fd: int) -> None:
        """See Files. As on Linux, the descriptor is gone even when this fails."""
        del self._fds[fd]
        self._locks.pop(fd, None)
        self._call("close")

    def write(self, fd: int, buffers: Sequence[bytes | memoryview]) -> int:
        """See Files."""
        self._call("write")
        whole = b"".join(buffers)
        taken = min(self.short(len(whole)), self.free)
        if whole and not self.free:
            raise _error(errno.ENOSPC)
        self._fds[fd].content += whole[:taken]
        self.free -= taken
        return taken

    def overwrite(self, fd: int, data: bytes, offset: int) -> None:
        """See Files."""
        self._call("overwrite")
        self._fds[fd].content[offset : offset + len(data)] = data

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """See Files."""
        self._call("read")
        return bytes(memoryview(self._fds[fd].content)[offset : offset + size])

    def sync(self, fd: int) -> None:
        """See Files."""
        file = self._fds[fd]
        try:
            self._call("sync")
        except OSError:
            file.fail_sync()
            raise
        file.sync()

    def sync_directory(self) -> None:
        """See Files."""
        self._call("sync_directory")
        self._durable = dict(self.files)
        self._since.clear()

    def size(self, path: Path) -> int:
        """See Files."""
        self._call("size")
        return len(self._file(path).content)

    def in_place(self, fd: int, path: Path) -> bool:
        """See Files."""
        self._call("in_place")
        return self.files.get(path) is self._fds[fd]

    def names(self, path: Path) -> list[str]:
        """See Files."""
        self._call("names")
        return [each.name for each in self.files if each.parent == path]

    def rename(self, old: Path, new: Path) -> None:
        """See Files."""
        self._call("rename")
        self._file(old)
        self._change(lambda names: names.__setitem__(new, names.pop(old)))

    def link(self, old: Path, new: Path) -> None:
        """See Files."""
        self._call("link")
        if new in self.files:
            raise _error(errno.EEXIST)
        self._file(old)
        self._change(lambda names: names.__setitem__(new, names[old]))

    def unlink(self, path: Path) -> None:
        """See Files."""
        self._call("unlink")
        self._file(path)
        self._change(lambda names: names.__delitem__(path))

    def truncate(self, fd: int, size: int) -> None:
        """See Files."""
        self._call("truncate")
        self.free += len(self._fds[fd].content) - size
        del self._fds[fd].content[size:]

    def free_bytes(self, path: Path) -> int:
        """See Files."""
        self._call("free_bytes")
        return self.free

    # ------------------------------------------------------------ inside

    def _call(self, name: str) -> None:
        self.calls.append(name)
        number = self.fail(name, len(self.calls))
        if number is not None:
            raise _error(number)

    def _change(self, change: Callable[[dict[Path, MemoryFile]], None]) -> None:
        change(self.files)
        self._since.append(change)

    def _file(self, path: Path) -> MemoryFile:
        if path not in self.files:
            raise _error(errno.ENOENT)
        return self.files[path]

    def _descriptor_of(self, file: MemoryFile) -> int:
        self._next_fd += 1
        self._fds[self._next_fd] = file
        return self._next_fd


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))  # becomes FileExistsError and the like by itself
