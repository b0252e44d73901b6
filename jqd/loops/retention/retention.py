"""Deletes segments of the journal that nobody can need any more.

First jobs are *retired*, one piece (range of positions) at a time: a piece that is past the retention, and applied in a
store that would survive a crash. Its unfinished and dead jobs are copied to the journal's end before. A piece stays if
more than half of it would have to be copied: that would free little, again and again. If the disk is slow or refuses,
copies are written in small parts, and none twice. Then a segment is deleted when all its jobs are retired and no other
daemon's jobs need its endings (outcomes and cancels; horizon.py).

    journal   ├─ endings only ─┼─ past retention ─┼──── kept ────────┤
              start            retired     └── unfinished jobs, copied ──▶ end
"""

import random
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager

import trio

from jqd.domain.beat import rest
from jqd.domain.carried import carry, generations, jobs_in
from jqd.domain.clock import Clock
from jqd.domain.errors import JournalDamaged, StoreAway, StoreRefused
from jqd.domain.job import Outcome
from jqd.domain.jobid import partition_of
from jqd.domain.log import get_logger
from jqd.domain.record import (
    ENDINGS,
    WITH_JOBS,
    Lane,
    cancel_of,
    decode_outcomes,
    decode_rules,
    encode_cancels,
    encode_outcomes,
    encode_rules,
)
from jqd.domain.settings import Setting, SettingTable
from jqd.journal import Journal, Slice
from jqd.journal.frame import FRAME_HEADER_BYTES
from jqd.loops.backoff import LoopBackoff
from jqd.loops.lane_records import unreadable
from jqd.loops.retention.copies import JournalCopies
from jqd.loops.retention.horizon import Horizon
from jqd.loops.retention.partition import AppliedState, PartitionRetention, has_shelves, still_waiting
from jqd.loops.retention.standstill import Standstill
from jqd.loops.settings import carried
from jqd.store import CALL_JOBS_MAX

EVERY_S = 5.0  # between looks; at 20 MB/s of pushes this is 100 MB, less than two segments
LOOK_BYTES = 256 << 20  # size of a piece
REST = 50  # looks that freed nothing may take 1/REST of the time
PUSHED_S = 60.0  # followers are journaled within seconds; outcomes of those that wait longer are written again
DURABLE_S = 600.0  # how long a store may take to be durable: a server may only take snapshots now and then
COPY_PART = 2  # at most 1/COPY_PART of a piece may be unfinished: each byte freed costs at most one byte copied
COPY_BYTES = 4 << 20  # written between two syncs: a small share of what may wait for the disk, most is for pushes
PASS_S = 5.0  # for a call to each partition; a slower store is asked again at the next look
ENDS_PER_FRAME = 50  # outcomes may have kilobytes each


class Retention:
    """Retires pieces of the journal (nothing needs their jobs there), and deletes segments that no partition needs."""

    def __init__(
        self,
        *,
        journal: Journal,
        partitions: Sequence[PartitionRetention],
        settings: SettingTable,
        clock: Clock,
        source: random.Random,
    ) -> None:
        """`partitions`: in the order of their numbers."""
        self.backoff = LoopBackoff("retention", source=source)
        self._journal, self._partitions, self._settings, self._clock = journal, partitions, settings, clock
        self._horizons = [
            Horizon(journal.journal_id, may_be_emptied=journal.opened_at > 0 and not partition.membership.sole)
            for partition in partitions
        ]
        self._copied: JournalCopies | None = None  # of a piece that is not retired yet
        self._given = 0, ""  # end of the journal after the last look, and the last id that it had given a job by then
        # The next copying waits for this many bytes past the retention, or until this time.
        self._look_at_bytes, self._look_at_s = 0, 0.0
        self.standstill = Standstill(journal, clock, self.backoff)
        self._log = get_logger("retention")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Try to free space every EVERY_S until cancelled. A store that is away or a full disk only delays it."""
        task_status.started()
        while True:
            self._given = self._journal.written, self._journal.ids.last_id
            await rest(EVERY_S)
            await self.backoff.attempt(self._free)  # an unreadable frame is kept, and all behind it
            self.standstill.looked(min(self._read_points(Lane)))

    async def _free(self) -> None:
        states = [found for partition in self._partitions if (found := partition.applied_state()) is not None]
        await self._exchange_kept()
        if len(states) < len(self._partitions) or not self._settings.loaded.is_set():
            self.standstill.why = "it is not known what the store has: see why no jobs are run"
            return  # the store may lack records of these segments
        self._journal.opened_by(min(self._clock.wall_ms(), self._settings.now_ms(self._clock)))
        applied = min(self._read_points(Lane))
        await self._trim(applied, states)  # first: copies and marks need room, and a full disk gets some by this alone
        if self._copied is None or self._copied.done_at is None:
            await self._copy(applied, states)
        if self._copied is not None and self._copied.done_at is not None:
            await self._retire(self._copied, self._copied.done_at, states)

    def _read_points(self, lanes: Iterable[Lane]) -> list[int]:
        return [self._journal.read_point(lane, n) for n in range(len(self._partitions)) for lane in lanes]

    async def _exchange_kept(self) -> None:
        """Report to other daemons, through each partition that answers, since when this journal keeps jobs, and up to
        which id all its jobs are applied. The answers have the reports of others."""
        journal, failed, (end, last_id) = self._journal, None, self._given
        for number, (partition, horizon) in enumerate(zip(self._partitions, self._horizons, strict=True)):
            applied = min(journal.read_point(lane, number) for lane in ENDINGS)
            try:
                if (state := partition.applied_state()) is not None:
                    has_come = last_id if journal.read_point(Lane.JOBS, number) >= end else ""
                    since, position = horizon.jobs_written_after(journal.retired), state.positions[Lane.JOBS]
                    answer = await partition.store.save_kept(journal.journal_id, since, position, has_come)
                    horizon.note(answer, applied=applied, written=journal.written)
            except (StoreAway, StoreRefused) as error:
                failed = error
        if failed is not None:
            raise failed

    async def _copy(self, applied: int, states: Sequence[AppliedState]) -> None:
        """Copy the unfinished jobs of the next piece to retire, if there is one and copying them frees enough."""
        journal = self._journal
        start, expired = max(journal.retired, journal.start), journal.retirable(applied)
        early = expired - start <= self._look_at_bytes and self._clock.mono_s() < self._look_at_s
        if expired <= start or early or not await self._passed(expired, states) or not await self._is_durable():
            return
        began_s = self._clock.mono_s()
        # One piece at a time bounds the ids in memory; a piece that was not worth copying is extended.
        most = start + max(LOOK_BYTES, 2 * self._look_at_bytes)
        end = journal.retirable(min(applied, most))
        if end <= start:
            end = expired
        if self._copied is not None and self._copied.start == start and self._copied.end <= applied:
            end = self._copied.end  # finish the copy that the disk refused
        kept, copied_bytes = await self._find_kept(start, end)
        if copied_bytes * COPY_PART >= end - start:
            self._look_at_bytes = copied_bytes * COPY_PART
            now_s = self._clock.mono_s()
            self._look_at_s = now_s + (now_s - began_s) * REST
            self._log.info("retention.kept", bytes=end - start, unfinished=len(kept))
            return
        self._look_at_bytes = 0
        copied = await self._copy_forward(start, end, kept)
        # The store may have forgotten jobs meanwhile, so that its answers no longer count.
        await self._expect_remembered(states)
        copied.bytes, copied.done_at = copied_bytes, journal.end

    async def _retire(self, copied: JournalCopies, done_at: int, states: Sequence[AppliedState]) -> None:
        """Retire the copied piece, once all endings (outcomes, cancels) journaled before the copies are applied.

        An ending may be deleted before the copy of the job that it ends. So it is written again behind the copies: as
        an outcome; or as a cancel, if the outcome is no longer known or a cancel waits for a job in flight."""
        if min(self._read_points(Lane)) < copied.end or min(self._read_points(ENDINGS)) < done_at:
            self.standstill.why = "the store does not have yet what was written again of it"
            return  # the next look asks again
        if not await self._passed(copied.end, states) or not await self._all_follow(copied):
            return
        if not copied.ends_written:
            await self._write_ends(copied, states)
            copied.ends_written = True
        await self._expect_remembered(states)
        await self._journal.retire(copied.end)
        self._copied = None
        self._log.info("retention.retired", position=copied.end, copied=len(copied.ids), copied_bytes=copied.bytes)

    async def _all_follow(self, copied: JournalCopies) -> bool:
        """Return whether the piece no longer waits for followers (jobs pushed after a success): all are journaled, or
        some waited so long that their outcomes are to be written again."""
        found = [await partition.store.get_outbox(0, 1) for partition in self._partitions]
        if copied.applied_at_ms is None:
            copied.applied_at_ms = [max(each.now_ms, each.newest_ms or 0) for each in found]
            copied.patient_until_s = self._clock.mono_s() + PUSHED_S
        # How long followers of this piece may have waited. The longest wait counts, so that an entry that nobody can
        # push, and that stays the oldest, does not make each piece wait.
        waited_s = [
            (each.now_ms - each.oldest_ms) / 1000
            for each, at_ms in zip(found, copied.applied_at_ms, strict=True)
            if each.oldest_ms is not None and each.oldest_ms <= at_ms
        ]
        is_waited = bool(waited_s)
        if is_waited and max(waited_s) < PUSHED_S and self._clock.mono_s() < copied.patient_until_s:
            return False
        # From the same answer, because entries move between outbox and shelf.
        copied.has_waiting = is_waited or any(each.shelves for each in found)
        return True

    async def _write_ends(self, copied: JournalCopies, states: Sequence[AppliedState]) -> None:
        """Write the endings (outcomes, cancels) of copied jobs again, behind the copies. Once only: repeats would fill
        a full disk."""
        ends: list[Outcome] = []
        cancels: list[str] = []
        for number, job_ids in self._by_partition(sorted(copied.ids)):
            found = await self._partitions[number].store.get_ends(job_ids)
            ends += found.outcomes
            cancels += [cancel_of(job_id, generation) for job_id, generation in found.asked.items()]
            cancels += [cancel_of(job_id, copied.generations.get(job_id, 0)) for job_id in found.gone]
        await self._expect_remembered(states)
        async with aclosing(self._owed_in(copied.owed_behind or copied.start, copied.end, copied.has_waiting)) as owed:
            async for at, outcomes in owed:
                self._journal.write(Lane.OUTCOMES, len(outcomes), encode_outcomes(outcomes))
                await self._journal.wsync()
                copied.owed_behind = at + 1  # this frame is done
        since = self._journal.written
        for at in range(0, len(cancels), CALL_JOBS_MAX):
            some = cancels[at : at + CALL_JOBS_MAX]
            self._journal.write(Lane.CANCELS, len(some), encode_cancels(some))
        for at in range(0, len(ends), ENDS_PER_FRAME):
            ended = ends[at : at + ENDS_PER_FRAME]
            self._journal.write(Lane.OUTCOMES, len(ended), encode_outcomes(ended))
        await self._journal.wsync(since=since)

    async def _trim(self, applied: int, states: Sequence[AppliedState]) -> None:
        journal, others_s = self._journal, self._journal.others_s
        retired = min(journal.retired, applied)
        unneeded = [end for horizon in self._horizons if (end := horizon.unneeded(others_s)) is not None]
        wanted, free = journal.closed(retired), journal.closed(min([retired, *unneeded]))
        end = max(free, journal.closed(journal.overdue(retired)))
        if free < wanted:
            self.standstill.log_held(self._horizons, wanted, kept=wanted - end, given_up=end - free)
        if end <= journal.start or not await self._is_durable():
            return
        await self._expect_remembered(states)
        freed = journal.trim(end)
        self._log.info("retention.freed", bytes=freed, position=end)

    async def _passed(self, position: int, states: Sequence[AppliedState]) -> bool:
        """Advance all stores to at least this position, in the lanes with jobs. Returns whether all stores have got
        there, and have it on disk.

        A store whose position lies before our oldest job counts as lacking all records before it, and would run copies
        of ended jobs again."""
        behind = [
            ingest
            for partition in self._partitions
            for lane in WITH_JOBS
            if (ingest := partition.lanes[lane]).position is None or ingest.position < position
        ]
        if not behind:
            return True
        await self._expect_remembered(states)
        with trio.move_on_after(PASS_S) as scope:
            for ingest in behind:
                await ingest.wait_skipped(position)
        if scope.cancelled_caught:
            self.standstill.why = "the store does not take up to where this journal was applied"
        return not scope.cancelled_caught and await self._is_durable()

    async def _is_durable(self) -> bool:
        stores = [partition.store for partition in self._partitions]
        lacking = [store for store in stores if not await store.wait_durable(timeout_s=DURABLE_S, or_accepted=True)]
        if lacking:
            self.standstill.why = f"the store does not say that it is safe there ({lacking[0].durability_rule})"
        return not lacking

    async def _find_kept(self, start: int, end: int) -> tuple[set[str], int]:
        """Return the ids of unfinished and dead jobs, and the bytes to copy. Stops once these bytes are too many.
        Settings count half: a piece with jobs between settings can go, and a piece of settings alone, which frees
        nothing, stays."""
        found, sizes = set[str](), dict[str, int]()  # `sizes`: of the jobs to be asked for next
        async with aclosing(self._rules_in(start, end)) as frames:
            total = (1 + sum([len(encode_rules(some)) + FRAME_HEADER_BYTES async for some in frames])) // COPY_PART
        shelves = await has_shelves([partition.store for partition in self._partitions])
        async with aclosing(self._owed_in(start, end, shelves)) as owed:
            total += sum([len(encode_outcomes(some)) async for _, some in owed])
        async with aclosing(self._jobs_in(start, end)) as pieces:
            async for frame_sizes in pieces:
                sizes |= frame_sizes
                if len(sizes) >= CALL_JOBS_MAX:
                    alive = await self._unfinished(list(sizes))
                    found.update(alive)
                    total += sum(sizes[job_id] for job_id in alive)
                    sizes = {}
                if total * COPY_PART >= end - start:
                    return found, total
        alive = await self._unfinished(list(sizes))
        found.update(alive)
        return found, total + sum(sizes[job_id] for job_id in alive)

    async def _jobs_in(self, start: int, end: int) -> AsyncGenerator[dict[str, int]]:
        """Yield, for each frame with jobs: id of a job → bytes of its record."""
        for lane in WITH_JOBS:
            async with aclosing(self._read(start, end, lane)) as pieces:
                async for piece in pieces:
                    with self._charge_piece(piece):
                        sizes = jobs_in(lane, piece.body)
                    yield sizes

    async def _read(self, start: int, end: int, *lanes: Lane) -> AsyncGenerator[Slice]:
        for lane in lanes:
            async with aclosing(self._journal.read_range(lane, start, end)) as pieces:
                async for slices in pieces:
                    for piece in slices:
                        if not piece.first:  # else it continues a frame that was yielded before
                            yield piece

    def _by_partition(self, ids: Sequence[str]) -> list[tuple[int, list[str]]]:
        partitions, found = len(self._partitions), []
        for number in range(partitions):
            here = [job_id for job_id in ids if partition_of(job_id, partitions) == number]
            found += [(number, here[at : at + CALL_JOBS_MAX]) for at in range(0, len(here), CALL_JOBS_MAX)]
        return found

    async def _unfinished(self, ids: Sequence[str]) -> list[str]:
        found: list[str] = []
        for number, job_ids in self._by_partition(ids):
            found += await self._partitions[number].store.unfinished(job_ids, dead=True)
        return found

    async def _expect_remembered(self, states: Sequence[AppliedState]) -> None:
        """Raise StoreAway if a store has lost anything since it answered: an emptied store denies every job, and no
        loop may have noticed yet."""
        for partition, known in zip(self._partitions, states, strict=True):
            stored = await partition.store.applied(self._journal.journal_id)
            if any(stored[lane] < position for lane, position in known.positions.items()):
                for ingest in partition.lanes.values():
                    ingest.recheck()
                raise StoreAway("the store is older than it was: nothing is deleted before it has all again")
            if partition.membership.life != known.life:
                raise StoreAway("the store may have forgotten meanwhile: nothing of what it said before is relied upon")

    async def _copy_forward(self, start: int, end: int, unfinished: set[str]) -> JournalCopies:
        """Copy a piece's unfinished jobs to the journal's end and sync; the store ignores a job that it has.

        Goes on where an earlier copy of this piece was refused by the disk."""
        copied = self._copied
        if copied is None or (copied.start, copied.end) != (start, end) or not unfinished <= copied.unfinished:
            # Another piece, or jobs of the part that was copied are unfinished again: the store forgot, or a retry.
            copied = self._copied = JournalCopies(start, end, unfinished)
        copied.unfinished = unfinished
        for lane in WITH_JOBS:
            await self._copy_lane(lane, copied, unfinished)
        await self._copy_rules(start, end)
        return copied

    async def _copy_rules(self, start: int, end: int) -> None:
        """Copy a range's settings that are in force to the journal's end; after a refused write, some twice."""
        async with aclosing(self._rules_in(start, end)) as frames:
            async for settings in frames:
                self._journal.write(Lane.RULES, len(settings), encode_rules(settings))
                await self._journal.wsync()

    async def _owed_in(self, start: int, end: int, owes: bool) -> AsyncGenerator[tuple[int, list[Outcome]]]:
        """Yield each frame's position and its outcomes whose followers are not pushed; nothing unless it `owes`."""
        stores = [partition.store for partition in self._partitions]
        if not owes:
            return
        async with aclosing(self._read(start, end, Lane.OUTCOMES)) as pieces:
            async for piece in pieces:
                with self._charge_piece(piece):
                    owed = await still_waiting(stores, decode_outcomes(piece.body))
                if owed:
                    yield piece.start, owed

    async def _rules_in(self, start: int, end: int) -> AsyncGenerator[list[Setting]]:
        async with aclosing(self._read(start, end, Lane.RULES)) as pieces:
            async for piece in pieces:
                with self._charge_piece(piece):
                    settings = carried(self._settings, decode_rules(piece.body), self._settings.now_ms(self._clock))
                if settings:
                    yield settings

    async def _copy_lane(self, lane: Lane, copied: JournalCopies, unfinished: set[str]) -> None:
        behind = copied.behind.get(lane, copied.start)
        unsynced, since = 0, self._journal.written
        async with aclosing(self._read(behind, copied.end, lane)) as pieces:
            async for piece in pieces:
                with self._charge_piece(piece):
                    frames = list(carry(lane, piece.body, unfinished, piece.start))
                    ids = unfinished.intersection(jobs_in(lane, piece.body))
                    for job_id, generation in (generations(piece.body) if lane is Lane.CHANGES else {}).items():
                        copied.generations[job_id] = max(generation, copied.generations.get(job_id, 0))
                for into, records, body in frames:
                    if unsynced and unsynced + len(body) > COPY_BYTES:
                        await self._journal.wsync(since=since)
                        copied.behind[lane], unsynced, since = behind, 0, self._journal.written
                    copied.ids |= ids
                    self._journal.write(into, records, body)
                    unsynced += len(body)
                behind = piece.start + 1  # this frame is done
        if unsynced:
            await self._journal.wsync(since=since)
        copied.behind[lane] = behind

    @contextmanager
    def _charge_piece(self, piece: Slice) -> Iterator[None]:
        """Turn a JournalDamaged raised in the block into JournalStuck, which names the piece's frame."""
        try:
            yield
        except JournalDamaged as error:
            raise unreadable(self._journal, piece.start, error) from error
