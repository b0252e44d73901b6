"""The local durable log: what is acknowledged to anybody is written here first, and read back exactly.

    write ──▶ pending frames ──▶ one commit: write + sync ──▶ durable ──▶ read_reserve / read / rsync, per lane

`write` is cheap and not durable; `wsync` returns once all that was written before it is on disk. One commit serves
all who wait, and while it runs the next one gathers. Idea of the method names: seed miniq-queue.
"""

import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from jqd.clock import Clock
from jqd.errors import JournalDamaged, JournalRefused
from jqd.jobid import SALT_BITS, IdSource, journal_number
from jqd.journal.cursor import Cursor, Reservation, Slice
from jqd.journal.files import Files, OsFiles
from jqd.journal.frame import FRAME_HEADER_BYTES
from jqd.journal.reader import Reader
from jqd.journal.recover import Recovered, recover
from jqd.journal.writer import Pending, Writer
from jqd.log import get_logger
from jqd.record import Lane

MIB = 1 << 20
RESUME_EVERY_S = 0.5  # after a refusal a new segment is tried this often


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """Where the journal lies and how large its parts may grow."""

    directory: Path
    segment_bytes: int = 64 * MIB  # a segment is the unit of deletion; larger ones scan slower at start
    frame_bytes_max: int = 32 * MIB  # a request's whole batch, with room for its conversion from JSON
    commit_bytes_max: int = 8 * MIB  # one write and sync: a few ms on an ordinary disk
    pending_bytes_max: int = 64 * MIB  # what may wait for the disk before pushes are refused
    reserve_timeout_s: float = 30.0  # a reader that is gone gives its range back after this
    retention_s: float = 86_400.0  # how long a store may be behind and still be rebuilt from here
    retention_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        if not 0 < self.frame_bytes_max <= self.pending_bytes_max:
            raise ValueError(f"frame_bytes_max must be above 0 and at most pending_bytes_max; got {self}")
        if min(self.segment_bytes, self.commit_bytes_max, self.reserve_timeout_s) <= 0:
            raise ValueError(f"segment_bytes, commit_bytes_max and reserve_timeout_s must be above 0; got {self}")
        if min(self.retention_s, self.retention_bytes) < 0:
            raise ValueError(f"a retention cannot be negative; got {self}")


@dataclass(frozen=True, slots=True)
class JournalStats:
    """A snapshot, for health, metrics and `jqd status`."""

    journal_id: str
    bytes: int
    segments: int
    written: int
    synced: int
    pending_bytes: int
    commits: int
    commit_ms_last: float
    commit_ms_max: float
    commit_ms_mean: float
    frames_per_commit_mean: float
    refusing: str | None
    damaged: list[str] = field(default_factory=list)


class Journal:
    """Made by `open_journal` only."""

    def __init__(
        self, config: JournalConfig, clock: Clock, files: Files, writer: Writer, found: Recovered, salt: int
    ) -> None:
        assert found.journal_id is not None
        assert writer.segment is not None
        self.journal_id = found.journal_id.hex()
        self.ids = IdSource(journal=journal_number(self.journal_id), salt=salt, clock=clock, after_ms=found.last_at_ms)
        self._config = config
        self._clock = clock
        self._files = files
        self._writer = writer
        self._segments = [*found.segments, writer.segment]
        self._damaged = found.damaged
        self.end = writer.segment.first
        """Position up to which everything is on disk."""
        self._written = self.end
        self._next_seq = found.next_seq
        self._last_at_ms = found.last_at_ms
        self._pending: deque[Pending] = deque()
        self._pending_bytes = 0
        self._void: list[tuple[int, int, JournalRefused]] = []  # positions that were given out and then refused
        self._refusal: JournalRefused | None = None
        self._work = trio.Event()
        self._committed = trio.Event()
        # What an earlier life wrote may hold frames of every lane; what this one writes is known exactly.
        self._cursors = {lane: Cursor(lane, self.start, self.end) for lane in Lane}
        self._readers = {lane: Reader(files) for lane in Lane}
        self._write_limiter = trio.CapacityLimiter(1)
        self._read_limiter = trio.CapacityLimiter(len(Lane))
        self._commits = self._frames = 0
        self._commit_ms_last = self._commit_ms_max = self._commit_ms_total = 0.0
        self._log = get_logger("journal")

    # ------------------------------------------------------------ writing

    @property
    def refusing(self) -> str | None:
        """Why nothing can be written now, or None."""
        return str(self._refusal) if self._refusal else None

    @property
    def refusing_full(self) -> bool:
        """Whether it refuses because the disk is full."""
        return self._refusal is not None and self._refusal.full

    def write(self, lane: Lane, records: int, body: bytes) -> int:
        """Append one frame of `records` records; returns the position after it. Not durable before `wsync`.

        Raises JournalRefused while the disk refuses or too much waits for it already.
        """
        if self._refusal is not None:
            raise JournalRefused(str(self._refusal), full=self._refusal.full)
        if not 1 <= records <= len(body) <= self._config.frame_bytes_max:
            raise ValueError(f"a frame takes 1 to {self._config.frame_bytes_max} bytes and no more records than bytes")
        size = FRAME_HEADER_BYTES + len(body)
        if self._pending_bytes + size > self._config.pending_bytes_max:
            raise JournalRefused(
                f"{self._pending_bytes} bytes wait for the disk already (limit {self._config.pending_bytes_max}); "
                "nothing of this was accepted, try again in a moment",
                full=False,
            )
        # Dates in the journal never decrease, and never fall behind the ids: a later life starts after them.
        self._last_at_ms = max(self._clock.wall_ms(), self._last_at_ms, self.ids.last_ms)
        start, self._written = self._written, self._written + size
        self._pending.append(Pending(start, self._written, self._next_seq, self._last_at_ms, lane, records, body))
        self._next_seq += 1
        self._pending_bytes += size
        self._work.set()
        return self._written

    async def wsync(self, position: int | None = None) -> None:
        """Return once everything up to `position` (all that was written so far) is on disk.

        Raises JournalRefused when it did not get there: it must not be acknowledged. A cancelled waiter cancels
        nothing but its waiting.
        """
        wanted = self._written if position is None else position
        while True:
            for start, end, why in self._void:
                if start < wanted <= end:
                    raise JournalRefused(str(why), full=why.full)
            if wanted <= self.end:
                return
            await self._committed.wait()

    async def run_commits(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit until cancelled; then once more what is pending."""
        task_status.started()
        try:
            while True:
                await self._work.wait()
                self._work = trio.Event()
                while self._pending:
                    await self._commit_once()
                if self._refusal is not None:
                    await self._resume()
        finally:
            with trio.CancelScope(shield=True):
                while self._pending and self._refusal is None:
                    await self._commit_once()

    async def _commit_once(self) -> None:
        batch: list[Pending] = []
        size = 0
        while self._pending and (not batch or size + len(self._pending[0].body) <= self._config.commit_bytes_max):
            batch.append(self._pending.popleft())
            size += len(batch[-1].body)
        began_s = self._clock.mono_s()
        try:
            # Once taken from the queue a batch is seen through: a stop in between would drop it unheard.
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._commit_in_thread, batch, limiter=self._write_limiter)
        except JournalRefused as error:
            self._refuse(error, first_seq=batch[0].seq)
            return
        assert self._writer.segment is not None
        if self._segments[-1] is not self._writer.segment:
            self._segments.append(self._writer.segment)
        for frame in batch:
            self._pending_bytes -= frame.end - frame.start
            self._cursors[Lane(frame.kind)].last_end = frame.end
        self.end = batch[-1].end
        ms = (self._clock.mono_s() - began_s) * 1000
        self._commits += 1
        self._frames += len(batch)
        self._commit_ms_last, self._commit_ms_max = ms, max(ms, self._commit_ms_max)
        self._commit_ms_total += ms
        self._ring()

    def _commit_in_thread(self, batch: list[Pending]) -> None:
        segment = self._writer.segment
        assert segment is not None
        if segment.end - segment.first >= self._config.segment_bytes:
            self._writer.begin(
                first=segment.end, previous_end=segment.end, first_seq=batch[0].seq, at_ms=batch[0].at_ms
            )
        self._writer.commit(batch)

    def _refuse(self, error: JournalRefused, *, first_seq: int) -> None:
        """All that is not on disk is refused: its positions become void and are never given out again."""
        self._log.error("journal.refusing", error=str(error), full=error.full, frames=len(self._pending))
        self._refusal = error
        if self._written > self.end:
            self._void.append((self.end, self._written, error))
        self._next_seq = first_seq
        self._pending.clear()
        self._pending_bytes = 0
        self._ring()

    async def _resume(self) -> None:
        """A new segment, as soon as the disk gives one."""
        while True:
            try:
                await trio.to_thread.run_sync(self._begin_in_thread, limiter=self._write_limiter)
            except JournalRefused as error:
                self._refusal = error
                await trio.sleep(RESUME_EVERY_S)
            else:
                break
        assert self._writer.segment is not None
        self._segments = [s for s in self._segments if s.path != self._writer.segment.path]
        self._segments.append(self._writer.segment)
        self.end = self._written
        self._refusal = None
        self._log.warning("journal.resumed", segment=self._writer.segment.path.name)
        self._ring()

    def _begin_in_thread(self) -> None:
        self._writer.begin(first=self._written, previous_end=self.end, first_seq=self._next_seq, at_ms=self._last_at_ms)

    def _ring(self) -> None:
        self._committed.set()
        self._committed = trio.Event()

    # ------------------------------------------------------------ reading

    @property
    def start(self) -> int:
        """The oldest position that is still here."""
        return self._segments[0].first

    def read_point(self, lane: Lane) -> int:
        """Up to where the lane was read and rsync'd."""
        return self._cursors[lane].read_point

    def read_reserve(self, lane: Lane, records_max: int, bytes_max: int = 4 * MIB) -> Reservation | None:
        """Reserve what is durable and unread, or None. No I/O. One reservation per lane at a time."""
        return self._cursors[lane].reserve(
            self.end, records_max, bytes_max, self._config.reserve_timeout_s, self._clock
        )

    async def read(self, token: Reservation) -> list[Slice]:
        """The reserved records, every checksum verified; lowers token.end to what was given. May be empty."""
        segments = list(self._segments)
        return await trio.to_thread.run_sync(
            self._readers[token.lane].read, token, segments, limiter=self._read_limiter
        )

    def read_cancel(self, token: Reservation) -> None:
        """Give the range back, whether or not it was read."""
        self._cursors[token.lane].cancel(token)

    def rsync(self, token: Reservation) -> None:
        """What was read is in the store: the lane goes on behind it. RuntimeError when it was given back before."""
        self._cursors[token.lane].finish(token)

    def seek(self, lane: Lane, position: int) -> None:
        """The store remembers another position: read on from there, or from the oldest we have.

        Raises JournalDamaged when it lies past our end.
        """
        if position > self.end:
            raise JournalDamaged(
                f"the store has applied position {position} of journal {self.journal_id}, but its directory "
                f"{self._config.directory} ends at {self.end}: it was restored from an older copy. Move the directory "
                "away to start a new journal; what it holds was applied already"
            )
        if position < self.start:
            self._log.warning("journal.seek_before_start", lane=lane.name, wanted=position, start=self.start)
        self._cursors[lane].seek(max(position, self.start))

    async def wait_readable(self, lane: Lane) -> None:
        """Return when `read_reserve` may give something."""
        cursor = self._cursors[lane]
        while min(cursor.last_end, self.end) <= cursor.read_point:
            cursor.read_point = max(cursor.read_point, self.end)
            await self._committed.wait()

    # ------------------------------------------------------------ space

    def trim(self, position: int) -> int:
        """Delete the oldest segments that end at or before `position` and are past retention; returns bytes freed."""
        freed = 0
        total = self._bytes()
        while len(self._segments) > 1 and self._segments[0].end <= position:
            oldest, following = self._segments[0], self._segments[1]
            age_s = (self._clock.wall_ms() - following.header.created_at_ms) / 1000
            if age_s < self._config.retention_s and total - freed <= self._config.retention_bytes:
                break
            try:
                self._files.unlink(oldest.path)
            except OSError as error:
                self._log.error("journal.trim_failed", segment=oldest.path.name, error=str(error))
                break
            freed += oldest.end - oldest.first
            del self._segments[0]
        return freed

    def _bytes(self) -> int:
        return sum(segment.end - segment.first for segment in self._segments)

    def stats(self) -> JournalStats:
        """A snapshot."""
        commits = max(1, self._commits)
        read_damage = [sentence for reader in self._readers.values() for sentence in reader.damaged]
        return JournalStats(
            journal_id=self.journal_id,
            bytes=self._bytes(),
            segments=len(self._segments),
            written=self._written,
            synced=self.end,
            pending_bytes=self._pending_bytes,
            commits=self._commits,
            commit_ms_last=self._commit_ms_last,
            commit_ms_max=self._commit_ms_max,
            commit_ms_mean=self._commit_ms_total / commits,
            frames_per_commit_mean=self._frames / commits,
            refusing=self.refusing,
            damaged=self._damaged + read_damage,
        )

    def close(self) -> None:
        """Let go of every file."""
        for reader in self._readers.values():
            reader.close()
        self._writer.close()


@asynccontextmanager
async def open_journal(
    config: JournalConfig,
    *,
    clock: Clock,
    files: Files | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> AsyncIterator[Journal]:
    """Lock the directory, recover what an earlier life left, open a new segment, commit until the block ends.

    Raises JournalLocked, JournalVersion, JournalRefused (the disk gives no new segment), OSError.
    """
    disk = files or OsFiles()
    disk.make_directory(config.directory)
    lock = disk.lock(config.directory / "lock")
    try:
        found = await trio.to_thread.run_sync(recover, disk, config.directory)
        if found.journal_id is None:
            found.journal_id = random_bytes(16)
        writer = Writer(disk, config.directory, found.journal_id, random_bytes=random_bytes)
        if found.segments and found.segments[-1].end == found.segments[-1].first:
            disk.unlink(found.segments.pop().path)  # an earlier life took nothing
        writer.begin(
            first=found.end,
            previous_end=found.end,
            first_seq=found.next_seq,
            at_ms=max(clock.wall_ms(), found.last_at_ms),
        )
        salt = int.from_bytes(random_bytes(3), "big") & (1 << SALT_BITS) - 1
        journal = Journal(config, clock, disk, writer, found, salt)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(journal.run_commits)
                yield journal
                nursery.cancel_scope.cancel()
        finally:
            journal.close()
    finally:
        disk.close(lock)
