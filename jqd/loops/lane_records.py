"""Decodes the frames of a lane, and cuts their records into chunks for one call of the store each.

A large frame is decoded in pieces, and only once, however many reads return it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import trio

from jqd.domain.array_split import in_steps
from jqd.domain.errors import JournalDamaged, JournalStuck
from jqd.domain.job import ChangeKind, Job, Outcome
from jqd.domain.outcome_followers import count_followers, has_jobs
from jqd.domain.record import CARRIED, DECODERS, Lane, decode_in_pieces, job_ids, split_cancel
from jqd.journal import Journal, Slice

# One call must stay below about 5 ms.
CHUNK_RECORDS = 500
CHUNK_BYTES = 1 << 20
RECORD_BYTES = 160  # what a record costs beside its argument or result
# The most records of a kind in one call, by the time that each takes in the server:
KNOWN_CONTENTS = 250  # named jobs: 8 us each, and 0.4 ms for the call
LOST_CONTENTS = 100  # named jobs where the server may have lost their names: 35 us each
FOLLOWERS = 250  # jobs that come with outcomes: 18 us each, with the outcome
OTHER_CHANGES = 50  # dated and blocked jobs, edits, releases, retries: 35 to 85 us each

BROUGHT_MAX = 100_000  # ids, some 8 MiB; of more it is assumed that the store forgot one
LARGE_BYTES = 262_144  # of a frame: some 2 ms of decoding where its jobs are small, 0.5 where they are large
BREATH_S = 0.001  # between pieces, for other tasks: a push needs some ten passes of the event loop

Record = TypeVar("Record")
Mine = Callable[[Any], bool]


class LaneFrames(Generic[Record]):
    """Decodes the journal frames of one lane."""

    def __init__(self, lane: Lane, journal: Journal) -> None:
        self._lane = lane
        self._journal = journal
        self._large: dict[int, Sequence[Any]] = {}
        """Position → decoded records, for the large frames in the last read."""

    async def open(self, slices: Sequence[Slice]) -> None:
        """Decode large frames in pieces, before `records` returns them."""
        before, self._large = self._large, {}
        if self._lane not in CARRIED:
            return
        for piece in slices:
            if len(piece.body) <= LARGE_BYTES:
                continue
            if piece.start in before:
                self._large[piece.start] = before[piece.start]
                continue
            with suppress(JournalDamaged):  # `records` raises it later, after all before it was sent
                self._large[piece.start] = await in_steps(decode_in_pieces(piece.body), partial(trio.sleep, BREATH_S))

    def records(self, piece: Slice) -> Sequence[Record]:
        """Return all records of a slice's frame. Raises JournalStuck if the frame cannot be decoded."""
        if (known := self._large.get(piece.start)) is not None:
            if piece.stop == len(known):
                del self._large[piece.start]
            return known
        try:
            return DECODERS[self._lane](piece.body)
        except JournalDamaged as error:
            raise unreadable(self._journal, piece.start, error) from error


async def read_unapplied(
    journal: Journal, lanes: Iterable[Lane], applied: Mapping[Lane, int], mine: Mine | None = None
) -> int:
    """Read all records of these lanes that a store has not applied. Returns the highest fence (number of a claim) in
    their outcomes; 0: there are no outcomes.

    `mine`: returns whether a record belongs to that store; None: all do. Waits while the disk fails. Raises
    JournalStuck for a frame that cannot be read or decoded."""
    highest = 0
    for lane in lanes:
        frames = LaneFrames[Any](lane, journal)
        async with aclosing(journal.read_range(lane, applied[lane], journal.end)) as pieces:
            async for slices in pieces:
                read = partial(_highest, frames, slices, mine)
                highest = max(highest, await trio.to_thread.run_sync(read, abandon_on_cancel=True))
    return highest


def _highest(frames: LaneFrames[Any], slices: Sequence[Slice], mine: Mine | None) -> int:
    """Decode slices and return the highest fence (number of a claim) in their outcomes; 0: there are no outcomes."""
    highest = 0
    for piece in slices:
        for record in frames.records(piece)[piece.first : piece.stop]:
            if isinstance(record, Outcome) and record.fence > highest and (mine is None or mine(record)):
                highest = record.fence
    return highest


async def brings_again(journal: Journal, applied: Mapping[Lane, int]) -> bool:
    """Return whether the store may have lost followers, the jobs that it makes from an outcome. It has lost some if a
    record of this journal names a follower of an outcome that it says it has not applied. True, too, if there are too
    many followers to compare. Waits while the disk fails. Raises JournalStuck for a frame that cannot be read or
    decoded."""
    brought: set[str] = set()
    for lane in (Lane.OUTCOMES, Lane.CANCELS, Lane.CHANGES):
        frames = LaneFrames[Any](lane, journal)
        if lane is not Lane.OUTCOMES and not brought:
            break
        async with aclosing(journal.read_range(lane, applied[lane], journal.end)) as pieces:
            async for slices in pieces:
                read = partial(_meets, frames, slices, brought, journal.retired)
                if await trio.to_thread.run_sync(read, abandon_on_cancel=True):
                    return True
    return False


def _meets(frames: LaneFrames[Any], slices: Sequence[Slice], brought: set[str], retired: int) -> bool:
    """Add the ids of followers in these slices' outcomes to `brought`. Returns True if a record names a job already in
    `brought`, or if `brought` has become too large. Outcomes before the position `retired` add nothing."""
    for piece in slices:
        for record in frames.records(piece)[piece.first : piece.stop]:
            if (split_cancel(record)[0] if isinstance(record, str) else _id_of(record)) in brought:
                return True
            if isinstance(record, Outcome) and piece.start >= retired and has_jobs(record.follows):
                brought.update(job_ids(record.follows))
    return len(brought) > BROUGHT_MAX


def _id_of(record: Job | Outcome) -> str:
    return record.id if isinstance(record, Job) else record.job_id


def job_bytes(job: Job, *, is_known: bool = False) -> int:
    """Return for how many bytes a job counts when records are gathered for one call of the store, which takes
    CHUNK_BYTES. That is its size; more for a job that takes the store longer, so that no call takes too long.

    `is_known`: the store has lost no names (ids that pushers chose), so that it checks a named job faster."""
    size = len(job.argument) + RECORD_BYTES
    if job.change is None:
        return size
    if job.change.kind is not ChangeKind.NEW or job.eligible_at_ms:
        return max(size, CHUNK_BYTES // OTHER_CHANGES)
    return max(size, CHUNK_BYTES // (KNOWN_CONTENTS if is_known else LOST_CONTENTS))


def outcome_bytes(outcome: Outcome) -> int:
    """Return how many bytes of a chunk an outcome counts for, together with its followers (the jobs made from it)."""
    size = outcome.content_bytes + RECORD_BYTES
    return size + count_followers(outcome) * (CHUNK_BYTES // FOLLOWERS) if outcome.follows else size


def unreadable(journal: Journal, position: int, error: JournalDamaged) -> JournalStuck:
    """Return the error for a frame whose checksums are good but that cannot be decoded."""
    return JournalStuck(
        f"{journal.place_of(position)}: {error}. Nothing of it is lost, and nothing behind it is read. This is a "
        "mistake in jqd: report it with the output of `jqd journal cat`"
    )


class Chunk(NamedTuple, Generic[Record]):
    """Consecutive records of a lane, and the position after the last of them."""

    end: int
    records: list[Record]


def chunks(
    slices: Sequence[Slice],
    decode: Callable[[Slice], Sequence[Record]],
    size_bytes: Callable[[Record], int],
    mine: Callable[[Record], bool] | None = None,
) -> Iterator[Chunk[Record]]:
    """Cut slices into bounded chunks, which may span frames. Records that `mine` rejects are left out, but a chunk's
    end lies behind them, so that the store sees no gap. Raises what `decode` raises, after all chunks before it."""
    batch: list[Record] = []
    batch_bytes = end = 0
    for piece in slices:
        try:
            records = decode(piece)
        except JournalStuck:
            if batch:
                yield Chunk(end, batch)
            raise
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
