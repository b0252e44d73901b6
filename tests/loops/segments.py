"""A daemon whose journal has short segments, and what is said in them."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec

from jqd.domain.job import ChangeKind, Fate, Outcome, State
from jqd.domain.record import Head, Lane, decode_jobs, decode_outcomes, encode_jobs, encode_outcomes
from jqd.domain.settings import SettingTable
from jqd.journal import Journal, JournalConfig, open_journal
from jqd.loops.retention.partition import PartitionRetention
from jqd.loops.retention.retention import Retention
from jqd.store import JobView, Owner, StoreConfig
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.loops.house import House, TrioClock

SEGMENT_BYTES = 4_400


@asynccontextmanager
async def small(
    unsafe: Callable[[], bool] = lambda: False, ended_keep_jobs: int = 100_000
) -> AsyncIterator[tuple[House, Retention]]:
    """A daemon whose journal has short segments and keeps nothing it need not."""
    clock = TrioClock()
    config = JournalConfig(
        directory=Path("/j"), segment_bytes=SEGMENT_BYTES, retention_s=0, retention_bytes=0, commit_bytes_max=1_000
    )
    async with open_journal(config, clock=clock, files=MemoryFiles()) as journal:
        store = FakeStore(clock, StoreConfig(url="redis://fake", ended_keep_jobs=ended_keep_jobs))
        here = House(journal, store, clock, sole=True)
        yield (
            here,
            Retention(
                journal=journal,
                partitions=[PartitionRetention(here.store, here.membership, here.lanes, unsafe)],
                settings=SettingTable(),
                clock=clock,
                source=random.Random(2),
            ),
        )


async def push(here: House, count: int) -> list[str]:
    """One frame each, some 300 bytes."""
    made = []
    for _ in range(count):
        ids = here.journal.ids.take(1)
        jobs = msgspec.msgpack.encode([{"name": "a", "argument": "x" * 200}])
        await here.journal.wsync(here.journal.write(Lane.JOBS, 1, encode_jobs(Head(ids.first, 1), jobs)))
        made.append(ids.first)
    return made


async def change(here: House) -> None:
    """A push under an id of its pusher's."""
    job_id, revision = here.journal.ids.take(1).first, await here.store.reserve_change("any")
    jobs = msgspec.msgpack.encode([{"name": "b", "job_id": "mine"}])
    head = Head(job_id, 1, changes={0: (job_id, revision, revision, ChangeKind.NEW)})
    await here.journal.wsync(here.journal.write(Lane.CHANGES, 1, encode_jobs(head, jobs)))


async def finish(here: House, owner: Owner, keep: set[str]) -> None:
    """Every job but those in `keep` runs and ends; those go back to ready."""
    for lane in here.lanes.values():
        await lane.wait_caught_up(here.journal.end)
    held = await here.store.get_waiting_jobs(owner, "a", 1_000, priority_min=0, priority_max=0, bytes_max=1 << 20)
    outcomes = [Outcome(h.job.id, h.fence, Fate.SUCCEEDED, "a", 0, 1) for h in held if h.job.id not in keep]
    await here.store.release_jobs(owner, {h.job.id: h.fence for h in held if h.job.id in keep})
    for outcome in outcomes:
        await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([outcome])))
    for lane in here.lanes.values():
        await lane.wait_caught_up(here.journal.end)


def outcome_ids(body: bytes) -> list[str]:
    return [outcome.job_id for outcome in decode_outcomes(body)]


async def state(here: House, job_id: str) -> State:
    view = await here.store.get_job(job_id)
    assert isinstance(view, JobView)
    return view.state


async def outcomes_of(journal: Journal, job_id: str) -> list[int]:
    """Where its outcomes are."""
    pieces = [piece async for slices in journal.read_range(Lane.OUTCOMES, 0, journal.end) for piece in slices]
    return [piece.start for piece in pieces if job_id in outcome_ids(piece.body)]


async def copied_at(journal: Journal, job_id: str) -> int:
    """Where its copy is."""
    pieces = [piece async for slices in journal.read_range(Lane.JOBS, 0, journal.end) for piece in slices]
    (place,) = [p.start for p in pieces if any(job.id == job_id and job.copied for job in decode_jobs(p.body))]
    return place


async def jobs_in(journal: Journal) -> list[str]:
    """Ids of all jobs still in the journal."""
    found = []
    async for slices in journal.read_range(Lane.JOBS, journal.start, journal.end):
        found += [job.id for piece in slices for job in decode_jobs(piece.body)]
    return found


async def copies_of(here: House, since: int) -> list[str]:
    """Ids of all copies behind a position, each as often as it was written."""
    found = []
    async with aclosing(here.journal.read_range(Lane.JOBS, since, here.journal.end)) as pieces:
        async for slices in pieces:
            found += [job.id for piece in slices for job in decode_jobs(piece.body)]
    return found
