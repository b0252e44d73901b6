"""Group commit: one task brings written frames to disk.

    write ──▶ pending ──commit──▶ durable: waiters return
                 │        └─error─▶ void: waiters are refused ──▶ a new segment, tried until the disk gives one
                 └── until then, writes are refused

While one commit runs, frames gather for the next, so one sync serves all waiters. All disk calls are made in a thread.
The cost of a frame does not depend on the number of frames or segments.
"""

import errno
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import trio

from jqd.domain.clock import Clock
from jqd.domain.errors import JournalRefused
from jqd.domain.histogram import Histogram
from jqd.domain.jobid import IdSource, journal_number
from jqd.domain.log import get_logger
from jqd.domain.record import Lane
from jqd.journal.config import JournalConfig
from jqd.journal.files import Files
from jqd.journal.frame import FRAME_HEADER_BYTES
from jqd.journal.recover import Recovered
from jqd.journal.segment import Segment
from jqd.journal.tail import Tail
from jqd.journal.thread import WriterThread, stay
from jqd.journal.writer import Pending, Start, Writer

STALLED_S = 10.0  # a commit takes milliseconds; a disk that does not answer for so long gets no new work
COMMIT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # bounds of the histogram
VOIDS_MAX = 1_000  # refusals remembered for late waiters; they ask within seconds, refusals come twice a second


class Refusal(NamedTuple):
    """Why writes are refused. Kept without the error's traceback, which would hold the frames in memory."""

    why: str
    full: bool

    def error(self) -> JournalRefused:
        return JournalRefused(self.why, full=self.full)


class Void(NamedTuple):
    """Positions of frames that `write` accepted and the disk then refused: start < position <= end."""

    start: int
    end: int
    refusal: Refusal


@dataclass(slots=True)
class Figures:
    """Totals of the commits so far."""

    commits: int = 0
    frames: int = 0
    bytes: int = 0
    refusals: int = 0
    ms_last: float = 0.0
    ms_max: float = 0.0
    ms_total: float = 0.0
    seconds: Histogram = field(default_factory=lambda: Histogram(COMMIT_S))
    """How long the commits took, in seconds."""


class Commits:
    """The writing half of a journal. `wsync` returns only while `run` runs."""

    def __init__(
        self, config: JournalConfig, clock: Clock, files: Files, writer: Writer, found: Recovered, salt: int
    ) -> None:
        assert found.journal_id is not None
        self._files, self._writer, self._config, self._clock = files, writer, config, clock
        self.journal_id = found.journal_id.hex()
        self.ids = IdSource(journal=journal_number(self.journal_id), salt=salt, clock=clock, after_ms=found.last_at_ms)
        self.segments = found.segments
        """All segments, oldest first; also those of earlier processes."""
        self.end = self.written = found.end
        """`end`: position up to which everything is on disk. `written`: end of the last frame, durable or not."""
        self.last_end: dict[int, int] = dict.fromkeys(Lane, found.end)
        """End of each lane's last durable frame; at first an upper bound."""
        self._tails = {int(lane): Tail(found.end) for lane in Lane}
        self.pending_bytes = 0
        self.figures = Figures()
        self._accepted_end = found.accepted_end
        self._next_seq = found.next_seq
        self._last_at_ms = found.last_at_ms
        self._pending: deque[Pending] = deque()
        self._voids: deque[Void] = deque(maxlen=VOIDS_MAX)
        self._refusal: Refusal | None = None
        self._began_s: float | None = None  # monotonic: when the running commit began
        self._steady_since_s = -math.inf  # monotonic: when a refusal last ended
        self._rotate_after_s = -math.inf  # monotonic: until then no other try to replace a full segment
        self._to_delete: deque[Segment] = deque()
        self._work = trio.Event()
        self._moved = trio.Event()
        self._arrived = {int(lane): trio.Event() for lane in Lane}
        """Lane → an event that a commit sets if it has frames of the lane: most of 2,000 commits a second have none."""
        self._parked: list[tuple[int, trio.lowlevel.Task]] = []  # shielded waiters, and the position each waits for
        self._thread = WriterThread()
        self._log = get_logger("journal")

    @property
    def refusal(self) -> Refusal | None:
        """Return why a write would be refused now; None: writes are taken."""
        if self._refusal is None and self._began_s is not None:
            silent_s = self._clock.mono_s() - self._began_s
            if silent_s > STALLED_S:
                why = f"the disk has not answered for {silent_s:.0f} s; look at it, pushes resume with it"
                return Refusal(why, full=False)
        return self._refusal

    @property
    def refusing(self) -> str | None:
        """Return, as a text, why writes are refused now; None: they are taken."""
        return refusal.why if (refusal := self.refusal) else None

    @property
    def steady_s(self) -> float:
        """Return for how many seconds no write was refused: 0 while they are, infinite if none was since the start."""
        return 0.0 if self.refusal else self._clock.mono_s() - self._steady_since_s

    @property
    def refusing_full(self) -> bool:
        """Whether writes are refused because the disk is full."""
        return (refusal := self.refusal) is not None and refusal.full

    def write(self, lane: Lane, records: int, body: bytes) -> int:
        """Append one frame of `records` records; return the position after it. It is not durable before `wsync`.

        Makes no disk call and does not wait. Raises JournalRefused while the disk refuses, or too many bytes wait for
        it."""
        if not 1 <= records <= len(body):
            raise ValueError(
                f"a frame takes records and no more of them than bytes; got {records} in {len(body)} bytes"
            )
        if len(body) > self._config.frame_bytes_max:  # a frame that is copied may be older than the limit
            raise JournalRefused(
                f"{len(body)} bytes in one frame (limit {self._config.frame_bytes_max}): raise journal.frame_bytes_max",
                full=False,
            )
        if (refusal := self.refusal) is not None:
            raise refusal.error()
        size, bytes_max = FRAME_HEADER_BYTES + len(body), self._config.pending_bytes_max
        if lane is Lane.OUTCOMES:
            bytes_max += FRAME_HEADER_BYTES + self._config.frame_bytes_max
        if self.pending_bytes + size > bytes_max:
            raise JournalRefused(
                f"{self.pending_bytes} bytes wait for the disk already (limit {bytes_max}); "
                "nothing of this was accepted, try again in a moment",
                full=False,
            )
        # A frame is dated no earlier than any id given out: the next process dates its ids after the last frame.
        self._last_at_ms = max(self._clock.wall_ms(), self._last_at_ms, self.ids.last_ms)
        start, end = self.written, self.written + size
        self.written = end
        self._pending.append(Pending(start, end, self._next_seq, self._last_at_ms, lane, records, body))
        self._next_seq += 1
        self.pending_bytes += size
        self._work.set()
        return end

    async def wsync(self, position: int | None = None, *, since: int | None = None, shielded: bool = False) -> None:
        """Wait until the frame that ends at `position` (by default the last one) is on disk.

        `since`: to wait for several frames, the value of `written` before the first of them. It is needed because the
        journal goes on after a refusal: the last frame may be on disk and others not. Raises JournalRefused if the disk
        refused any of the frames: then none may be acknowledged. Cancelling ends the wait and nothing else. `shielded`:
        the wait cannot be cancelled, which makes a push a tenth faster than a cancel scope of the caller would."""
        position = self.written if position is None else position
        assert position <= self.written, f"position {position} was never given out; the last one is {self.written}"
        while True:
            if self._voids:
                self._expect_valid(position - 1 if since is None else since, position)
            if position <= self.end:
                return
            if shielded:
                self._parked.append((position, trio.lowlevel.current_task()))
                await trio.lowlevel.wait_task_rescheduled(stay)
            else:
                await self._moved.wait()

    def _expect_valid(self, since: int, position: int) -> None:
        """Raise JournalRefused if a frame between `since` and `position` was refused."""
        at = bisect_right(self._voids, since, key=lambda void: void.end)
        if at < len(self._voids) and self._voids[at].start < position:
            raise self._voids[at].refusal.error()

    def begin(self) -> None:
        """Make this process's first segment; if the disk refuses, writes are refused. Blocks: call it in a thread."""
        try:
            self._writer.begin(self._start())
            self._enlist()
        except JournalRefused as error:
            self._refusal = Refusal(str(error), error.full)

    def delete(self, segments: Iterable[Segment]) -> None:
        """Delete segments in the background."""
        self._to_delete.extend(segments)
        self._work.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Commit frames until cancelled; then commit the frames that still wait."""
        with self._thread:
            task_status.started()
            try:
                while True:
                    if self._refusal is not None:
                        await self._resume()
                    await self._work.wait()
                    self._work = trio.Event()
                    if self._config.commit_linger_ms:
                        await self._linger()
                    await self._commit_due()
            finally:
                try:
                    await self._commit_due()
                finally:
                    self._refusal = self._refusal or Refusal("the journal is closed", full=False)
                    if self.end < self.written:
                        self._voids.append(Void(self.end, self.written, self._refusal))
                    self._wake_waiters()  # shielded ones must wake, also after an internal error

    async def _linger(self) -> None:
        """Wait for more frames until they fill one commit, or the configured time is over."""
        with trio.move_on_after(self._config.commit_linger_ms / 1000):
            while self.pending_bytes < self._config.commit_bytes_max:
                await self._work.wait()
                self._work = trio.Event()

    async def _commit_due(self) -> None:
        while self._pending:
            await self._commit_once()
        if self._to_delete:
            await self._thread.run(self._delete_in_thread)

    # ------------------------------------------------------------ one commit

    async def _commit_once(self) -> None:
        batch = [self._pending.popleft()]
        while self._pending and self._pending[0].end - batch[0].start <= self._config.commit_bytes_max:
            batch.append(self._pending.popleft())
        self._began_s = self._clock.mono_s()
        try:
            # A batch taken from the queue is committed to its end: a stop in between would drop it silently.
            await self._thread.run(partial(self._commit_in_thread, batch))
        except JournalRefused as error:
            self._refuse(Refusal(str(error), error.full), first_seq=batch[0].seq)
        except BaseException:  # no memory, say: later frames must not be committed behind missing ones
            self._refuse(Refusal("a commit broke off by an internal error", full=False), first_seq=batch[0].seq)
            raise
        else:
            self._note_durable(batch, (self._clock.mono_s() - self._began_s) * 1000)
        self._began_s = None
        self._enlist()
        self._wake_waiters()

    def _commit_in_thread(self, batch: list[Pending]) -> None:
        segment = self._writer.segment
        assert segment is not None
        aged = segment.size and batch[0].at_ms - segment.header.created_at_ms >= self._config.segment_age_s * 1000
        is_full = aged or segment.size >= self._config.segment_bytes
        if is_full and self._clock.mono_s() >= self._rotate_after_s:
            try:
                self._writer.begin(Start(segment.end, segment.end, batch[0].seq, batch[0].at_ms))
            except JournalRefused:
                if not self._writer.is_open:
                    raise
                self._rotate_after_s = self._clock.mono_s() + self._config.retry_s  # not with each commit
        self._writer.commit(batch)

    def _note_durable(self, batch: list[Pending], ms: float) -> None:
        if ms > STALLED_S * 1000:
            self._steady_since_s = self._clock.mono_s()
        self.end = self._accepted_end = batch[-1].end
        size = self.end - batch[0].start
        self.pending_bytes -= size
        for frame in batch:
            self.last_end[frame.kind] = frame.end
            self._tails[frame.kind].add(frame)
        for kind in {frame.kind for frame in batch}:
            self._arrived[kind].set()
            self._arrived[kind] = trio.Event()
        figures = self.figures
        figures.commits += 1
        figures.frames += len(batch)
        figures.bytes += size
        figures.ms_last, figures.ms_max = ms, max(ms, figures.ms_max)
        figures.ms_total += ms
        figures.seconds.note(ms / 1000)

    def _refuse(self, refusal: Refusal, *, first_seq: int) -> None:
        """Refuse all frames that are not on disk: their positions become void and are never given out again."""
        self._log.error("journal.refusing", why=refusal.why, full=refusal.full, bytes=self.pending_bytes)
        self.figures.refusals += 1
        self._refusal = refusal
        self._voids.append(Void(self.end, self.written, refusal))
        self._next_seq = first_seq
        self._pending.clear()
        self.pending_bytes = 0

    # ------------------------------------------------------------ segments

    async def _resume(self) -> None:
        """Try to make a new segment until the disk allows it."""
        segment = self._writer.segment
        if segment is not None and segment.size:
            await self._try_segment()  # the disk took frames until now: perhaps only this file is bad
        while self._refusal is not None:
            await trio.sleep(self._config.retry_s)
            await self._commit_due()  # nothing is pending, but deleting segments may make room
            await self._try_segment()

    async def _try_segment(self) -> None:
        try:
            await self._thread.run(partial(self._writer.begin, self._start()))
        except JournalRefused as error:
            self._refusal = Refusal(str(error), error.full)
            return
        self._enlist()
        self.end = self.written
        self._refusal, self._steady_since_s = None, self._clock.mono_s()
        self._log.warning("journal.resumed", position=self.end)
        self._wake_waiters()

    def _start(self) -> Start:
        self._last_at_ms = max(self._last_at_ms, self._clock.wall_ms())
        return Start(self.written, self._accepted_end, self._next_seq, self._last_at_ms)

    def _enlist(self) -> None:
        """Append the writer's newest segment to `segments`; delete the segment before it if that has no frame."""
        newest = self._writer.segment
        assert newest is not None
        if self.segments and self.segments[-1] is newest:
            return
        if self.segments and not self.segments[-1].size:
            empty = self.segments.pop()
            assert empty.path != newest.path, "its positions were refused, so the next one begins behind them"
            self.delete([empty])
        newest.begun_s = self._clock.boot_s()
        self.segments.append(newest)

    def _delete_in_thread(self) -> None:
        """Delete segments, oldest first; sync each deletion: a crash must not leave a gap that looks like damage."""
        while self._to_delete:
            segment = self._to_delete[0]
            try:
                self._files.unlink(segment.path)
                self._files.sync_directory()
            except OSError as error:
                if error.errno != errno.ENOENT:
                    # Tried again with the next segment; until then the file only takes space.
                    self._log.error("journal.delete_failed", segment=segment.path.name, error=str(error))
                    return
            self._to_delete.popleft()

    def _wake_waiters(self) -> None:
        self._moved.set()
        self._moved = trio.Event()
        parked, self._parked = self._parked, []
        for position, task in parked:
            if position <= self.end or self._refusal is not None:
                trio.lowlevel.reschedule(task)
            else:
                self._parked.append((position, task))
