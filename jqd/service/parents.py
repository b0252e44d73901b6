"""Checks the parents of pushed jobs, which a job waits for. Finds parents that do not exist, and circles of jobs that
wait for each other, of which none would ever begin. Also shows which parents of a job have not ended."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter

from jqd.domain.errors import Fault, NotFound, NotYet, StoreAway
from jqd.domain.flow import Flow
from jqd.domain.job import State
from jqd.domain.jobid import parse_id
from jqd.domain.tenant import bare
from jqd.service.act_on_each import act_on_each
from jqd.service.batch import Batch
from jqd.service.find import find, resolve
from jqd.service.services import Services
from jqd.service.walk import key_of, pieces_of, wait_ingested
from jqd.store import JobView
from jqd.store.links import Linked

LOOKED_MAX = 1_000  # ancestors examined for a circle: ten calls of the store
WAY_MAX = 10  # jobs of a circle named in one sentence


def own_circles(batch: Batch) -> dict[int, Fault]:
    """Return index in `batch.jobs` → fault, for each job that waits for itself through other jobs of the batch, or
    waits for such a job."""
    own = {job.job_id: job.after for job in batch.jobs if job.job_id is not None}
    left = {job_id: parents for job_id, after in own.items() if (parents := own.keys() & after)}
    order = TopologicalSorter(left)
    with suppress(CycleError):  # after the error, jobs outside circles can still be got in order
        order.prepare()
        return {}
    while free := order.get_ready():
        for job_id in free:
            left.pop(job_id, None)
        order.done(*free)
    detail = "it waits for jobs of this request that wait for it, or for each other: none would ever begin"
    return {place: Fault("/after", detail) for place, job in enumerate(batch.jobs) if job.job_id in left}


async def replaced_circles(services: Services, batch: Batch) -> dict[int, Fault]:
    """Find the jobs that would wait for themselves: they replace a stored job, and one of their parents waits for that
    job. Return index in `batch.jobs` → fault.

    Raises StoreAway, StoreRefused."""
    risky = {place: job for place, job in enumerate(batch.jobs) if job.replace and job.after and job.job_id}
    if not risky:
        return {}
    await wait_ingested(services)
    name = services.qualified_name
    own = {
        name(job.job_id): [each if parse_id(each) is not None else name(each) for each in job.after]
        for job in batch.jobs
        if job.job_id
    }
    faults: dict[int, Fault] = {}
    for place, job in risky.items():
        own_id = name(str(job.job_id))
        job_id = await services.store.resolve(own_id)
        if way := await way_back(services, {own_id, job_id or own_id}, own[own_id], own):
            whole = in_words(services, [own_id, *way])
            detail = f"it would wait for itself, by {whole}: none of them would ever begin"
            faults[place] = Fault("/after", detail)
    return faults


async def way_back(
    services: Services, to: Collection[str], after: Sequence[str], own: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the chain of parents by which a job waits for itself; empty if there is none among LOOKED_MAX ancestors.

    `to`: the job's ids. `after`: its parents. `own`: own id → parents, for jobs that are pushed now. Raises StoreAway,
    StoreRefused.
    """
    child: dict[str, str] = dict.fromkeys(after, "")
    due = list(child)
    while due and len(child) <= LOOKED_MAX:
        rows = await rows_of(services, [each for each in due if each not in own])
        near: list[str] = []
        for given in due:
            row = rows.get(given)
            if given in to or (row is not None and row.job.id in to):
                way = [given]
                while child[way[0]]:
                    way.insert(0, child[way[0]])
                return way
            new = [each for each in own.get(given, _awaits(row)) if each not in child]
            child |= dict.fromkeys(new, given)
            near += new
        due = near
    return []


def _awaits(row: Linked | None) -> Sequence[str]:
    """Return the parents that a blocked job waits for; none if the job is not blocked."""
    return row.job.flow.after if row is not None and row.state == State.BLOCKED and row.job.flow is not None else ()


async def rows_of(services: Services, given: Sequence[str]) -> dict[str, Linked]:
    """Read jobs from the store. Returns id → job for those that exist; each id is as in `given`, the daemon's or the
    pusher's."""
    keys = {key_of(each): each for each in given}
    found: dict[str, Linked] = {}
    for home, piece in pieces_of(services, keys):
        rows = await services.store.at(home).list_links(piece, 0)
        found |= {keys[key]: row for key, row in zip(piece, rows, strict=True) if row is not None}
    return found


def in_words(services: Services, way: Sequence[str]) -> str:
    """Return the jobs of a circle as "a → b → a". For a token with scopes only the first and the last are shown."""
    if services.principal.scopes:
        way = [way[0], "…", way[-1]]
    named = [bare(each)[:64] for each in way]
    return " → ".join(named if len(named) <= WAY_MAX else [*named[: WAY_MAX - 1], "…", named[-1]])


CHECKED_MAX = 100  # parents looked up for one request; the chaining loop checks the others later
LOOKS_MAX = 32  # look-ups at once: each is up to two calls of the store
NAMED_MAX = 3  # parents named in one sentence


async def unknown_parents(services: Services, parents: Sequence[str]) -> set[str]:
    """Return those of the first CHECKED_MAX ids for which there is no job: most likely the pusher mistyped them.

    While the store is away, none is returned: the push is accepted, and `explain` shows later what the job waits for.
    For a token with scopes all parents are looked up, as its jobs may get results only of jobs that it may see; then
    StoreAway and NotYet are raised.
    """
    is_scoped = bool(services.principal.scopes)
    unknown: set[str] = set()

    async def look(given: str) -> None:
        try:
            job_id = await resolve(services, given)
            await find(services, job_id, named=job_id != given, given=given)
        except NotFound:
            unknown.add(given)
        except (StoreAway, NotYet):
            if is_scoped:
                raise
            return  # whether the job exists is not known now

    await act_on_each(parents if is_scoped else parents[:CHECKED_MAX], look, LOOKS_MAX)
    return unknown


async def cancelled_for(services: Services, job: JobView) -> str:
    """Return the parent because of which a job was cancelled; "" if none is known. The cancel does not record the
    parent, so this is a guess: the first of CHECKED_MAX parents that did not succeed. Raises StoreAway,
    StoreRefused."""
    flow = job.flow
    if job.state is not State.CANCELLED or flow is None or flow.on_parent_failure != "cancel":
        return ""
    rows = await rows_of(services, flow.after[:CHECKED_MAX])
    bad = (State.FAILED, State.CANCELLED)
    return next((bare(parent) for parent in flow.after if parent in rows and rows[parent].state in bad), "")


async def awaited(services: Services, job: JobView, flow: Flow) -> str:
    """Return, as a sentence, what a blocked job waits for: the first parents that have not ended."""
    way = await way_back(services, {job.id, job.name} - {""}, flow.after, {})
    if way:
        whole = in_words(services, [job.name or job.id, *way])
        return f"it waits for itself, by {whole}, and never begins: cancel one of them, or run it now"
    # The parents' own ids are those of the job's tenant, whoever asks.
    services = services.as_principal(services.principal._replace(tenant=job.tenant))
    unknown = "not known to this token" if services.principal.scopes else "nobody knows it"
    named: list[str] = []
    for parent in map(bare, flow.after[:CHECKED_MAX]):
        try:
            job_id = await resolve(services, parent)
            view = await find(services, job_id, named=job_id != parent, given=parent)
        except NotFound:
            named.append(f"{parent} ({unknown})")
        except NotYet:
            named.append(f"{parent} (on its way)")
        else:
            if not view.state.is_final:
                state = view.state.value if isinstance(view, JobView) else "on its way"
                named.append(f"{parent} ({state})")
        if len(named) == NAMED_MAX:
            break
    which = f": {', '.join(named)}" if named else ""
    count = len(flow.after)
    return f"it waits for its {'parent' if count == 1 else f'{count} parents'}{which}"
