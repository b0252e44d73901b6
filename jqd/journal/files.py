"""Every file call of the journal, so that tests can replace the disk (`tests.harness.files` has one that fails).

The calls raise OSError as the system does, and never retry.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from jqd.domain.errors import JournalLocked

LOCK = "lock"


class Files:
    """The journal's calls to the disk, all in its one directory. Call `open_directory` first; any call may raise
    OSError. Safe to use from several threads."""

    def __init__(self) -> None:
        self._directory: int | None = None

    def open_directory(self, path: Path) -> None:
        """Make the directory if it is missing, durably and for the owner only, and keep it open."""
        missing, part = list[Path](), path
        while not part.exists():
            missing.append(part)
            part = part.parent
        for part in reversed(missing):
            part.mkdir(mode=0o700)
            parent = os.open(part.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)
        self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def release(self) -> None:
        """Close what `open_directory` opened."""
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def lock(self, path: Path) -> int:
        """Lock the file `path` for this process, and return its descriptor. Closing the descriptor ends the lock.
        Raises JournalLocked, which names the other process."""
        fd = self._open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise JournalLocked(
                f"{path.parent} is in use by another daemon (process {holder}); "
                "stop it, or choose another directory with --data-dir"
            ) from None
        except BaseException:
            os.close(fd)
            raise
        # The process id is for people. A full disk may refuse it; the lock holds nevertheless.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    def create(self, path: Path) -> int:
        """Make an empty file to append to, which replaces any file of that name; return its descriptor."""
        return self._open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)

    def open(self, path: Path, *, write: bool = False) -> int:
        """Open an existing file to read; `write`: also to cut and sync it. Returns its descriptor. Refuses a pipe,
        which could block."""
        fd = self._open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        self.close(fd)
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, buffers: Sequence[bytes | memoryview]) -> int:
        """Append buffers; return the number of bytes taken, which may be fewer than given."""
        return os.writev(fd, buffers)

    def overwrite(self, fd: int, data: bytes, offset: int) -> None:
        if os.pwrite(fd, data, offset) != len(data):
            raise OSError(errno.EIO, "a short write in the midst of a file")

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Return up to `size` bytes at `offset`; none at the end of the file."""
        return os.pread(fd, size, offset)

    def sync(self, fd: int) -> None:
        """Sync a file's data and length to the disk."""
        os.fdatasync(fd)

    def sync_directory(self) -> None:
        """Sync the directory to the disk: names that were made, changed or removed."""
        assert self._directory is not None, "open_directory comes first"
        os.fsync(self._directory)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def in_place(self, fd: int, path: Path) -> bool:
        """Whether `path` still names the open file: neither it nor its directory was deleted or replaced."""
        try:
            return os.path.samestat(os.fstat(fd), path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False

    def names(self, path: Path) -> list[str]:
        """Return the names in a directory, unsorted."""
        return os.listdir(path)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file; it replaces any file named `new`."""
        old.replace(new)

    def link(self, old: Path, new: Path) -> None:
        new.hardlink_to(old)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def free_bytes(self, path: Path) -> int:
        """Return how many bytes this user may still write on the disk of `path`."""
        state = os.statvfs(path)
        return state.f_bavail * state.f_frsize

    def _open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


@contextlib.contextmanager
def closing(files: Files, fd: int) -> Iterator[int]:
    """Close a descriptor at the end of the block. An error is ignored: all that counts was synced before."""
    try:
        yield fd
    finally:
        with contextlib.suppress(OSError):
            files.close(fd)


@contextlib.contextmanager
def holding(files: Files, directory: Path) -> Iterator[tuple[int, Path]]:
    """Make the journal's directory if it is missing, and lock it during the block. Yields the lock: descriptor and path
    of the lock file. Raises JournalLocked. Blocks only for short calls."""
    path = directory / LOCK
    try:
        files.open_directory(directory)
        with closing(files, files.lock(path)) as fd:  # the lock ends with the descriptor, even if closing it fails
            yield fd, path
    finally:
        files.release()


def read_whole(files: Files, fd: int, size: int, offset: int) -> bytes:
    """Read all `size` bytes, or as many as there are before the file ends."""
    parts: list[bytes] = []
    while size > 0 and (part := files.read(fd, size, offset)):
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)


def write_whole(files: Files, fd: int, data: bytes) -> None:
    while data:
        data = data[files.write(fd, [data]) :]
