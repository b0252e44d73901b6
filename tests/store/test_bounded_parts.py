"""Whoever asks for much gets it in parts, and many are done by few calls."""

from collections.abc import Awaitable, Callable

import redis

from jqd.domain.job import ChangeKind, Fate, Held, Job
from jqd.domain.jobid import IdSource, journal_number
from jqd.store import CALL_JOBS_MAX, NameJournaled, NameWanted, RedisStore
from jqd.store.methods import BYTES_MAX, STEP_JOBS
from jqd.testing.clock import ManualClock
from tests.contract.bench import JOURNAL, StoreBench, changed, holds, outcome
from tests.contract.limited import KEYED, item
from tests.store.bounded import COMMANDS_PER_JOB, FEW, MANY, Count, bench, count, fill

__all__ = ["bench", "count"]

COMMANDS_OF_NAMES = 100  # inside a script of FEW: as many for any number of jobs


async def test_whoever_asks_for_more_than_is_good_gets_a_part(bench: StoreBench, count: Count) -> None:
    """promote, claim, purge, reap: a part for each call, until all is done."""
    now_ms = bench.clock.wall_ms()
    await fill(bench, MANY, eligible_at_ms=now_ms + 10)
    bench.clock.advance(1)
    owner = await bench.join()
    moved = []
    while (promoted := await bench.store.promote(1_000_000)).moved:
        moved.append(promoted.moved)
    assert sum(moved) == MANY
    assert max(moved) <= CALL_JOBS_MAX
    held: list[Held] = []
    while claimed := await bench.claim(owner, limit=1_000_000, bytes_max=1 << 30):
        assert len(claimed) <= CALL_JOBS_MAX
        held += claimed
    assert len(held) == MANY
    for start in range(0, 4_000, CALL_JOBS_MAX):
        await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in held[start : start + CALL_JOBS_MAX]))
    bench.clock.advance(9)
    count.look()
    purged = []
    while rows := (await bench.store.purge(1_000_000)).rows:
        purged.append(count.look().inside)
    assert len(purged) >= 2
    assert max(purged) <= CALL_JOBS_MAX * COMMANDS_PER_JOB
    await bench.join("two")
    member = (await bench.members(owner))["one"]
    count.look()
    reaped = await bench.store.reap("one", member, 1_000_000)
    assert 0 < reaped <= CALL_JOBS_MAX
    assert rows == 0


async def test_a_whole_hand_is_given_back_in_steps(bench: StoreBench, count: Count) -> None:
    await fill(bench, MANY)
    owner = await bench.join()
    held: dict[str, int] = {}
    while claimed := await bench.claim(owner, limit=CALL_JOBS_MAX):
        held |= holds(claimed)
    assert len(held) == MANY
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: bench.store.reassert(owner, held),
        lambda: bench.store.release_jobs(owner, held),
    ]
    for call in calls:
        count.look()
        await call()
        assert count.look().scripts >= MANY // STEP_JOBS
        assert count.inside <= count.scripts * (STEP_JOBS * COMMANDS_PER_JOB + 30)
    while await bench.claim(owner, limit=CALL_JOBS_MAX):
        continue
    assert len(await bench.store.get_held(owner)) == MANY
    count.look()
    again = await bench.join()
    assert count.look().scripts >= MANY // STEP_JOBS, "what the old epoch held"
    while await bench.claim(again, limit=CALL_JOBS_MAX):
        continue
    count.look()
    await bench.store.release_sysid(again)
    assert count.look().scripts >= MANY // STEP_JOBS
    assert (await bench.store.stats()).waiting == MANY


async def test_big_rows_are_moved_a_few_at_a_time(bench: StoreBench) -> None:
    """Copying them is what takes the time."""
    size = 256 << 10
    rows = 2 * BYTES_MAX // size
    for _ in range(rows):
        await bench.push(
            argument=b"\xc6" + size.to_bytes(4, "big") + bytes(size), eligible_at_ms=bench.clock.wall_ms() + 5
        )
    bench.clock.advance(1)
    moved = (await bench.store.promote(rows)).moved
    assert 0 < moved <= BYTES_MAX // size + 1
    owner = await bench.join()
    assert len(await bench.claim(owner, bytes_max=3 * size)) == 3 - 1, "the third would go beyond"
    assert len(await bench.claim(owner, bytes_max=1)) == 1, "but one at least"


async def test_jobs_of_many_queues_are_added_by_few_calls(store: RedisStore, client: "redis.Redis") -> None:
    """What is asked and written of each job is so for all queues at once; only the type of each queue is its own."""
    SLACK = 5  # commands that a call has at most for more words than one takes
    await store.look(fresh=True)
    await store.reserve_sysid("one", True, through=True)
    source = IdSource(journal=journal_number(JOURNAL), salt=7, clock=ManualClock())
    count, inside, queues_met = Count(client), list[int](), 0
    for at, queues in enumerate((10, 10, 210)):  # the first call finds an empty store
        jobs = [
            Job(job_id, KEYED.partition("\x1e")[0], queue=KEYED + item("one", key=f"={queues_met + place:04}"))
            for place, job_id in enumerate(source.take(queues).ids())
        ]
        queues_met += queues
        count.look()
        await store.apply_jobs(JOURNAL, at, at + 1, jobs)
        inside.append(count.look().inside)
    assert inside[2] - inside[1] <= 200 + SLACK


async def test_many_names_cost_the_server_few_commands(bench: StoreBench, count: Count) -> None:
    jobs = [bench.make(name=f"job-{number}") for number in range(FEW)]
    wanted = [NameWanted(job.name, job.id, "d", 0) for job in jobs]
    count.look()
    given = await bench.store.reserve_names(wanted)
    assert count.look().inside < COMMANDS_OF_NAMES
    new = [changed(job, one.revision, ChangeKind.NEW, digest="d") for job, one in zip(jobs, given, strict=True)]
    await bench.store.confirm_names(
        [NameJournaled(job.name, job.id, "d", one.revision) for job, one in zip(jobs, given, strict=True)]
    )
    assert count.look().inside < COMMANDS_OF_NAMES
    await bench.add(*new)
    assert count.look().inside < COMMANDS_OF_NAMES
    owner = await bench.join()
    held = await bench.claim(owner, limit=FEW)
    ends = [
        outcome(each, Fate.SUCCEEDED, generation=each.generation, follows=b"\x92\xa0\x90" + b"%d" % at)
        for at, each in enumerate(held)
    ]
    count.look()
    assert (len(held), await bench.settle(*ends)) == (FEW, [])
    assert count.look().inside < COMMANDS_OF_NAMES
