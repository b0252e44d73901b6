"""The writer brings waiting frames to disk and decides what an error means. It runs in its own thread.

    <first>.jqd.new ──head, sync──▶ renamed to <first>.jqd ──directory sync──▶ takes frames ──error──▶ poisoned
                                                                                            └─full───▶ rotated

An error of any write or sync poisons the segment: its descriptor is never synced again (the next sync would succeed
wrongly), all waiters are refused, and writing goes on in a new segment whose head says where the accepted part before
it ends. A full segment takes more frames while the disk gives no other file.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from jqd.domain.errors import JournalRefused
from jqd.journal.files import Files
from jqd.journal.frame import HEAD_BYTES, NO_JOURNAL, SegmentHeader, pack_frame_header, pack_head
from jqd.journal.segment import NEW, Segment, name_of

BUFFERS_MAX = 1_000  # buffers of one writev; Linux takes 1,024
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_SEGMENT = "a new segment cannot be made"
RESUME_FREE_BYTES = 8 << 20  # a disk that was full must have room for a commit before pushes are taken again


class Pending(Struct, frozen=True, gc=False):
    """A frame that waits for its commit."""

    start: int
    end: int
    seq: int
    at_ms: int
    kind: int
    records: int
    body: bytes


class Start(NamedTuple):
    """Positions, first frame number and time for the head of a new segment."""

    first: int
    previous_end: int
    seq: int
    at_ms: int


class Writer:
    """Holds the open segment. Only one thread may call it at a time."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        journal_id: bytes,
        *,
        before: bytes = NO_JOURNAL,
        lock: tuple[int, Path],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._files, self._directory, self._journal_id = files, directory, journal_id
        self._before, self._lock, self._random_bytes = before, lock, random_bytes
        self._fd: int | None = None
        self._full = False
        self.segment: Segment | None = None
        """The newest segment; None before the first could be made."""

    def begin(self, start: Start) -> Segment:
        """Make the next segment and its name durable, and open it. Raises JournalRefused: try again later.

        If only making the file failed, the segment before stays open (`is_open`)."""
        header = SegmentHeader(self._journal_id, self._random_bytes(16), *start, self._before)
        path = self._directory / name_of(start.first)
        new = path.with_name(path.name + NEW)
        try:
            self._check_place(path)
        except OSError as error:
            self.close()
            raise self._refused(NO_SEGMENT, error) from error
        try:
            fd = self._make(new, pack_head(header))
        except OSError as error:
            raise self._refused(NO_SEGMENT, error) from error
        self.close()  # once the new name may exist, frames written to the old segment would lie in both
        self._fd = fd
        try:
            self._files.rename(new, path)
            self._files.sync_directory()
        except OSError as error:
            self.close()
            raise self._refused(NO_SEGMENT, error) from error
        self._full = False
        self.segment = Segment(path, header, start.first)
        return self.segment

    @property
    def is_open(self) -> bool:
        """Whether there is a segment that takes frames."""
        return self._fd is not None

    def _make(self, path: Path, head: bytes) -> int:
        """Make a file with `head` as its content, synced; return its descriptor. Raises OSError."""
        fd = self._files.create(path)
        try:
            self._write_all(fd, [head])
            self._files.sync(fd)
        except BaseException:
            self._close(fd)
            with contextlib.suppress(OSError):  # else the next start deletes it
                self._files.unlink(path)
            raise
        return fd

    def commit(self, frames: Sequence[Pending]) -> None:
        """Write and sync frames. If this raises JournalRefused, the caller acknowledges none of the frames, and calls
        `begin` next."""
        assert self.segment is not None
        assert self._fd is not None
        segment = self.segment
        segment_id, commit_start = segment.header.segment_id, frames[0].start
        buffers: list[bytes] = []
        for frame in frames:
            header = pack_frame_header(
                segment_id,
                frame.start,
                kind=frame.kind,
                records=frame.records,
                back=frame.start - commit_start,
                seq=frame.seq,
                at_ms=frame.at_ms,
                body=frame.body,
            )
            buffers += header, frame.body
        try:
            self._write_all(self._fd, buffers)
            self._files.sync(self._fd)
            if not self._files.in_place(self._fd, segment.path):
                raise OSError(errno.ESTALE, "it was deleted or replaced while it was written to")
            self._check_lock()
        except OSError as error:
            self._poison()
            raise self._refused(f"segment {segment.path.name} cannot be written", error) from error
        segment.end = frames[-1].end
        self._full = False

    def _check_place(self, path: Path) -> None:
        """Raise OSError if the lock is lost, a full disk is still full, or `path` is a file with frames."""
        self._check_lock()
        if self._full and self._files.free_bytes(self._directory) < RESUME_FREE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            taken_bytes = self._files.size(path)
        except FileNotFoundError:
            return
        if taken_bytes > HEAD_BYTES:
            raise OSError(errno.EEXIST, f"{path.name} exists and holds something; move it away")

    def _check_lock(self) -> None:
        """Raise OSError when the lock file is gone: another daemon may write to this directory, too."""
        fd, lock = self._lock
        if not self._files.in_place(fd, lock):
            raise OSError(errno.ESTALE, "the lock file was deleted or replaced; end this daemon and look who did it")

    def _write_all(self, fd: int, buffers: Sequence[bytes]) -> None:
        rest: list[bytes | memoryview] = list(buffers)
        done = 0
        while done < len(rest):
            written = self._files.write(fd, rest[done : done + BUFFERS_MAX])
            if written <= 0:
                raise OSError(errno.EIO, "the disk took no bytes and gave no reason")
            # A short write is no error: go on behind it.
            while done < len(rest) and written >= len(rest[done]):
                written -= len(rest[done])
                done += 1
            if written:
                rest[done] = memoryview(rest[done])[written:]

    def _poison(self) -> None:
        """Cut off the refused frames, if the disk allows that, and close the segment for good."""
        assert self.segment is not None
        assert self._fd is not None
        # Nothing relies on the cut: the next segment's head says where this one ends.
        with contextlib.suppress(OSError):
            self._files.truncate(self._fd, HEAD_BYTES + self.segment.size)
        self.close()

    def close(self) -> None:
        """Close the segment. Committed frames are on disk already."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._close(fd)

    def _close(self, fd: int) -> None:
        # Accepted frames were synced before, others are refused: a failing close changes neither.
        with contextlib.suppress(OSError):
            self._files.close(fd)

    def _refused(self, what: str, error: OSError) -> JournalRefused:
        self._full = error.errno in FULL
        name = errno.errorcode.get(error.errno or 0, "unknown")
        return JournalRefused(
            f"{what} on this daemon's disk: {error.strerror or error} ({name}). Nothing of it was accepted; "
            + ("free some disk space, or files where `df -i` shows none" if self._full else "look at the disk")
            + ", pushes resume by themselves",
            full=self._full,
        )
