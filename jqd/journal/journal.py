"""The local durable log: every acknowledged record is written here first, and read back exactly.

    write ──▶ pending frames ──▶ one commit: write + sync ──▶ durable ──▶ read_reserve / read / rsync, per lane

`write` is cheap and not durable; `wsync` returns once what was written is on disk. One commit serves all waiters, and
while it runs frames gather for the next. Readers (one for each partition of the store) are numbered from 0. Each has a
read point in every lane: the store has all records before it.
"""

import errno
import itertools
import math
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import trio

from jqd.domain.clock import Clock
from jqd.domain.errors import JournalDamaged, JournalRefused, JournalStuck
from jqd.domain.record import CARRIED, Lane
from jqd.journal.commit import Commits
from jqd.journal.config import MIB, JournalConfig
from jqd.journal.files import Files
from jqd.journal.frame import HEAD_BYTES
from jqd.journal.reader import Reader, Reservation, Slice
from jqd.journal.recover import Recovered, Retired, write_retired
from jqd.journal.segment import Segment
from jqd.journal.writer import FULL, Writer

AHEAD_S = 600  # if the newest record is dated so far ahead of our clock, one of the clocks is wrong: warn
RANGE_RECORDS = 10_000  # records that `read_range` yields at once: some milliseconds of decoding
RANGE_S = 5.0  # `read_range` gives up after so many seconds of errors of the disk: its caller has more to do


@dataclass(frozen=True, slots=True)
class JournalStats:
    """Figures of the journal at one moment, for health, metrics and `jqd status`."""

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
    bytes_per_commit_mean: float
    refusals: int
    refusing: str | None
    damaged: list[str] = field(default_factory=list)
    """One sentence for each unreadable place; health is degraded while there is any."""


class Journal(Commits):
    """The journal of a daemon. Only `open_journal` (opening.py) makes it."""

    def __init__(
        self, config: JournalConfig, clock: Clock, files: Files, writer: Writer, found: Recovered, salt: int
    ) -> None:
        super().__init__(config, clock, files, writer, found, salt)
        self.opened_at = found.end
        """Position at which this process began: earlier processes wrote the frames before it."""
        self._opened_s, self._opened_ms = clock.boot_s(), clock.wall_ms()
        self.unsure_to = found.end
        """Position before which changes may not be confirmed by any store."""
        ahead_s = (found.last_at_ms - self._opened_ms) // 1000
        if ahead_s > AHEAD_S:
            self._log.warning("journal.ids_ahead", seconds=ahead_s)
        self.is_new = found.is_new
        """Whether this process created the journal, so that no store can hold any of its records yet."""
        self._retired = found.retired
        self._damaged = found.damaged
        self._unreadable: dict[Lane, str] = {}
        self._read_points: dict[tuple[Lane, int], int] = {}
        self._readers: dict[tuple[Lane, int], Reader] = {}
        self._read_limiter = trio.CapacityLimiter(1)  # one thread for `read_range`, and one more for each reader

    # ------------------------------------------------------------ reading

    @property
    def start(self) -> int:
        """Return the position of the oldest frame that is kept."""
        return next((segment.first for segment in self.segments), self.end)

    @property
    def retired(self) -> int:
        """Return the position before which jobs are never read again, as they ended or were copied to later
        positions."""
        return self._retired.position

    @property
    def others_s(self) -> float:
        """Return for how many seconds after retention outcomes and cancels are kept for a daemon that does not
        report."""
        return self._config.others_s

    def oldest(self, lane: Lane) -> int:
        """Return the position of the oldest records of the lane that are still read."""
        return max(self.start, self.retired) if lane in CARRIED else self.start

    def read_point(self, lane: Lane, reader: int = 0) -> int:
        """Return the position before which the store has all records of the lane. `reader`: which of the journal's
        readers is meant; there is one for each partition of the store."""
        point = self._read_points.get((lane, reader))
        point = self.reached(lane, self.oldest(lane) if point is None else point)
        self._read_points[lane, reader] = point
        return point

    def read_reserve(
        self, lane: Lane, records_max: int, bytes_max: int = 4 * MIB, *, start: int | None = None, reader: int = 0
    ) -> Reservation | None:
        """Reserve durable records from `start`, or from the read point; None when the lane has none there. No I/O.

        `read` returns at most `records_max` records, and no further frame once `bytes_max` bytes are reached. No
        reservation reaches across `retired`: outcomes before it are applied without their followers."""
        start = self.read_point(lane, reader) if start is None else start
        if start >= self.last_end[lane]:
            return None
        end = self.retired if start < self.retired else self.end
        return Reservation(lane, start, end, records_max, bytes_max, reader)

    async def read(self, token: Reservation) -> list[Slice]:
        """Return the reserved records, perhaps none, with every checksum verified. Lowers token.end to where they end.

        Reports damage in `stats` and skips it. If the disk cannot be read, reports that, and tries again until it can.
        """
        if (slices := self._tails[token.lane].read(token)) is not None:
            await trio.lowlevel.checkpoint()
            return slices
        if (reader := self._readers.get((token.lane, token.reader))) is None:
            reader = self._readers[token.lane, token.reader] = Reader(self._files)
            self._read_limiter.total_tokens += 1
        return await self._read(reader, token)

    async def read_range(self, lane: Lane, start: int, end: int) -> AsyncGenerator[list[Slice], None]:
        """Yield a lane's durable records between the positions `start` and `end`, some MiB at a time. Reports damage in
        `stats` and skips it. Raises JournalStuck if the disk cannot be read for RANGE_S."""
        reader = Reader(self._files)
        position, end = max(start, self.start), min(end, self.end)
        try:
            while position < end:
                token = Reservation(lane, position, end, RANGE_RECORDS, 4 * MIB)
                if slices := await self._read(reader, token, RANGE_S):
                    yield slices
                position = token.end
        finally:
            reader.close()
            self._damaged += [place for place in reader.damaged if place not in self._damaged]

    async def _read(self, reader: Reader, token: Reservation, tries_s: float = math.inf) -> list[Slice]:
        until_s = trio.current_time() + tries_s
        while True:
            segments = list(self.segments)
            try:
                slices = await trio.to_thread.run_sync(reader.read, token, segments, limiter=self._read_limiter)
            except OSError as error:
                why = self._note_unreadable(token.lane, error)
                if trio.current_time() >= until_s:
                    raise JournalStuck(why) from error
                await trio.sleep(self._config.retry_s)
            else:
                self._unreadable.pop(token.lane, None)
                return slices

    def _note_unreadable(self, lane: Lane, error: OSError) -> str:
        name = errno.errorcode.get(error.errno or 0, "unknown")
        sentence = (
            f"lane {lane.name.lower()} cannot be read in {self._config.directory}: {error} ({name}). "
            "Nothing is passed over; it goes on when the disk does"
        )
        if self._unreadable.get(lane) != sentence:
            self._log.error("journal.unreadable", why=sentence)
        self._unreadable[lane] = sentence
        return sentence

    def rsync(self, lane: Lane, position: int, reader: int = 0) -> None:
        """Note that the store has all records of the lane before `position`."""
        self._read_points[lane, reader] = max(position, self.read_point(lane, reader))

    def read_cancel(self, lane: Lane, position: int, reader: int = 0) -> None:
        """Move a reader's read point back to `position`, or to the oldest kept record: the store lacks the records
        behind it.

        Raises JournalDamaged when `position` lies past the journal's end."""
        if position > self.end:
            raise JournalDamaged(
                f"the store has applied position {position} of journal {self.journal_id}, but its directory "
                f"{self._config.directory} ends at {self.end}: it was restored from an older copy"
            )
        oldest = self.oldest(lane)
        if position < oldest:
            self._log.warning("journal.seek_before_start", lane=lane.name, wanted=position, start=oldest)
        self._read_points[lane, reader] = max(position, oldest)

    def place_of(self, position: int) -> str:
        """Return a position as file and byte, for people."""
        for segment in self.segments:
            if segment.first <= position < segment.end:
                return f"{segment.path.name}, byte {HEAD_BYTES + position - segment.first} (position {position})"
        return f"position {position}"

    def reached(self, lane: Lane, position: int) -> int:
        """Return `position`; or the journal's end, if no frame of the lane lies behind `position`."""
        return self.end if position >= self.last_end[lane] else position

    def is_behind(self, lane: Lane, reader: int = 0) -> bool:
        """Whether the lane has durable records that the store is not known to have (`rsync`)."""
        return self.read_point(lane, reader) < self.last_end[lane]

    async def wait_readable(self, lane: Lane, reader: int = 0) -> None:
        """Wait until `read_reserve` may return something."""
        while not self.is_behind(lane, reader):
            await self._arrived[lane].wait()

    # ------------------------------------------------------------ space

    def keep(self, config: JournalConfig) -> None:
        """Apply new retention settings."""
        self._config = config

    def retirable(self, position: int) -> int:
        """Return the position before which all jobs may be retired, as they are past retention: the end of a segment,
        not after `position` and at least `retired`.

        The open segment counts, too, if it is old and wholly before `position`: if no more frames come, it is never
        closed, and would keep its jobs for ever."""
        config = self._config
        retirable, left = self.retired, sum(segment.size for segment in self.segments if segment.end > self.retired)
        for segment, following in itertools.pairwise(self.segments):
            if segment.end <= retirable:
                continue
            age_s = self._age_s(following)
            if segment.end > position or (age_s < config.retention_s and left <= config.retention_bytes):
                return retirable
            retirable, left = segment.end, left - segment.size
        opened = self.segments[-1:]
        age_s = self._age_s(opened[0]) if opened else 0.0
        # A frame must not be retired in part, so the open segment is retired as a whole or not at all.
        whole = position >= self.end and age_s > max(config.retention_s, config.segment_age_s)
        return self.end if whole else retirable

    def overdue(self, position: int) -> int:
        """Return the end of the oldest closed segments that need no longer be kept for other daemons, not after
        `position`: they are too old, or take too many bytes."""
        config, overdue, left = self._config, self.start, self._bytes()
        for segment, following in itertools.pairwise(self.segments):
            too_old = self._age_s(following) >= config.retention_s + config.others_s
            if segment.end > position or not (too_old or left > config.retention_bytes + config.others_bytes):
                break
            overdue, left = segment.end, left - segment.size
        return overdue

    def _age_s(self, segment: Segment) -> float:
        """Return the age of a segment in seconds. It does not depend on changes of the wall clock while the daemon
        runs."""
        now_s = self._clock.boot_s()
        if segment.begun_s is not None:
            return now_s - segment.begun_s
        return now_s - self._opened_s + max(0, self._opened_ms - segment.header.created_at_ms) / 1000

    def opened_by(self, now_ms: int) -> None:
        """Correct the time at which the journal was opened by a clock that says `now_ms`, if that makes it earlier.

        A wall clock that was ahead at the start would make all segments of earlier processes look old."""
        since_ms = round((self._clock.boot_s() - self._opened_s) * 1000)
        self._opened_ms = min(self._opened_ms, now_ms - since_ms)

    def closed(self, position: int) -> int:
        """Return the end of the last closed segment that ends at or before `position`; the journal's start if none
        does."""
        return max((segment.end for segment in self.segments[:-1] if segment.end <= position), default=self.start)

    async def retire(self, position: int) -> None:
        """Save durably that jobs before `position` are never read again. Raises JournalRefused."""
        assert self.retired <= position <= self.end, f"{position} is retired already, or was never on disk"
        retired = Retired(position, self.end)
        try:
            await trio.to_thread.run_sync(write_retired, self._files, self._config.directory, retired)
        except OSError as error:
            why = f"it cannot be written down in {self._config.directory} which jobs have ended: {error}"
            raise JournalRefused(why, full=error.errno in FULL) from error
        self._retired = retired

    def trim(self, position: int) -> int:
        """Delete the oldest closed segments that end at or before `position`, in the background.

        Returns the bytes of their frames.
        """
        segments = self.segments
        freed = 0
        doomed: list[Segment] = []
        while len(segments) > 1 and segments[0].end <= position:
            freed += segments[0].size
            doomed.append(segments.pop(0))
        if doomed:
            self.delete(doomed)
        return freed

    def _bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def stats(self) -> JournalStats:
        figures = self.figures
        commits = max(1, figures.commits)
        damaged = [*self._damaged, *self._unreadable.values()]
        for reader in self._readers.values():
            damaged += reader.damaged
        return JournalStats(
            journal_id=self.journal_id,
            bytes=self._bytes(),
            segments=len(self.segments),
            written=self.written,
            synced=self.end,
            pending_bytes=self.pending_bytes,
            commits=figures.commits,
            commit_ms_last=figures.ms_last,
            commit_ms_max=figures.ms_max,
            commit_ms_mean=figures.ms_total / commits,
            frames_per_commit_mean=figures.frames / commits,
            bytes_per_commit_mean=figures.bytes / commits,
            refusals=figures.refusals,
            refusing=self.refusing,
            damaged=damaged,
        )

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
