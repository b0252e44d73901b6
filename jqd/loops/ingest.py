"""Journal → store: one task per lane reads durable records, applies them, and only then advances the lane's read point.

The position that counts lives in the store: every `apply` names its start and end, and the store refuses any start but
its own position. So a lost reply, a crash between apply and rsync, and a store that came back older are one case:
`PositionMismatch` names the position to go on from. A position that we did not bring about, or a range that was applied
before we sent it, means that another copy of this journal was in use: it still runs, or this directory is an older copy
(`JournalForked`). Two copies go unnoticed: one whose call ends where a call of ours with a lost answer ends, and one
that ran between two starts of ours while records of the first were not applied (these may be lost).

    store position ──▶ ├── chunk ──┤── chunk ──┤        a chunk: ≤ 500 records, ≤ 1 MiB, one call of the store
    journal            ├─ frame ─┤─ frame ─┤─ frame ─┤  record k of a frame has position frame start + k

With a backlog, up to FLIGHTS_MAX chunks are in flight, applied in order. New records gather until all are answered.
After a call that was not full they gather for `gather_s` more.
"""

import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import trio

from jqd.domain.errors import JournalForked, JournalStuck, PositionMismatch, StoreAway, StoreError, StoreRefused
from jqd.domain.log import get_logger
from jqd.domain.record import WITH_JOBS, Lane
from jqd.journal import Journal
from jqd.loops.backoff import LoopBackoff
from jqd.loops.lane_records import CHUNK_RECORDS, Chunk, LaneFrames, chunks
from jqd.store import Store

RESERVE_RECORDS = 4_000  # records read at once: some 20 ms of decoding, eight calls of the store
FLIGHTS_MAX = 3  # chunks unanswered: one being applied, one queued there, one on its way
IDLE_TURNS = 20  # rounds without progress: a few are ordinary when the store changed, or answers crossed
IDLE_S = 0.5  # pause in each further round, so that the loop does not take a whole core; `progress` reports it
SKIP_BYTES = 16 << 20  # a quiet lane advances its position in the store this often: a restart re-reads no more

Record = TypeVar("Record")


@dataclass(slots=True, eq=False)
class Flight(Generic[Record]):
    """A chunk that was sent to the store, until it is known to be applied."""

    start: int
    end: int
    records: list[Record]
    """Empty: the lane has no records to apply up to `end`."""
    gone: bool = False
    """Whether the records up to `end` were deleted from the journal."""
    error: StoreError | None = None
    is_done: bool = False
    """Whether the store has applied it."""
    answer: object = None
    """The store's answer; None also if the answer was lost."""


class LaneRules(NamedTuple, Generic[Record]):
    """How the records of one lane are applied."""

    apply: Callable[[str, int, int, Sequence[Record]], Awaitable[object]]
    """The store's method that applies records: (journal id, start, end, records)."""
    size_bytes: Callable[[Record], int]
    """Returns how many bytes of a chunk a record counts for."""
    applied: Callable[[Sequence[Record], Any], object]
    """Called after the store applied records, with the answer of `apply`, if known."""
    mine: Callable[[Record], bool] | None = None
    """Returns whether a record belongs to this partition; None: all do. Other records are read and skipped."""
    is_new: Callable[[Any], bool] = lambda answer: answer is not None
    """Returns, from an answer of `apply`, whether this call applied the records; if not, an earlier call did."""
    is_alone: Callable[[Record], bool] | None = None
    """Returns whether a record takes several calls of the store. Then the next chunk waits until it is applied, so as
    not to overtake it."""
    gather_s: float = 0.0
    """How long (s) records gather after a call that was not full. A call costs the event loop as much as 40 records: to
    apply each of 1,000 single pushes a second at once would cost as much as the pushes do."""


class Ingest(Generic[Record]):
    def __init__(
        self,
        lane: Lane,
        settings: LaneRules[Record],
        *,
        journal: Journal,
        store: Store,
        source: random.Random,
        rolled_back: Callable[[], None] = lambda: None,
        reader: int = 0,
    ) -> None:
        """`rolled_back`: called when the store's position lies before one that it had confirmed.

        `reader`: the number of the journal's reader, one for each partition.
        """
        self.lane = lane
        self.backoff = LoopBackoff("ingest", source=source)
        self._settings, self._journal, self._store = settings, journal, store
        self._rolled_back, self.reader = rolled_back, reader
        self._frames = LaneFrames[Record](lane, journal)
        self._log = get_logger("ingest")
        self._position: int | None = None  # what the store has applied; None until it answered
        self._recheck = True  # the store is to be asked for its position before anything else
        self._rechecks = 0
        self._known_end = journal.opened_at  # only our calls, or a copy of this journal, can have applied more
        self._unsure = set[int]()  # ends beyond `_known_end`, of calls whose answers were lost
        # Chunks sent and not known to be applied, in order. After a lost answer they are sent again unchanged, before
        # all else: only then does the store recognise the repeat.
        self._flights: deque[Flight[Record]] = deque()
        self._due_s = -math.inf  # until when the next records gather
        self._gathering = trio.CancelScope()
        self._read_end = 0  # up to where the lane was read and sent
        self._pass_to = 0  # the position that `wait_skipped` wants the store to have
        self._moved = trio.Event()
        self._waiting = trio.CancelScope()
        self._free = trio.Event()
        self._free.set()

    @property
    def mine(self) -> Callable[[Record], bool] | None:
        """The function that returns whether a record belongs to this partition; None: all records do."""
        return self._settings.mine

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Apply the records of this lane until cancelled, also after the store was away or lost data.

        Raises JournalForked when the store has a position of this journal that we never sent."""
        task_status.started()
        idle_turns, mark = 0, self._mark
        while True:
            idle_turns, mark = 0 if self._mark != mark else idle_turns + 1, self._mark
            if idle_turns > IDLE_TURNS:
                await trio.sleep(IDLE_S)
            try:
                while self._recheck:
                    await self._find_position()  # once more when `recheck` was called meanwhile
                if not self._free.is_set():
                    with trio.CancelScope() as self._waiting:
                        await self._free.wait()
                    continue
                await self._step()
            except PositionMismatch as mismatch:
                self._go_to(mismatch.stored)
            except (StoreAway, StoreRefused, JournalStuck) as error:
                await self.backoff.wait_after_failure(error)

    @property
    def is_behind(self) -> bool:
        """Whether the lane has durable records that the store is not known to have applied."""
        return bool(self._flights) or self._journal.is_behind(self.lane, self.reader)

    @property
    def _mark(self) -> tuple[int | None, int]:
        """A value that changes whenever the lane makes progress."""
        return self._position, self._journal.read_point(self.lane, self.reader)

    @property
    def position(self) -> int | None:
        """The position up to which the store has applied this lane; None while that is not known."""
        return None if self._recheck else self._position

    @property
    def done(self) -> int | None:
        """The position before which no record waits to be applied; None: unknown. It lies beyond `position` if the lane
        has no records in between."""
        return None if self.position is None else max(self.position, self._journal.read_point(self.lane, self.reader))

    @property
    def last_position(self) -> int | None:
        """Up to where the store had applied this lane by its last answer, even if it may have lost records since."""
        return self._position

    def recheck(self) -> None:
        """Ask the store for its position before anything else is sent, because it may have lost data."""
        self._recheck = True
        self._rechecks += 1
        self._waiting.cancel()

    def pause(self) -> None:
        """Apply nothing until `resume` is called."""
        if self._free.is_set():
            self._free = trio.Event()

    def resume(self) -> None:
        self._free.set()

    async def wait_applied(self, position: int) -> None:
        while self.position is None or self.position < position:
            await self._moved.wait()

    async def wait_caught_up(self, position: int) -> None:
        """Wait until the store has all records of this lane before `position`."""
        while self.done is None or self.done < position:
            self._due_s = -math.inf  # do not gather while a caller waits
            self._gathering.cancel()
            await self._moved.wait()

    async def wait_skipped(self, position: int) -> None:
        """Wait until the store's position is at least `position`. It gets there even if the lane has no records."""
        self._pass_to = max(self._pass_to, position)
        if not self._flights:
            self._waiting.cancel()
        await self.wait_applied(position)

    async def _find_position(self) -> None:
        asked = self._rechecks
        applied = await self._store.applied(self._journal.journal_id)
        self.backoff.succeeded()
        # If `recheck` was called meanwhile, this answer may be of the previous life of the store.
        self._recheck = asked != self._rechecks
        self._go_to(applied[self.lane])

    def _go_to(self, position: int) -> None:
        self._expect_ours(position)
        if self._position is not None and position < self._position:
            self._log.warning("ingest.rolled_back", lane=self.lane.name, ours=self._position, stored=position)
            self._rolled_back()
        while self._flights and self._flights[0].end <= position:
            self._pop()  # applied, although the answer was lost
        if self._flights and self._flights[0].start != position:
            # They begin elsewhere than at the store's position: sent again they would skip the records between.
            self._flights.clear()
        self._seek(position)
        self._advance(position)

    def _expect_ours(self, position: int) -> None:
        if position > self._known_end and position not in self._unsure:
            raise JournalForked(
                f"the store has applied lane {self.lane.name.lower()} of journal {self._journal.journal_id} up to "
                f"{position}, but from here only up to {self._known_end}: this directory is an older copy, "
                "or another copy of it is in use"
            )

    async def _step(self) -> None:
        """Send unanswered calls again; if there are none, read and send further records. Then wait for all answers."""
        again, whole, stuck = list(self._flights), False, None
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as self._waiting:
                for flight in again:
                    if not self._stopped:
                        await self._send(nursery, flight)
                try:
                    whole = not again and await self._read_on(nursery)
                except JournalStuck as error:
                    stuck = error  # raised below, outside the nursery, when what was sent before it is answered
        assert self._position is not None
        if not whole or self._flights:
            # Read again from the store's position.
            self._seek(self._position)
        if self._flights and not self._stopped:
            failed = self._flights[0].error
            assert failed is not None, "a call that is over was answered or failed"
            raise failed
        if stuck is not None:
            raise stuck

    async def _read_on(self, nursery: trio.Nursery) -> bool:
        """Send durable records to the store, or wait until there are some. Returns whether all were sent."""
        at: int | None = None
        if trio.current_time() < self._due_s:
            with trio.CancelScope(deadline=self._due_s) as self._gathering:
                await trio.sleep_forever()
        while (
            token := self._journal.read_reserve(self.lane, RESERVE_RECORDS, start=at, reader=self.reader)
        ) is not None:
            durable = token.end
            if not await self._skip_deleted(nursery):
                return False
            slices = await self._journal.read(token)
            if self.backoff.stuck:
                self.backoff.succeeded()
            await self._frames.open(slices)
            for chunk in chunks(slices, self._frames.records, self._settings.size_bytes, self._settings.mine):
                if not await self._send_behind(nursery, chunk):
                    return False
            if token.end - self._end >= SKIP_BYTES and not await self._send_behind(nursery, Chunk(token.end, [])):
                return False
            at = self._read_end = token.end
            self._rsync()
            if at == durable:
                return True
        if at is None:
            self._notify()  # all that is durable was read
            done = self._journal.read_point(self.lane, self.reader)
            if self._end < self._pass_to <= done:
                return await self._send_behind(nursery, Chunk(done, []))
            if not self._stopped:  # else `recheck` or `pause` came during the read, and nobody would wake us
                await self._journal.wait_readable(self.lane, self.reader)
        return True

    @property
    def _stopped(self) -> bool:
        return self._recheck or not self._free.is_set()

    @property
    def _end(self) -> int:
        """The position up to which all records were sent."""
        assert self._position is not None
        return self._flights[-1].end if self._flights else self._position

    async def _skip_deleted(self, nursery: trio.Nursery) -> bool:
        """Advance the store's position past the deleted part of the journal, if it lies there. Then the store takes
        copies of jobs from there as new jobs. Returns False if that is due and the lane has to stop before."""
        oldest = self._journal.oldest(self.lane)
        if self.lane not in WITH_JOBS or self._end >= oldest:
            return True
        return await self._send_behind(nursery, Chunk(oldest, []), gone=True)

    async def _send_behind(self, nursery: trio.Nursery, chunk: Chunk[Record], *, gone: bool = False) -> bool:
        """Send the chunk once fewer than FLIGHTS_MAX calls are in flight. Returns False if the lane has to stop
        before."""
        while len(self._flights) >= FLIGHTS_MAX:
            await self._moved.wait()
        if self._stopped:
            return False
        self._flights.append(flight := Flight(self._end, chunk.end, chunk.records, gone))
        if self._settings.gather_s and len(chunk.records) < CHUNK_RECORDS:
            self._due_s = trio.current_time() + self._settings.gather_s
        await self._send(nursery, flight)
        return True

    async def _send(self, nursery: trio.Nursery, flight: Flight[Record]) -> None:
        flight.error = None
        nursery.start_soon(self._send_flight, flight)
        await trio.lowlevel.checkpoint()  # so that it is sent before the next
        if (is_alone := self._settings.is_alone) is not None and any(map(is_alone, flight.records)):
            while not flight.is_done and flight.error is None:
                await self._moved.wait()

    async def _send_flight(self, flight: Flight[Record]) -> None:
        try:
            is_new = await self._apply(flight)
        except StoreError as error:
            flight.error = error
            if not isinstance(error, PositionMismatch):
                self._unsure.add(flight.end)
            if any(each.is_done for each in islice(self._flights, self._flights.index(flight), None)):
                self._drop_done()
                return
            if isinstance(error, PositionMismatch) and flight is not self._flights[0]:
                self._recheck = True  # an earlier call may have been applied after this answer
            self._waiting.cancel()
        else:
            if not is_new:
                self._expect_ours(flight.end)
            self.backoff.succeeded()
            flight.is_done = True
            self._drop_done()

    def _drop_done(self) -> None:
        """Drop applied calls from the front, up to the first unanswered one. The store applies calls in order: if a
        later call is done, an earlier one that failed was applied, too, and only its answer was lost."""
        while (flights := self._flights) and (
            flights[0].is_done or (flights[0].error is not None and any(each.is_done for each in flights))
        ):
            self._pop()

    async def _apply(self, flight: Flight[Record]) -> bool:
        """Apply the chunk of a flight; return whether this call moved the store's position."""
        journal_id, start, end = self._journal.journal_id, flight.start, flight.end
        if not flight.records:
            return await self._store.skip(journal_id, self.lane, start, end, gone=flight.gone) is not None
        flight.answer = await self._settings.apply(journal_id, start, end, flight.records)
        return self._settings.is_new(flight.answer)

    def _pop(self) -> None:
        flight = self._flights.popleft()
        self._advance(flight.end)
        if flight.records:
            self._settings.applied(flight.records, flight.answer)
            self._log.debug("ingest.batch", lane=self.lane.name.lower(), count=len(flight.records))

    def _seek(self, position: int) -> None:
        self._read_end = position
        self._journal.read_cancel(self.lane, position, self.reader)

    def _advance(self, position: int) -> None:
        self._position = position
        self._known_end = max(self._known_end, position)
        if self._unsure:
            self._unsure = {end for end in self._unsure if end > self._known_end}
        self._rsync()
        self._notify()

    def _rsync(self) -> None:
        """Advance the read point to the store's position, or to the end of what was read if no call is in flight."""
        assert self._position is not None
        done = self._position if self._flights else max(self._position, self._read_end)
        self._journal.rsync(self.lane, done, self.reader)

    def _notify(self) -> None:
        self._moved.set()
        self._moved = trio.Event()
