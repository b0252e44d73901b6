"""Journal → store: one task per lane reads what is durable, applies it, and only then advances the read point.

The read point that counts lives in the store: every `apply` says from where to where it goes, and the store refuses
any other start. So a lost reply, a crash between apply and rsync, and a store that came back older than it was are
one case: `PositionMismatch` names the position to go on from.

    store position ──▶ ├── chunk ──┤── chunk ──┤        a chunk: ≤ 500 records, ≤ 1 MiB, one script call
    journal            ├─ frame ─┤─ frame ─┤─ frame ─┤  record k of a frame has position frame start + k
"""

import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import trio

from jqd.errors import PositionMismatch, StoreAway, StoreRefused
from jqd.journal import Journal, Slice
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


class LaneRules(NamedTuple, Generic[Record]):
    """What differs between the lanes."""

    decode: Callable[[bytes], Sequence[Record]]
    apply: Callable[[str, int, int, Sequence[Record]], Awaitable[object]]
    size_bytes: Callable[[Record], int]
    applied: Callable[[Sequence[Record]], None]
    """Told after the store said yes: who waits for these records."""


class Ingest(Generic[Record]):
    """The loop of one lane."""

    def __init__(
        self, lane: Lane, rules: LaneRules[Record], *, journal: Journal, store: Store, source: random.Random
    ) -> None:
        self.lane = lane
        self.pace = Pace("ingest", source=source)
        self._rules = rules
        self._journal = journal
        self._store = store
        self._log = get_logger("ingest")
        self._position: int | None = None  # what the store has applied; None until it has told us
        self._unanswered: Chunk[Record] | None = (
            None  # sent, but the answer was lost: sent again as it is, first of all
        )
        self._moved = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Apply this lane until cancelled. Survives the store being away or rolled back; anything else is a bug."""
        task_status.started()
        while True:
            try:
                if self._position is None:
                    await self._find_position()
                if self._unanswered is not None:
                    await self._apply(self._unanswered)
                    self._journal.seek(self.lane, self._position or 0)
                await self._step()
            except PositionMismatch as mismatch:
                self._unanswered = None
                self._go_to(mismatch.stored)
            except (StoreAway, StoreRefused) as error:
                await self.pace.wait_after(error)

    async def wait_applied(self, position: int) -> None:
        """Return once the store has applied this lane up to `position`."""
        while self._position is None or self._position < position:
            await self._moved.wait()

    @property
    def position(self) -> int | None:
        """What the store has applied of this lane, as far as we know; None before it has told us."""
        return self._position

    async def _find_position(self) -> None:
        applied = await self._store.applied(self._journal.journal_id)
        self.pace.went_well()
        self._go_to(applied[self.lane])

    def _go_to(self, position: int) -> None:
        if self._position is not None and position < self._position:
            self._log.warning("ingest.rolled_back", lane=self.lane.name, ours=self._position, stored=position)
        self._journal.seek(self.lane, position)
        self._advance(position)

    async def _step(self) -> None:
        token = self._journal.read_reserve(self.lane, RESERVE_RECORDS)
        if token is None:
            await self._journal.wait_readable(self.lane)
            return
        done = False
        try:
            slices = await self._journal.read(token)
            for chunk in chunks(slices, self._rules.decode, self._rules.size_bytes):
                await self._apply(chunk)
            await self._skip_to(token.end)
            done = True
        finally:
            # Whatever stopped us, the range is read again from the position the store remembers.
            if done:
                self._journal.rsync(token)
            else:
                self._journal.read_cancel(token)
                if self._position is not None:
                    self._journal.seek(self.lane, self._position)

    async def _apply(self, chunk: Chunk[Record]) -> None:
        assert self._position is not None
        # The same chunk until it is answered: only then does the store recognise a repeat, and are its waiters told.
        self._unanswered = chunk
        await self._rules.apply(self._journal.journal_id, self._position, chunk.end, chunk.records)
        self._unanswered = None
        self.pace.went_well()
        self._advance(chunk.end)
        self._rules.applied(chunk.records)
        self._log.info("ingest.batch", lane=self.lane.name.lower(), count=len(chunk.records))

    async def _skip_to(self, end: int) -> None:
        """What is left of the range belongs to other lanes. The store is told now and then only: it costs a call."""
        assert self._position is not None
        if end - self._position >= SKIP_BYTES:
            await self._store.skip(self._journal.journal_id, self.lane, self._position, end)
            self._advance(end)

    def _advance(self, position: int) -> None:
        self._position = position
        self._moved.set()
        self._moved = trio.Event()


def chunks(
    slices: Sequence[Slice], decode: Callable[[bytes], Sequence[Record]], size_bytes: Callable[[Record], int]
) -> Iterator[Chunk[Record]]:
    """Cut what was read into bounded chunks that may span frames. Pure."""
    batch: list[Record] = []
    batch_bytes = end = 0
    for piece in slices:
        records = decode(piece.body)
        for index in range(piece.first, piece.stop):
            record = records[index]
            size = size_bytes(record)
            if batch and (len(batch) == CHUNK_RECORDS or batch_bytes + size > CHUNK_BYTES):
                yield Chunk(end, batch)
                batch, batch_bytes = [], 0
            batch.append(record)
            batch_bytes += size
            end = piece.end if index == piece.stop - 1 else piece.start + index + 1
    if batch:
        yield Chunk(end, batch)
