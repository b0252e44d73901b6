"""Changes of a job under the name "mine", as the edge makes them."""

from typing import Any

from jqd.domain.job import ChangeKind, Job
from jqd.store import NameJournaled, NameStanding, NameState, NameWanted
from tests.contract.bench import StoreBench, changed

TTL_MS = 30_000
LATER_MS = 10**13


async def confirm(bench: StoreBench, job: Job, digest: str, revision: int, replaces: bool = False) -> bool:
    """Whether this content of the job may be acknowledged under the name "mine"."""
    (stands,) = await bench.store.confirm_names([NameJournaled("mine", job.id, digest, revision, replaces)])
    return stands is NameStanding.STANDS


async def ask(bench: StoreBench, job_id: str, digest: str = "d1", name: str = "mine", replace: int = 0) -> Any:
    """What the store says of one name."""
    (given,) = await bench.store.reserve_names([NameWanted(name, job_id, digest, replace)])
    return given


async def edit_of(bench: StoreBench, job_id: str, seen: int) -> int:
    """The number of a change made of that content, which must be the latest."""
    given = await bench.store.reserve_edit(job_id, seen)
    assert given is not None
    return given.revision


async def push_named(bench: StoreBench, digest: str = "d1", **fields: Any) -> Job:
    """A job under the name "mine", applied."""
    job = bench.make(name="mine", **fields)
    given = await ask(bench, job.id, digest)
    assert given.state is NameState.NEW
    job = changed(job, given.revision, ChangeKind.NEW, digest=digest)
    await bench.add(job)
    return job
