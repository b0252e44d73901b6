"""A daemon's jobs beside its barrier."""

import msgspec
import trio

from jqd.domain.errors import StoreAway
from jqd.domain.job import Fate, Held, Outcome, State
from jqd.domain.record import Head, Lane, encode_jobs, encode_outcomes
from jqd.store import JobView, Owner
from tests.loops.house import House


async def push(here: House, count: int = 1, jobtype: str = "a") -> list[str]:
    """Jobs that came in here."""
    ids = here.journal.ids.take(count)
    jobs = msgspec.msgpack.encode([{"name": jobtype}] * count)
    await here.journal.wsync(here.journal.write(Lane.JOBS, count, encode_jobs(Head(ids.first, 1), jobs)))
    return ids.ids()


async def end(here: House, job_id: str, fence: int, fate: Fate = Fate.SUCCEEDED) -> None:
    """The job's outcome goes to the journal."""
    outcome = Outcome(job_id, fence, fate, "a", 0, 1)
    await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([outcome])))


async def state(here: House, job_id: str) -> State | None:
    view = await here.store.get_job(job_id)
    return view.state if isinstance(view, JobView) else None


async def claimed_here(here: House, nursery: trio.Nursery) -> tuple[str, Held]:
    """A job is pushed at this daemon, ingested and claimed."""
    (job_id,) = await push(here)
    await here.join(nursery)
    owner = await here.wait_claimable()
    await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
    (held,) = await claim(here, owner)
    return job_id, held


async def claim(here: House, owner: Owner, limit: int = 10) -> list[Held]:
    """Claim by hand, as dispatch does."""
    held = await here.store.get_waiting_jobs(owner, "a", limit, priority_min=0, priority_max=0, bytes_max=1 << 20)
    here.runner.run_jobs("w", "a", held)
    return held


async def eventually(here: House, job_id: str, wanted: State) -> bool:
    """Within a minute of the test's own clock."""
    for _ in range(600):
        await trio.sleep(0.1)
        try:
            if await state(here, job_id) is wanted:
                return True
        except StoreAway:
            continue
    return False
