"""A disk in memory that fails as disks do: the journal's `Files`, without a disk.

What it models: bytes and names are volatile until synced; a crash keeps what was synced and any part of the rest; a
call may fail with any errno, once or from then on; a write may be short. What it does not: a disk that lies about sync.
"""

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from jqd.errors import JournalLocked

CALLS = (
    "make_directory",
    "lock",
    "create",
    "open",
    "close",
    "write",
    "read",
    "sync",
    "sync_directory",
    "size",
    "links",
    "names",
    "rename",
    "unlink",
    "truncate",
    "free_bytes",
)


class MemoryFiles:
    """Implements `jqd.journal.Files`. Thread-safe enough for one writer and readers, as the journal has them."""

    def __init__(self) -> None:
        self.data: dict[Path, bytearray] = {}
        self.synced: dict[Path, bytes] = {}
        self.durable_names: dict[Path, bytearray] = {}
        self.calls = 0
        self.fail: Callable[[str, int], int | None] = lambda call, number: None
        """Given a call's name and running number, the errno to fail with, or None."""
        self.short: Callable[[int], int] = lambda size: size
        """Given the bytes of a write, how many are taken."""
        self.free = 1 << 40
        self._fds: dict[int, tuple[Path, bytearray]] = {}
        self._next_fd = 1_000
        self._locked: set[Path] = set()

    def crash(self, source: random.Random) -> "MemoryFiles":
        """The disk as a power cut leaves it: synced bytes, a random part of the rest, and only names made durable."""
        after = MemoryFiles()
        for path, content in self.durable_names.items():
            synced = self.synced.get(path, b"")
            tail = bytes(content[len(synced) :])
            kept = tail[: source.randint(0, len(tail))]
            after.data[path] = bytearray(synced + kept)
            after.synced[path] = bytes(after.data[path])
        after.durable_names = dict(after.data)
        return after

    def make_directory(self, path: Path) -> None:
        self._call("make_directory")

    def lock(self, path: Path) -> int:
        self._call("lock")
        if path in self._locked:
            raise JournalLocked(f"{path.parent} is in use by another daemon")
        self._locked.add(path)
        return self._open(path, bytearray())

    def create(self, path: Path) -> int:
        self._call("create")
        if path in self.data:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self.data[path] = bytearray()
        return self._open(path, self.data[path])

    def open(self, path: Path) -> int:
        self._call("open")
        if path not in self.data:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self._open(path, self.data[path])

    def close(self, fd: int) -> None:
        path, _ = self._fds.pop(fd)
        self._locked.discard(path)
        self._call("close")

    def write(self, fd: int, buffers: Sequence[bytes | memoryview]) -> int:
        self._call("write")
        whole = b"".join(buffers)
        taken = self.short(len(whole))
        self._fds[fd][1].extend(whole[:taken])
        return taken

    def read(self, fd: int, size: int, offset: int) -> bytes:
        self._call("read")
        return bytes(self._fds[fd][1][offset : offset + size])

    def sync(self, fd: int) -> None:
        self._call("sync")
        path, content = self._fds[fd]
        self.synced[path] = bytes(content)

    def sync_directory(self, path: Path) -> None:
        self._call("sync_directory")
        self.durable_names = dict(self.data)

    def size(self, path: Path) -> int:
        self._call("size")
        return len(self.data[path])

    def links(self, fd: int) -> int:
        self._call("links")
        path, content = self._fds[fd]
        return int(self.data.get(path) is content)

    def names(self, path: Path) -> list[str]:
        self._call("names")
        return [p.name for p in self.data if p.parent == path]

    def rename(self, old: Path, new: Path) -> None:
        self._call("rename")
        self.data[new] = self.data.pop(old)
        self.synced[new] = self.synced.pop(old, b"")

    def unlink(self, path: Path) -> None:
        self._call("unlink")
        del self.data[path]

    def truncate(self, path: Path, size: int) -> None:
        self._call("truncate")
        del self.data[path][size:]
        self.synced[path] = bytes(self.data[path])

    def free_bytes(self, path: Path) -> int:
        self._call("free_bytes")
        return self.free

    def _open(self, path: Path, content: bytearray) -> int:
        self._next_fd += 1
        self._fds[self._next_fd] = (path, content)
        return self._next_fd

    def _call(self, name: str) -> None:
        self.calls += 1
        number = self.fail(name, self.calls)
        if number is not None:
            raise OSError(number, os.strerror(number))
