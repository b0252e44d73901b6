"""Gives the journal's space back: deletes segments that nobody can need any more.

A segment goes when all lanes are applied beyond it, the store would survive a crash with all of that, and it is past
the retention. Jobs of it that have not ended are written to the end of the journal again first, so one job of next
year pins nothing. Where more than half is unfinished the segments stay: copying them would free little, again and
again. A disk that is slow or refuses is asked for a little at once, and for nothing twice. Outcomes go with their
segment: a store that is emptied after that runs those jobs again (docs/JOURNAL.md).

    journal   ├─ expired ─┤─────── kept ───────┤─ open ─┤
                   └── unfinished jobs, copied ────▶ end
"""

import random
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from jqd.clock import Clock
from jqd.errors import JournalDamaged, JournalRefused, JournalStuck, JournalVersion, StoreAway, StoreRefused
from jqd.jobid import partition_of
from jqd.journal import Journal, Slice
from jqd.log import get_logger
from jqd.loops.ingest import Ingest
from jqd.loops.membership import Membership
from jqd.loops.pace import Pace
from jqd.loops.readable import unreadable
from jqd.record import Lane, cancel_of, carry_jobs, encode_cancels, generations, job_ids
from jqd.store import CALL_JOBS_MAX, Store

EVERY_S = 5.0  # between looks; at 20 MB/s of pushes this is 100 MB, less than two segments
LOOK_BYTES = 256 << 20  # looked at in one go
REST = 50  # looks that freed nothing may take one part in so many of the time
DURABLE_S = 600.0  # a server that only takes snapshots takes one now and then
COPY_PART = 2  # at most one part in so many may be unfinished: each byte freed costs at most one byte copied
COPY_BYTES = 4 << 20  # written between two syncs: a small share of what may wait for the disk, most is for pushes


class Keeper(NamedTuple):
    """What is known of a partition of the store, which keeps jobs of this journal."""

    store: Store
    membership: Membership
    lanes: Mapping[Lane, Ingest[Any]]
    unsafe: Callable[[], bool] = lambda: False
    """Whether it is set up so that it would lose jobs; its word is worth nothing then."""

    def positions(self) -> dict[Lane, int] | None:
        """What it has applied; None while that may change, or cannot be relied upon."""
        found = {lane: position for lane, ingest in self.lanes.items() if (position := ingest.position) is not None}
        sure = self.membership.settled and not self.unsafe() and len(found) == len(self.lanes)
        return found if sure else None


@dataclass(slots=True)
class Copied:
    """How far a piece of the journal was copied to its end, kept when the disk refuses: what was synced stays done."""

    start: int
    end: int
    unfinished: set[str]
    behind: dict[Lane, int] = field(default_factory=dict)
    """Position up to which a lane's frames are copied and synced."""
    ids: set[str] = field(default_factory=set)
    """Of jobs that were copied."""
    generations: dict[str, int] = field(default_factory=dict)


class Retention:
    """One look at a time. A segment goes when no partition of the store needs it any more."""

    def __init__(self, *, journal: Journal, keepers: Sequence[Keeper], clock: Clock, source: random.Random) -> None:
        """`keepers`: in the order of their partitions."""
        self.pace = Pace("retention", source=source)
        self._journal = journal
        self._keepers = keepers
        self._clock = clock
        self._copied: Copied | None = None  # of what could not be freed yet
        self._look_at_bytes = 0  # of expired segments; or
        self._look_at_s = 0.0  # by time: before either it does not pay to look again
        self._log = get_logger("retention")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Free what can be freed until cancelled. A store that is away or a full disk only delays it."""
        task_status.started()
        while True:
            await trio.sleep(EVERY_S)
            try:
                await self._free()
            except (StoreAway, StoreRefused, JournalRefused, JournalStuck, JournalVersion) as error:
                await self.pace.wait_after(error)  # what cannot be read is kept, and what lies behind it
            else:
                self.pace.went_well()

    async def _free(self) -> None:
        positions = [found for keeper in self._keepers if (found := keeper.positions()) is not None]
        if len(positions) < len(self._keepers):
            return  # a life of the store is being entered, or may be soon: what it lacks is in these segments
        applied = min(
            self._journal.read_point(lane, n) for n, keeper in enumerate(self._keepers) for lane in keeper.lanes
        )
        start, expired = self._journal.start, self._journal.expired(applied)
        early = expired - start <= self._look_at_bytes and self._clock.mono_s() < self._look_at_s
        if expired == start or early:
            return
        for keeper in self._keepers:
            if not await keeper.store.wait_durable(timeout_s=DURABLE_S):
                return
        began_s = self._clock.mono_s()
        # A piece at a time keeps the ids of one look in memory; a piece that could not go is looked at with more.
        reach = start + max(LOOK_BYTES, 2 * self._look_at_bytes)
        end = self._journal.expired(min(applied, reach))
        if end == start:
            end = expired
        if self._copied is not None and self._copied.start == start:
            end = self._copied.end  # the rest of it first
        unfinished, copied_bytes = await self._find_unfinished(start, end)
        if copied_bytes * COPY_PART > end - start:
            self._look_at_bytes = copied_bytes * COPY_PART
            now_s = self._clock.mono_s()
            self._look_at_s = now_s + (now_s - began_s) * REST
            self._log.info("retention.kept", bytes=end - start, unfinished=len(unfinished))
            return
        self._look_at_bytes = 0
        if unfinished:
            cancels = await self._copy_forward(start, end, unfinished)
            await self._expect_remembered(positions)
            if cancels:
                await self._journal.wsync(self._journal.write(Lane.CANCELS, len(cancels), encode_cancels(cancels)))
        await self._expect_remembered(positions)
        freed, self._copied = self._journal.trim(end), None
        self._log.info("retention.freed", bytes=freed, position=end, copied=len(unfinished), copied_bytes=copied_bytes)

    async def _find_unfinished(self, start: int, end: int) -> tuple[set[str], int]:
        """Ids of jobs that have not ended, and what copying them costs. Gives up early when it is too much."""
        found: set[str] = set()
        sizes: dict[str, int] = {}  # of the jobs to be asked for next
        total = 0
        async with aclosing(self._read(start, end, Lane.JOBS, Lane.CHANGES)) as pieces:
            async for piece in pieces:
                with self._blame(piece):
                    ids = job_ids(piece.body)
                sizes.update(dict.fromkeys(ids, len(piece.body) // len(ids)))
                if len(sizes) >= CALL_JOBS_MAX:
                    alive = await self._unfinished(list(sizes))
                    found.update(alive)
                    total += sum(sizes[job_id] for job_id in alive)
                    sizes = {}
                if total * COPY_PART > end - start:
                    return found, total
        alive = await self._unfinished(list(sizes))
        found.update(alive)
        return found, total + sum(sizes[job_id] for job_id in alive)

    async def _read(self, start: int, end: int, *lanes: Lane) -> AsyncGenerator[Slice]:
        """All frames of these lanes that begin there."""
        for lane in lanes:
            async with aclosing(self._journal.read_range(lane, start, end)) as pieces:
                async for slices in pieces:
                    for piece in slices:
                        if not piece.first:  # else it is the rest of a frame that was given before
                            yield piece

    async def _unfinished(self, ids: Sequence[str]) -> list[str]:
        alive = []
        for number, keeper in enumerate(self._keepers):
            its = [job_id for job_id in ids if partition_of(job_id, len(self._keepers)) == number]
            for at in range(0, len(its), CALL_JOBS_MAX):
                alive += await keeper.store.unfinished(its[at : at + CALL_JOBS_MAX])
        return alive

    async def _expect_remembered(self, positions: Sequence[Mapping[Lane, int]]) -> None:
        """All that was learned of the store holds only if it has forgotten nothing since. Raises StoreAway.

        An emptied store answers "not there" of every job, and nobody may have noticed yet.
        """
        for keeper, known in zip(self._keepers, positions, strict=True):
            stored = await keeper.store.applied(self._journal.journal_id)
            if any(stored[lane] < position for lane, position in known.items()):
                for ingest in keeper.lanes.values():
                    ingest.recheck()
                raise StoreAway("the store is older than it was: nothing is deleted before it has all again")

    async def _copy_forward(self, start: int, end: int, unfinished: set[str]) -> list[str]:
        """Write them to the end again, durably. The store leaves a job alone that it has.

        Goes on where it stopped when the disk refused. Returns cancels of those that ended meanwhile: an ending that
        was journaled before the copy may be deleted before the copy, so it must be said again after it.
        """
        copied = self._copied
        if copied is None or (copied.start, copied.end) != (start, end) or not unfinished <= copied.unfinished:
            # What had ended is unfinished again: the store forgot, or it was retried. It lies before where we stopped.
            copied = self._copied = Copied(start, end, unfinished)
        copied.unfinished = unfinished
        for lane in (Lane.JOBS, Lane.CHANGES):
            await self._copy_lane(lane, copied, unfinished)
        ended = copied.ids.difference(await self._unfinished(sorted(copied.ids)))
        return [cancel_of(job_id, copied.generations.get(job_id, 0)) for job_id in sorted(ended)]

    async def _copy_lane(self, lane: Lane, copied: Copied, unfinished: set[str]) -> None:
        behind = copied.behind.get(lane, copied.start)
        unsynced = 0
        async with aclosing(self._read(behind, copied.end, lane)) as pieces:
            async for piece in pieces:
                with self._blame(piece):
                    frames = list(carry_jobs(piece.body, unfinished, piece.start))
                    ids = unfinished.intersection(job_ids(piece.body))
                    for job_id, generation in generations(piece.body).items():
                        copied.generations[job_id] = max(generation, copied.generations.get(job_id, 0))
                for into, records, body in frames:
                    if unsynced and unsynced + len(body) > COPY_BYTES:
                        await self._journal.wsync()
                        copied.behind[lane], unsynced = behind, 0
                    copied.ids |= ids  # from here on one of them may lie there
                    self._journal.write(into, records, body)
                    unsynced += len(body)
                behind = piece.start + 1  # of this frame nothing is left
        if unsynced:
            await self._journal.wsync()
        copied.behind[lane] = behind

    @contextmanager
    def _blame(self, piece: Slice) -> Iterator[None]:
        """Raises JournalVersion for a frame that is whole, and that we cannot read."""
        try:
            yield
        except JournalDamaged as error:
            raise unreadable(self._journal, piece.start, error) from error
