"""The one writer: turns waiting frames into bytes on disk, and decides what an error means. Runs in its own thread.

An error of any write or sync poisons the segment: its descriptor is never synced again (the next sync would say yes
and lie), whoever waits is refused, and writing goes on in a new segment whose header says where the accepted part
before it ends. Nothing ever turns the log off.
"""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jqd.errors import JournalRefused
from jqd.journal.files import Files
from jqd.journal.frame import VERSION, SegmentHeader, pack_frame_header, pack_segment_header
from jqd.journal.segment import Segment, name_of

BUFFERS_MAX = 1_000  # of one writev; Linux takes 1,024
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
RESUME_FREE_BYTES = 8 << 20  # a disk that was full must have room for a commit before pushes are taken again

assert VERSION == 1


@dataclass(frozen=True, slots=True)
class Pending:
    """A frame that waits for its commit."""

    start: int
    end: int
    seq: int
    at_ms: int
    kind: int
    records: int
    body: bytes


class Writer:
    """Holds the open segment. Not shared between threads: one commit at a time."""

    def __init__(
        self, files: Files, directory: Path, journal_id: bytes, *, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._files = files
        self._directory = directory
        self._journal_id = journal_id
        self._random_bytes = random_bytes
        self._fd: int | None = None
        self.segment: Segment | None = None
        self._full = False

    def begin(self, *, first: int, previous_end: int, first_seq: int, at_ms: int) -> Segment:
        """Create the next segment and make it durable: header, sync, directory. Raises JournalRefused."""
        try:
            if self._full and self._files.free_bytes(self._directory) < RESUME_FREE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._close()
            header = SegmentHeader(
                self._journal_id, self._random_bytes(16), first, previous_end, first_seq, created_at_ms=at_ms
            )
            path = self._directory / name_of(first)
            if path.name in self._files.names(self._directory):
                # A creation that failed half way: nothing was ever accepted in it, or its name would be another.
                self._files.unlink(path)
            self._fd = self._files.create(path)
            self._write_all([pack_segment_header(header)])
            self._files.sync(self._fd)
            self._files.sync_directory(self._directory)
        except OSError as error:
            raise self._refused("a new segment cannot be created", error) from error
        self._full = False
        self.segment = Segment(path, header, first, at_ms)
        return self.segment

    def commit(self, frames: Sequence[Pending]) -> None:
        """Write and sync. On JournalRefused none of `frames` may be acknowledged, and `begin` must come next."""
        assert self.segment is not None
        assert self._fd is not None
        segment_id = self.segment.header.segment_id
        buffers: list[bytes] = []
        for frame in frames:
            buffers.append(
                pack_frame_header(
                    segment_id,
                    kind=frame.kind,
                    records=frame.records,
                    seq=frame.seq,
                    at_ms=frame.at_ms,
                    body=frame.body,
                )
            )
            buffers.append(frame.body)
        try:
            self._write_all(buffers)
            self._files.sync(self._fd)
            if not self._files.links(self._fd):
                raise OSError(errno.ESTALE, "the segment was deleted while it was written to")
        except OSError as error:
            self._close()
            raise self._refused(f"segment {self.segment.path.name} cannot be written", error) from error
        self.segment.end = frames[-1].end
        self.segment.last_at_ms = frames[-1].at_ms

    def close(self) -> None:
        """End. What was committed is on disk already."""
        self._close()

    def _write_all(self, buffers: Sequence[bytes]) -> None:
        assert self._fd is not None
        rest: list[bytes | memoryview] = list(buffers)
        while rest:
            written = self._files.write(self._fd, rest[:BUFFERS_MAX])
            if written <= 0:
                raise OSError(errno.EIO, "the disk took no bytes and gave no reason")
            # A short write is weather, not an error: go on behind it.
            done = 0
            while done < len(rest) and written >= len(rest[done]):
                written -= len(rest[done])
                done += 1
            del rest[:done]
            if written:
                rest[0] = memoryview(rest[0])[written:]

    def _close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._files.close(fd)

    def _refused(self, what: str, error: OSError) -> JournalRefused:
        self._full = error.errno in FULL
        name = errno.errorcode.get(error.errno or 0, "unknown")
        return JournalRefused(
            f"{what} in {self._directory}: {error.strerror or error} ({name}). Nothing of it was accepted; "
            + ("free some disk space" if self._full else "look at the disk")
            + ", pushes resume by themselves",
            full=self._full,
        )
