"""Finds pushed jobs whose unique key another unfinished job has. They are duplicates of that job, and are not pushed;
they may postpone it (`debounce`)."""

from collections.abc import Iterator, Sequence

from msgspec import UNSET, Struct, structs

from jqd.domain.errors import Conflict, Denied, Fault, NotFound, NotYet
from jqd.domain.flow import unique_text
from jqd.domain.job import NIL, State
from jqd.domain.job_spec import JobSpec
from jqd.service.batch import Batch
from jqd.service.edit import Edit, edit, latest
from jqd.service.push_links import PushLinks
from jqd.service.services import Services

TRIES = 3  # a job that is to be put off may begin just then, which may free its key; another job may get that


class Known(Struct, frozen=True):
    """Says which jobs of a request are duplicates, and which are pushed."""

    size: int
    """Number of jobs in the request."""
    pushed: list[int]
    """Indexes in the request of the jobs that are pushed."""
    firsts: dict[int, str]
    """Index in the request of a duplicate → id of the unfinished job that has its key."""
    same: dict[int, int]
    """For duplicates within the request: index in the request → index in `pushed` of the job that gets the key."""

    def ids(self, job_ids: Sequence[str | None]) -> list[str | None]:
        """Return one id per job of the request, in its order. `job_ids`: the ids of the jobs that were pushed."""
        found = dict(zip(self.pushed, job_ids, strict=True)) | self.firsts
        found |= {place: job_ids[at] for place, at in self.same.items()}
        return [found.get(place) for place in range(self.size)]

    def duplicates(self, job_ids: Sequence[str | None]) -> list[str]:
        """Return, for each duplicate, the id of the job that has its key. `job_ids`: the ids of the jobs that were
        pushed."""
        same = (job_ids[at] for at in self.same.values())
        return [*self.firsts.values(), *(job_id for job_id in same if job_id is not None)]

    def faults(self, refused: Sequence[Fault]) -> Iterator[Fault]:
        """Return the faults of pushed jobs, with `place` changed from the index in `pushed` to that in the request."""
        return (fault._replace(place=self.pushed[fault.place or 0]) for fault in refused)


async def without_known(services: Services, batch: Batch, links: PushLinks) -> tuple[Batch, Known]:
    """Reserve the unique keys of a batch. Return the batch without duplicates, and which jobs are duplicates.

    Raises Denied, NotYet, StoreAway, StoreRefused.
    """
    places = batch.places
    keys = [services.unique_key(job) for job in batch.jobs]
    stands: dict[str, int] = {}  # key → index of the job to be pushed for it: the first, or the last with `debounce`
    for at, (key, job) in enumerate(zip(keys, batch.jobs, strict=True)):
        if key and (key not in stands or job.debounce is not None):
            stands[key] = at
    if not stands:
        return batch, Known(batch.size, places, {}, {})
    taken = await _taken(services, [batch.jobs[at] for at in stands.values()], links)
    kept = [at for at, key in enumerate(keys) if not key or (stands[key] == at and key not in taken)]
    known = Known(batch.size, [places[at] for at in kept], {}, {})
    at_of = {at: place for place, at in enumerate(kept)}
    for at, key in enumerate(keys):
        if key and key in taken:
            known.firsts[places[at]] = taken[key]
        elif key and stands[key] != at:
            known.same[places[at]] = at_of[stands[key]]
    if len(kept) == batch.size:
        return batch, known
    array, jobs = batch.only(kept)
    return structs.replace(batch, size=len(kept), array=array, jobs=jobs, refused=[]), known


async def _taken(services: Services, jobs: Sequence[JobSpec], links: PushLinks) -> dict[str, str]:
    """Reserve the unique keys of jobs. Returns the keys that are taken: key → id of the unfinished job that has it.
    That job is postponed if its duplicate has `debounce`. Raises NotYet."""
    taken: dict[str, str] = {}
    due = {services.unique_key(job): job for job in jobs}
    for _ in range(TRIES):
        has = await links.reserve_keys(list(due.values()))
        late = {key: due[key] for key in has if not await _postpone(services, due[key], has[key])}
        taken |= {key: job_id for key, job_id in has.items() if key not in late}
        if not late:
            return taken
        due = late
    key = unique_text(next(iter(due)))
    raise NotYet(f"the job with the unique key {key!r} begins, and could not be put off: push this again")


async def _postpone(services: Services, job: JobSpec, first: str) -> bool:
    """If a duplicate (`job`) has `debounce`, postpone the job `first` that has its key, and give `first` the
    duplicate's argument. Returns False if `first` has begun or is gone, so that the key may be free; else True."""
    if job.debounce is None:
        return True
    wanted = Edit(delay=job.debounce, argument=UNSET if bytes(job.argument) == NIL else job.argument)
    try:
        if (await latest(services, first)).state is State.BLOCKED:  # it waits for other jobs, so it has no date
            wanted = Edit(argument=wanted.argument)
        if wanted != Edit():
            await edit(services, first, wanted)
    except NotFound as error:
        if services.principal.is_bound:
            raise Denied(f"the unique key {job.unique!r} is of a job that this token is not for") from error
        return False
    except Conflict:
        return False
    return True
