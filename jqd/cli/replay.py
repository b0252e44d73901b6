"""Applies the records of journals to a store, after a store was lost, or a machine except its disk.

    order       cancels, outcomes, changes, jobs, rules (settings)
    why         the store keeps an outcome or cancel that comes before its job, so that an ended job does not run again;
                a change must come before the job that it changed
    outcomes    those with followers come last, in reverse order: a follower is a job, too, and its own outcome must
                come before the outcome that brings it

Of each lane only those records are applied that the store has not applied of that journal yet, as by a daemon that
starts there: a job before them may have ended elsewhere, and the store may have forgotten it since.

Records are applied by the store's own methods, under a new journal id, which the store forgets at the end: so the read
points of running daemons stay as they are, and several replays may run at once. Jobs whose ids the store has are not
changed, nor is a failed attempt counted twice, so a second replay changes nothing.
"""

import os
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import trio
from msgspec import structs

from jqd.domain.backoff import Backoff
from jqd.domain.errors import JournalDamaged, PositionMismatch, StoreAway, StoreError, StoreRefused
from jqd.domain.job import Fate, Job, Outcome
from jqd.domain.jobid import partition_of
from jqd.domain.outcome_followers import followers_in, has_jobs
from jqd.domain.record import CARRIED, DECODERS, Lane
from jqd.domain.settings import Setting
from jqd.journal import Files
from jqd.journal.frame import Frame
from jqd.journal.inspect import Kind, Place, SegmentView, retired_in, walk
from jqd.loops.lane_records import CHUNK_BYTES, CHUNK_RECORDS, RECORD_BYTES, job_bytes, outcome_bytes
from jqd.store import JobView, Store

DAMAGED_MAX = 100  # damaged places reported
ASK_AT_ONCE = 8  # as many as a store has connections
AWAY_TRIES = 8  # some 12 s: longer than a server takes to restart
AWAY_BACKOFF = Backoff(first_s=0.1, factor=2.0, cap_s=5.0)
ORDER = (Lane.CANCELS, Lane.OUTCOMES, Lane.CHANGES, Lane.JOBS, Lane.RULES)

T = TypeVar("T")
Progressed = Callable[[int], None]


@dataclass
class Tally:
    """What a replay applied, or would apply."""

    counts: dict[Lane, int] = field(default_factory=lambda: dict.fromkeys(ORDER, 0))
    unknown: int | None = None
    """Number of jobs that the store does not know; None: the store was not asked."""
    damaged: list[Place] = field(default_factory=list)
    """The damaged places in the journal, at most DAMAGED_MAX."""

    def note(self, place: Place) -> None:
        """Add a damaged place in the journal to `damaged`, once: each segment is read once for each lane."""
        if place.kind.is_damage and len(self.damaged) < DAMAGED_MAX and place not in self.damaged:
            self.damaged.append(place)


class Batch(NamedTuple):
    """Records of one kind (lane) that follow one another in a segment."""

    segment: SegmentView
    records: list[tuple[int, Any]]
    """Each record with its position in the journal."""
    bytes: int
    """How many bytes of the segment were read to get these records."""


async def replay(
    files: Files,
    segments: Sequence[SegmentView],
    stores: Sequence[Store],
    *,
    whole: bool = False,
    since_ms: int = 0,
    progressed: Progressed = lambda size: None,
) -> Tally:
    """Apply the records of these segments that the store lacks (`whole`: all of them), except jobs pushed before
    `since_ms`. `progressed`: called with the number of bytes read since its last call.

    `segments`: sorted by directory. `stores`: the partitions, in order; each gets the records of its own jobs. Raises
    StoreAway if the store stays away for some seconds, StoreRefused if it refuses records; it may be repeated then.
    """
    tally = _tally(segments)
    targets = [_Target(store) for store in stores]
    for target in targets:
        await target.look()
    missing = await _missing(files, segments, stores, whole=whole)
    retired = missing.retired

    async def apply(lane: Lane, batch: Batch) -> None:
        for target, records in zip(targets, missing.split(lane, batch), strict=True):
            if records:
                await target.apply(lane, batch._replace(records=records))

    bringing: list[SegmentView] = []
    for lane in ORDER:
        batches = _batches(files, segments, lane, since_ms, tally)
        while (batch := await _next(batches)) is not None:
            now, later = _without_old_followers(batch, retired) if lane is Lane.OUTCOMES else (batch.records, [])
            await apply(lane, batch._replace(records=now))
            if later and batch.segment not in bringing[-1:]:
                bringing.append(batch.segment)
            tally.counts[lane] += len(missing.of_any(lane, batch))
            progressed(batch.bytes)
        while lane is Lane.OUTCOMES and bringing:
            for batch in await trio.to_thread.run_sync(_bringing, files, bringing.pop(), retired, tally):
                await apply(lane, batch)
    for target in targets:
        await target.forget()
    return tally


class _Missing:
    """The records that a store lacks."""

    def __init__(self, applied: Sequence[Mapping[Path, Mapping[Lane, int]]], retired: Mapping[Path, int]) -> None:
        """`applied`: of each partition, directory of a journal → up to where the store applied its lanes. `retired`: as
        `_retired` returns."""
        self._applied, self.retired = applied, retired

    def split(self, lane: Lane, batch: Batch) -> list[list[tuple[int, Any]]]:
        """Return for each partition its records of a batch, each with its position."""
        directory, parts = batch.segment.path.parent, len(self._applied)
        retired = self.retired[directory] if lane in CARRIED else 0
        starts = [max(retired, applied[directory][lane]) for applied in self._applied]
        return [
            [(at, record) for at, record in batch.records if at >= start and _is_of(record, number, parts)]
            for number, start in enumerate(starts)
        ]

    def of_any(self, lane: Lane, batch: Batch) -> list[Any]:
        """Return the records of a batch that any partition lacks."""
        lacked = dict[int, Any]()
        for records in self.split(lane, batch):
            lacked.update(records)
        return list(lacked.values())


async def _missing(files: Files, segments: Sequence[SegmentView], stores: Sequence[Store], *, whole: bool) -> _Missing:
    """Ask the partitions of the store what they lack. `whole`: ask nothing, for they are to get all. Raises StoreAway,
    StoreRefused, JournalRefused."""
    directories = {seen.path.parent for seen in segments}
    ids = {seen.path.parent: seen.header.journal_id.hex() for seen in segments if seen.header is not None}
    found: list[dict[Path, Mapping[Lane, int]]] = []
    retired = dict.fromkeys(directories, 0) if whole else await trio.to_thread.run_sync(_retired, files, segments)
    for store in stores:
        found.append({directory: dict.fromkeys(Lane, 0) for directory in directories})
        for directory, journal_id in ids.items() if not whole else ():
            found[-1][directory] = await patiently(partial(store.applied, journal_id, is_ours=False))
    return _Missing(found, retired)


def _retired(files: Files, segments: Sequence[SegmentView]) -> dict[Path, int]:
    """Return directory of a journal → position from which its daemon reads jobs. Jobs before this position have ended,
    or were copied into a later segment."""
    by_directory: dict[Path, list[SegmentView]] = {}
    for seen in segments:
        by_directory.setdefault(seen.path.parent, []).append(seen)
    return {directory: retired_in(files, its) for directory, its in by_directory.items()}


def _without_old_followers(
    batch: Batch, retired: Mapping[Path, int]
) -> tuple[list[tuple[int, Any]], list[tuple[int, Any]]]:
    """Split the outcomes of a batch into those without followers and those with followers, each with its position.
    Followers of an outcome before its journal's position in `retired` are dropped: they are jobs in journals
    themselves, and the store may have forgotten them after their end (adr/0047)."""
    now: list[tuple[int, Any]] = []
    later: list[tuple[int, Any]] = []
    for at, one in batch.records:
        is_old = one.follows and at < retired[batch.segment.path.parent]
        brings = not is_old and has_jobs(one.follows)
        (later if brings else now).append((at, structs.replace(one, follows=b"") if is_old else one))
    return now, later


def _bringing(files: Files, seen: SegmentView, retired: Mapping[Path, int], tally: Tally) -> list[Batch]:
    """Return the outcomes with followers in a segment, in batches, the last batch first. `retired`: see
    `_without_old_followers`."""
    batches = [
        batch._replace(records=later)
        for batch in _batches(files, [seen], Lane.OUTCOMES, 0, tally)
        if (later := _without_old_followers(batch, retired)[1])
    ]
    return batches[::-1]


async def count(
    files: Files,
    segments: Sequence[SegmentView],
    stores: Sequence[Store],
    *,
    whole: bool = False,
    since_ms: int = 0,
    progressed: Progressed = lambda size: None,
) -> Tally:
    """Count the records that `replay` would apply, and the jobs of them that the store does not know. Changes nothing.
    Without `stores` no store is asked: all records count. Raises StoreAway, StoreRefused."""
    tally = _tally(segments)
    tally.unknown = 0 if stores else None
    missing = await _missing(files, segments, stores, whole=whole)
    for lane in ORDER:
        batches = _batches(files, segments, lane, since_ms, tally)
        while (batch := await _next(batches)) is not None:
            records = missing.of_any(lane, batch) if stores else [record for _, record in batch.records]
            tally.counts[lane] += len(records)
            if tally.unknown is not None and lane in CARRIED:
                tally.unknown += await _unknown(stores, [job.id for job in records])
            progressed(batch.bytes)
    return tally


def _tally(segments: Sequence[SegmentView]) -> Tally:
    tally = Tally()
    for seen in segments:
        for place in seen.places:
            tally.note(place)
    return tally


async def _unknown(stores: Sequence[Store], job_ids: Sequence[str]) -> int:
    unknown, failed = 0, list[StoreError]()

    async def ask(part: Sequence[str]) -> None:
        nonlocal unknown
        try:
            for job_id in part:
                store = stores[partition_of(job_id, len(stores))]
                known = isinstance(await store.get_job(job_id), JobView)
                unknown += not known
        except StoreError as error:
            failed.append(error)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for number in range(ASK_AT_ONCE):
            nursery.start_soon(ask, job_ids[number::ASK_AT_ONCE])
    if failed:
        raise failed[0]
    return unknown


# ---------------------------------------------------------------- into the store


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call to the store, and repeat it while the store is away, for as long as a server takes to restart; after
    that, raise StoreAway."""
    source = random.Random()
    for failures in range(1, AWAY_TRIES):
        try:
            return await call()
        except StoreAway:
            await trio.sleep(AWAY_BACKOFF.delay_s(failures, source))
    return await call()


class _Target:
    """Applies records to one partition of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._id = os.urandom(16).hex()  # never shared: another replay's call would be taken for one of ours, repeated
        self._calls = dict.fromkeys(Lane, 0)  # calls so far: used as positions, by which the store knows a repeated one

    async def look(self) -> None:
        """Initialise the store if it is empty: it takes no records before that."""
        await patiently(lambda: self._store.look(fresh=False))

    async def forget(self) -> None:
        """Let the store forget this replay's positions. Those of one that failed stay: a few fields."""
        await patiently(lambda: self._store.forget_journal(self._id))

    async def apply(self, lane: Lane, batch: Batch) -> None:
        """Apply a batch of records. Of outcomes, those that ask for a retry are applied before those that end a job."""
        records = [record for _, record in batch.records]
        match lane:
            case Lane.CANCELS:
                await self._apply(lane, self._store.apply_cancels, records)
            case Lane.JOBS:
                await self._apply(lane, self._store.apply_jobs, records)
            case Lane.RULES:
                await self._apply(lane, self._store.apply_settings, records)
            case Lane.CHANGES:
                await self._apply(lane, self._store.apply_changes, records)
            case Lane.OUTCOMES:
                again = [outcome for outcome in records if outcome.fate is Fate.RETRY]
                ending = [outcome for outcome in records if outcome.fate is not Fate.RETRY]
                if again:
                    await self._apply(lane, self._store.apply_outcomes, again)
                if ending:
                    await self._apply(lane, self._end, ending)

    async def _apply(
        self, lane: Lane, method: Callable[[str, int, int, Sequence[T]], Awaitable[object]], records: Sequence[T]
    ) -> None:
        start = self._calls[lane]
        try:
            await patiently(lambda: method(self._id, start, start + 1, records))
        except PositionMismatch as error:
            raise StoreRefused("the store lost what was replayed so far; run this again") from error
        self._calls[lane] = start + 1

    async def _end(self, name: str, start: int, end: int, outcomes: Sequence[Outcome]) -> None:
        outcomes = await self._store.put_results(name, start, outcomes)
        # A copied follower counts as an original, as this store never had the journal that it was copied in.
        followers = {
            place: [structs.replace(job, copied=None) for job in jobs] for place, jobs in followers_in(outcomes).items()
        }
        await self._store.apply_outcomes(name, start, end, outcomes, followers=followers)


def _job_id(record: Job | Outcome | str) -> str:
    """Return the id of a record's job. For a cancel the text also has the job's generation behind the id; its partition
    is that of the id."""
    if isinstance(record, str):
        return record
    return record.id if isinstance(record, Job) else record.job_id


def _is_of(record: Job | Outcome | Setting | str, number: int, partitions: int) -> bool:
    """Return whether a record is for partition `number`. Settings are for all partitions."""
    return isinstance(record, Setting) or partition_of(_job_id(record), partitions) == number


# ---------------------------------------------------------------- out of the journal


async def _next(batches: Iterator[Batch]) -> Batch | None:
    return await trio.to_thread.run_sync(next, batches, None)


def _batches(files: Files, segments: Sequence[SegmentView], lane: Lane, since_ms: int, tally: Tally) -> Iterator[Batch]:
    """Yield the records of one lane in batches, each small enough for one call of the store and from one segment.
    Leaves out jobs pushed before `since_ms`; adds damaged places to `tally`."""
    for seen in segments:
        batch, looked = _Gathered(seen), seen.first
        for piece in walk(files, seen, kinds={lane}):
            if isinstance(piece, Place):
                tally.note(piece)
                continue
            for position, record in _decoded(piece, lane, seen, tally):
                if isinstance(record, Job) and record.created_at_ms < since_ms:
                    continue
                size = _size(record)
                if batch.is_full(size):
                    yield batch.taken(piece.start - looked)
                    looked = piece.start
                batch.add(position, record, size)
        yield batch.taken(seen.end - looked)


class _Gathered:
    def __init__(self, segment: SegmentView) -> None:
        self._segment = segment
        self._records: list[tuple[int, Any]] = []
        self._bytes = 0

    def is_full(self, size: int) -> bool:
        """Return whether a further record of `size` bytes would make the batch too large for one call."""
        return bool(self._records) and (len(self._records) == CHUNK_RECORDS or self._bytes + size > CHUNK_BYTES)

    def add(self, position: int, record: Any, size: int) -> None:
        self._records.append((position, record))
        self._bytes += size

    def taken(self, looked: int) -> Batch:
        records, self._records, self._bytes = self._records, [], 0
        return Batch(self._segment, records, looked)


def _decoded(piece: Frame, lane: Lane, seen: SegmentView, tally: Tally) -> Iterator[tuple[int, Any]]:
    start = piece.start
    try:
        for position, record in enumerate(DECODERS[lane](piece.body), start):
            # A copy counts as an original, as this store never had the journal that it was copied in.
            copied = isinstance(record, Job) and record.copied is not None
            yield position, structs.replace(record, copied=None) if copied else record
    except JournalDamaged as error:
        tally.note(seen.place(Kind.BAD_BODY, start, piece.end, str(error)))


def _size(record: Job | Outcome | Setting | str) -> int:
    match record:
        case Setting():
            return len(bytes(record.body)) + RECORD_BYTES
        case Job():
            return job_bytes(record)
        case Outcome():
            return outcome_bytes(record)
    return RECORD_BYTES
