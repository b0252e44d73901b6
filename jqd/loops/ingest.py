"""Journal → store: one task per lane reads what is durable, applies it, and only then advances the read point.

The read point that counts lives in the store: every `apply` says from where to where it goes, and the store refuses
any other start. So a lost reply, a crash between apply and rsync, and a store that came back older than it was are
one case: `PositionMismatch` names the position to go on from. A position that is further than anything we ever sent
is somebody else's: another copy of this journal lives, or this directory is an older copy itself (`JournalForked`).

    store position ──▶ ├── chunk ──┤── chunk ──┤        a chunk: ≤ 500 records, ≤ 1 MiB, one script call
    journal            ├─ frame ─┤─ frame ─┤─ frame ─┤  record k of a frame has position frame start + k
"""

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import trio

from jqd.errors import JournalForked, PositionMismatch, StoreAway, StoreError, StoreRefused
from jqd.journal import Journal, Reservation, Slice
from jqd.log import get_logger
from jqd.loops.pace import Pace
from jqd.record import Lane
from jqd.store import Store

RESERVE_RECORDS = 4_000  # records read ahead: some 20 ms of decoding, eight script calls
CHUNK_RECORDS = 500  # one script call must stay below about 5 ms
CHUNK_BYTES = 1 << 20
SKIP_BYTES = 16 << 20  # a quiet lane tells the store its position this often, so that a restart need not re-read more

Record = TypeVar("Record")


class Chunk(NamedTuple, Generic[Record]):
    """Consecutive records of a lane, and the position after the last of them."""

    end: int
    records: list[Record]


class Stretch(NamedTuple, Generic[Record]):
    """What was read in one go."""

    token: Reservation
    chunks: Iterator[Chunk[Record]]
    """Decoded one by one, as they are asked for."""


class LaneRules(NamedTuple, Generic[Record]):
    """What differs between the lanes."""

    decode: Callable[[bytes], Sequence[Record]]
    apply: Callable[[str, int, int, Sequence[Record]], Awaitable[object]]
    size_bytes: Callable[[Record], int]
    applied: Callable[[Sequence[Record]], None]
    """Told after the store said yes: who waits for these records."""
    mine: Callable[[Record], bool] | None = None
    """Which records are this lane's to apply; None: all. The others are read and passed over."""


class Ingest(Generic[Record]):
    """The loop of one lane."""

    def __init__(
        self,
        lane: Lane,
        rules: LaneRules[Record],
        *,
        journal: Journal,
        store: Store,
        source: random.Random,
        rolled_back: Callable[[], None] = lambda: None,
        reader: int = 0,
    ) -> None:
        """`rolled_back`: told when the store remembers less than it said it had applied. `reader`: of the journal."""
        self.lane = lane
        self.pace = Pace("ingest", source=source)
        self._rules = rules
        self._journal = journal
        self._store = store
        self._rolled_back = rolled_back
        self._reader = reader
        self._log = get_logger("ingest")
        self._position: int | None = None  # what the store has applied; None until it has told us
        self._recheck = True  # the store is to be asked before anything else
        self._rechecks = 0
        self._sent_end = journal.opened_at  # nothing beyond it can be applied, unless by another copy of this journal
        # Sent from that position, but the answer was lost: sent again as it is, first of all.
        self._unanswered: tuple[int, Chunk[Record]] | None = None
        self._ahead: Stretch[Record] | None = None  # read already, while the store was at work on what is before it
        self._moved = trio.Event()
        self._waiting = trio.CancelScope()
        self._free = trio.Event()
        self._free.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Apply this lane until cancelled. Survives the store being away or rolled back; anything else is a bug.

        Raises JournalForked when the store holds positions of this journal that we never sent.
        """
        task_status.started()
        while True:
            try:
                while self._recheck:
                    await self._find_position()  # told to ask again meanwhile: before it waits for anything
                if not self._free.is_set():
                    with trio.CancelScope() as self._waiting:
                        await self._free.wait()
                    continue
                if self._unanswered is not None:
                    await self._apply(*self._unanswered)
                    self._seek(self._position or 0)
                    continue
                await self._step()
            except PositionMismatch as mismatch:
                self._go_to(mismatch.stored)
            except (StoreAway, StoreRefused) as error:
                await self.pace.wait_after(error)

    @property
    def position(self) -> int | None:
        """What the store has applied of this lane, as far as we know; None while it has to be asked."""
        return None if self._recheck else self._position

    @property
    def last_position(self) -> int | None:
        """What the store once said it had applied for us; None before it said anything."""
        return self._position

    def recheck(self) -> None:
        """The store may have forgotten: ask it for the position before anything else is sent."""
        self._recheck = True
        self._rechecks += 1
        self._waiting.cancel()

    def hold(self) -> None:
        """Apply nothing until `let_go`: what the store must know first is still on its way."""
        if self._free.is_set():
            self._free = trio.Event()

    def let_go(self) -> None:
        """Go on."""
        self._free.set()

    async def wait_applied(self, position: int) -> None:
        """Return once the store has applied this lane up to `position`."""
        while self.position is None or self.position < position:
            await self._moved.wait()

    async def wait_caught_up(self, position: int) -> None:
        """Return once nothing of this lane before `position` is left to apply. A lane need not have records there."""
        while self.position is None or max(self.position, self._journal.read_point(self.lane, self._reader)) < position:
            await self._moved.wait()

    async def _find_position(self) -> None:
        asked = self._rechecks
        applied = await self._store.applied(self._journal.journal_id)
        self.pace.went_well()
        # Told to ask again meanwhile: this answer may be of the life before.
        self._recheck = asked != self._rechecks
        self._go_to(applied[self.lane])

    def _go_to(self, position: int) -> None:
        if position > self._sent_end:
            raise JournalForked(
                f"the store has applied lane {self.lane.name.lower()} of journal {self._journal.journal_id} up to "
                f"{position}, but from here only up to {self._sent_end}: this directory is an older copy, "
                "or another copy of it is in use"
            )
        if self._position is not None and position < self._position:
            self._log.warning("ingest.rolled_back", lane=self.lane.name, ours=self._position, stored=position)
            self._rolled_back()
        if self._unanswered is not None and position not in (self._unanswered[0], self._unanswered[1].end):
            # It begins where the store does not stand: sent from there it would skip what is between.
            self._unanswered = None
        self._seek(position)
        self._advance(position)

    async def _step(self) -> None:
        here, self._ahead = self._ahead or await self._fetch(), None
        if here is None:
            self._tell()  # all that is durable was looked at
            if self._recheck or not self._free.is_set():
                return  # said while the disk was waited for: nobody would wake us
            with trio.CancelScope() as self._waiting:
                await self._journal.wait_readable(self.lane, self._reader)
            return
        failed: StoreError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fetch_behind, here)
            try:
                done = await self._apply_all(here)
            except StoreError as error:
                done, failed = False, error  # raised below, outside the nursery, as what it is
                nursery.cancel_scope.cancel()
        if done:
            self._journal.rsync(here.token)
        else:
            # Whatever stopped us, the range is read again from the position the store remembers.
            self._journal.read_cancel(here.token)
            if self._position is not None:
                self._seek(self._position)
        if failed is not None:
            raise failed

    async def _fetch(self) -> Stretch[Record] | None:
        token = self._journal.read_reserve(self.lane, RESERVE_RECORDS, reader=self._reader)
        if token is None:
            return None
        slices = await self._journal.read(token)
        return Stretch(token, chunks(slices, self._rules.decode, self._rules.size_bytes, self._rules.mine))

    async def _fetch_behind(self, here: Stretch[Record]) -> None:
        """Read what comes next while the store is at work: reading takes as long as applying when frames are small."""
        end = here.token.end
        self._ahead = await self._fetch()
        if self._ahead is not None and self._ahead.token.start != end:
            self._recheck = True  # it took longer than a reservation lasts, so all was given back: begin anew

    async def _apply_all(self, here: Stretch[Record]) -> bool:
        """Whether the whole stretch is in the store now."""
        chunk = next(here.chunks, None)
        while chunk is not None:
            chunk = await self._apply_and_prepare(chunk, here.chunks)
            if self._recheck or not self._free.is_set():
                return False
        await self._skip_to(here.token.end)
        return not self._recheck

    def _seek(self, position: int) -> None:
        """Read on from there; what was read ahead is void."""
        self._ahead = None
        self._journal.seek(self.lane, position, self._reader)

    async def _apply_and_prepare(self, chunk: Chunk[Record], ahead: Iterator[Chunk[Record]]) -> Chunk[Record] | None:
        """Apply a chunk, and decode the next one while the store is at work on it: it has a core of its own."""
        assert self._position is not None
        start, failed = self._position, list[StoreError]()

        async def apply() -> None:
            try:
                await self._apply(start, chunk)
            except StoreError as error:
                failed.append(error)  # raised below, outside the nursery, as what it is

        async with trio.open_nursery() as nursery:
            nursery.start_soon(apply)
            await trio.lowlevel.checkpoint()  # the call is on its way
            following = next(ahead, None)
        if failed:
            raise failed[0]
        return following

    async def _apply(self, start: int, chunk: Chunk[Record]) -> None:
        # The same chunk until it is answered: only then does the store recognise a repeat, and are its waiters told.
        self._unanswered = start, chunk
        self._sent_end = max(self._sent_end, chunk.end)
        await self._rules.apply(self._journal.journal_id, start, chunk.end, chunk.records)
        self._unanswered = None
        self.pace.went_well()
        self._advance(chunk.end)
        self._rules.applied(chunk.records)
        self._log.info("ingest.batch", lane=self.lane.name.lower(), count=len(chunk.records))

    async def _skip_to(self, end: int) -> None:
        """What is left of the range belongs to other lanes. The store is told now and then only: it costs a call."""
        assert self._position is not None
        if end - self._position >= SKIP_BYTES:
            self._sent_end = max(self._sent_end, end)
            await self._store.skip(self._journal.journal_id, self.lane, self._position, end)
            self._advance(end)

    def _advance(self, position: int) -> None:
        self._position = position
        self._tell()

    def _tell(self) -> None:
        self._moved.set()
        self._moved = trio.Event()


def chunks(
    slices: Sequence[Slice],
    decode: Callable[[bytes], Sequence[Record]],
    size_bytes: Callable[[Record], int],
    mine: Callable[[Record], bool] | None = None,
) -> Iterator[Chunk[Record]]:
    """Cut what was read into bounded chunks that may span frames. Records that are not mine are left out. Pure.

    A chunk's end moves over what was left out: its records alone could not tell that nothing between them is missing.
    """
    batch: list[Record] = []
    batch_bytes = end = 0
    for piece in slices:
        records = decode(piece.body)
        for index in range(piece.first, piece.stop):
            record = records[index]
            if mine is None or mine(record):
                size = size_bytes(record)
                if batch and (len(batch) == CHUNK_RECORDS or batch_bytes + size > CHUNK_BYTES):
                    yield Chunk(end, batch)
                    batch, batch_bytes = [], 0
                batch.append(record)
                batch_bytes += size
            end = piece.end if index == piece.stop - 1 else piece.start + index + 1
    if batch:
        yield Chunk(end, batch)
