"""The disk seam: every file call of the journal, and no other. `jqd.testing.files` has the disk that fails.

Raises OSError as the system does. Nothing here retries or judges; that is the journal's business.
"""

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from jqd.errors import JournalLocked


class Files(Protocol):
    """What the journal asks of a disk."""

    def make_directory(self, path: Path) -> None: ...
    def lock(self, path: Path) -> int: ...
    def create(self, path: Path) -> int: ...
    def open(self, path: Path) -> int: ...
    def close(self, fd: int) -> None: ...
    def write(self, fd: int, buffers: Sequence[bytes | memoryview]) -> int: ...
    def read(self, fd: int, size: int, offset: int) -> bytes: ...
    def sync(self, fd: int) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def size(self, path: Path) -> int: ...
    def links(self, fd: int) -> int: ...
    def names(self, path: Path) -> list[str]: ...
    def rename(self, old: Path, new: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def truncate(self, path: Path, size: int) -> None: ...
    def free_bytes(self, path: Path) -> int: ...


class OsFiles:
    """The machine's own disk."""

    def __init__(self) -> None:
        # One descriptor is kept back, so that a process that ran out of them can still open the next segment.
        self._spare = self._open_spare()

    def make_directory(self, path: Path) -> None:
        """Make it, for the owner only, and make its name durable."""
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True)
            self.sync_directory(path.parent)

    def lock(self, path: Path) -> int:
        """Hold `path` for this process until the descriptor is closed. Raises JournalLocked naming who has it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise JournalLocked(
                f"{path.parent} is in use by another daemon (process {holder}); "
                "stop it, or choose another directory with --data-dir"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd

    def create(self, path: Path) -> int:
        """A new file to append to; it must not exist."""
        return self._open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)

    def open(self, path: Path) -> int:
        """An existing file to read."""
        return self._open(path, os.O_RDONLY)

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def write(self, fd: int, buffers: Sequence[bytes | memoryview]) -> int:
        """Append; may write less than asked."""
        return os.writev(fd, buffers)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; less at the end of the file."""
        return os.pread(fd, size, offset)

    def sync(self, fd: int) -> None:
        """Data and length to the disk."""
        os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        """Names made, changed or removed in `path` to the disk."""
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def size(self, path: Path) -> int:
        """Bytes of the file."""
        return path.stat().st_size

    def links(self, fd: int) -> int:
        """Names the open file has; 0 when somebody deleted it under us."""
        return os.fstat(fd).st_nlink

    def names(self, path: Path) -> list[str]:
        """Names in the directory, in no order."""
        return os.listdir(path)

    def rename(self, old: Path, new: Path) -> None:
        """Move within the directory."""
        old.rename(new)

    def unlink(self, path: Path) -> None:
        """Remove the name."""
        path.unlink()

    def truncate(self, path: Path, size: int) -> None:
        """Cut the file and sync it."""
        fd = self._open(path, os.O_WRONLY)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: Path) -> int:
        """Bytes a user like us may still write there."""
        state = os.statvfs(path)
        return state.f_bavail * state.f_frsize

    def _open(self, path: Path, flags: int) -> int:
        flags |= os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(path, flags, 0o600)
        except OSError as error:
            if error.errno != errno.EMFILE or self._spare is None:
                raise
            os.close(self._spare)
            self._spare = None
            try:
                return os.open(path, flags, 0o600)
            finally:
                self._spare = self._open_spare()

    @staticmethod
    def _open_spare() -> int | None:
        try:
            return os.open("/", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            # None left for a spare: the next opening takes its chance like anybody's.
            return None
