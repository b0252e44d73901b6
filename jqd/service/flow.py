"""The jobs that a job has to do with: found from any of them, cancelled and tried anew together."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import trio

from jqd.domain.clock import Clock
from jqd.domain.errors import Conflict, Denied, JqdError, NotFound, NotYet, StoreAway
from jqd.domain.job import State
from jqd.domain.jobid import parse_id, partition_of
from jqd.domain.settings import SettingTable
from jqd.service.act_on_each import act_on_each
from jqd.service.audit import noted
from jqd.service.bulk import Tally, telling
from jqd.service.cancel import record_cancels
from jqd.service.edit import Kind, change
from jqd.service.find import Coming, resolve
from jqd.service.listing import WALK_S
from jqd.service.principal import Principal
from jqd.service.server_only import is_reserved
from jqd.service.services import Services
from jqd.store import JobView
from jqd.store.links import Linked

FLOW_MAX = 10_000  # jobs of one flow that are looked at, in calls of the store of PIECE jobs each
PIECE = 100  # a job that waits for 10,000 has their ids in its row: 300 kB
PIECES = 4  # such calls at once: the store does one while the answer of another is read here
LOOKS = 4  # flows of which further pages may be asked for: some 10 MB each
LOOK_S = 60.0  # for the next page
CANCELS = 500  # in one frame
CHILDREN_MAX = 200  # of one job that are asked for in one call
DETAIL_MAX = 300  # characters of why a job was left for another: of up to 10,000
INGESTED_S = 1.0  # for what this daemon has journaled: some milliseconds, unless the store is away or far behind

Breathe = Callable[[], Awaitable[None]]


class Flow(NamedTuple):
    """The jobs of a flow that were found."""

    jobs: dict[str, Linked]
    """By id."""
    names: Mapping[str, str]
    """Pusher's own id, with its tenant → id."""
    is_whole: bool
    """False: there are more than FLOW_MAX, or what was pushed here is not all in the store yet."""

    def cancelled_for(self, job: Linked) -> str:
        """Return the parent for which a job was cancelled, as far as is known here; else "". That may have begun anew
        since, and done well."""
        is_child = job.job.flow is not None and job.job.flow.on_parent_failure == "cancel"
        if job.state != State.CANCELLED or not is_child:
            return ""
        bad = (State.FAILED, State.CANCELLED)
        for each in self.parents(job):
            parent = self.jobs.get(each)
            if parent is not None and (parent.state in bad or parent.generation > 1000 * job.ended_ms):
                return each
        return ""

    def parents(self, job: Linked) -> list[str]:
        """Return the ids of the parents of a job; own ones of those that are not here."""
        flow = job.job.flow
        if flow is None:
            return []
        after = [self.names.get(parent, parent) for parent in flow.after]
        return list(dict.fromkeys([*after, flow.parent])) if flow.parent else after


class RecentFlows:
    """The flows that were looked at last, for the pages behind the first: to look again takes as long for each page."""

    def __init__(self, _: SettingTable, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[tuple[Principal, str], tuple[float, Flow]] = {}

    def keep(self, principal: Principal, given: str, flow: Flow) -> None:
        """Keep a flow for its next page; of more than LOOKS the oldest goes."""
        self._kept.pop((principal, given), None)
        while len(self._kept) >= LOOKS:
            del self._kept[next(iter(self._kept))]
        self._kept[principal, given] = self._clock.mono_s() + LOOK_S, flow

    def find(self, principal: Principal, given: str) -> Flow | None:
        """Return it unless it is too old."""
        until_s, flow = self._kept.get((principal, given), (0.0, None))
        return flow if self._clock.mono_s() < until_s else None


async def shown(services: Services, given: str, cursor: str, size: int, breathe: Breathe) -> Flow:
    """As `whole`. A page that is not the first is of the flow as the first one found it, within LOOK_S."""
    looks = services.feature(RecentFlows)
    found = looks.find(services.principal, given) if cursor else None
    if found is None:
        found = await whole(services, given, breathe)
    if len(found.jobs) > size:
        looks.keep(services.principal, given, found)
    return found


async def look(services: Services, job_ids: Iterable[str], breathe: Breathe, most: int = FLOW_MAX) -> dict[str, Linked]:
    """Return those of these jobs that are in the store, and that the principal may see."""
    homes: dict[int, list[str]] = {}
    for job_id in list(dict.fromkeys(job_ids))[:most]:
        homes.setdefault(partition_of(job_id, services.partitions), []).append(job_id)
    found: dict[str, Linked] = {}

    async def one(piece: tuple[int, Sequence[str]]) -> None:
        home, its = piece
        rows = await services.store.at(home).list_links(its, CHILDREN_MAX)
        found.update((row.job.id, row) for row in rows if row and services.principal.can_access(row.job.jobtype))
        await breathe()

    pieces = [(home, its[at : at + PIECE]) for home, its in homes.items() for at in range(0, len(its), PIECE)]
    await act_on_each(pieces, one, PIECES)
    return found


async def whole(services: Services, given: str, breathe: Breathe) -> Flow:
    """Return all jobs that a job has to do with: parents, children, and members of groups. Raises NotFound."""
    is_ingested = await wait_ingested(services)
    first = await resolve(services, given)
    jobs: dict[str, Linked] = {}
    names: dict[str, str] = {}
    groups: set[str] = set()
    seen, due = {first}, [first]
    while due and len(seen) <= FLOW_MAX:
        found = await look(services, due, breathe)
        jobs |= found
        await _resolve(services, found.values(), names)
        due = []
        for job_id, row in found.items():
            near = [*row.listed, *await _more_children(services, job_id, row)]
            near += (parent for parent in Flow(jobs, names, is_whole=True).parents(row) if parse_id(parent) is not None)
            if row.job.flow is not None and row.job.flow.group and row.job.flow.group not in groups:
                groups.add(row.job.flow.group)
                group = await services.home(row.job.flow.group).get_group(row.job.flow.group)
                near += group.job_ids if group is not None else ()
            due += [each for each in dict.fromkeys(near) if each not in seen]
            seen.update(near)
    if first not in jobs:
        raise NotFound(f"there is no job {given[:64]!r} in the store; it never was, is on its way, or was deleted")
    return Flow(jobs, names, is_ingested and len(seen) <= FLOW_MAX)


async def wait_ingested(services: Services) -> bool:
    """Whether the store has all that was pushed here before, within INGESTED_S: who pushed sees it."""
    return await services.control.wait_ingested(INGESTED_S)


async def _more_children(services: Services, job_id: str, row: Linked) -> list[str]:
    """Children of a job that has more than one call tells."""
    listed: dict[int, list[str]] = {}
    store = services.store.at(partition_of(job_id, services.partitions))

    async def one(skip: int) -> None:
        (more,) = await store.list_links([job_id], CHILDREN_MAX, skip)
        if more is not None:
            listed[skip] = more.listed

    skips = range(len(row.listed), min(row.children, FLOW_MAX), CHILDREN_MAX)
    await act_on_each(skips, one, PIECES)
    return [each for skip in skips for each in listed.get(skip, ())]


async def _resolve(services: Services, rows: Iterable[Linked], names: dict[str, str]) -> None:
    """Learn the ids behind parents that are named by their pushers' own ids."""
    flows = [row.job.flow for row in rows if row.job.flow is not None]
    unknown = {parent for flow in flows for parent in flow.after if parse_id(parent) is None and parent not in names}

    async def one(parent: str) -> None:
        job_id = await services.store.resolve(parent)
        if job_id is not None:
            names[parent] = job_id

    await act_on_each(list(unknown), one)


async def cancel_flow(services: Services, given: str, breathe: Breathe, *, dry_run: bool = False) -> Tally:
    """Cancel all jobs of a flow that have not ended. Raises NotFound."""
    flow = await whole(services, given, breathe)
    if not dry_run:
        await noted(services, "flow cancel", given)
    return await cancel_all(services, flow.jobs, [], dry_run=dry_run)


async def retry_flow(services: Services, given: str, breathe: Breathe, *, dry_run: bool = False) -> Tally:
    """Try anew all jobs of a flow that failed, or were cancelled because of a parent. Raises NotFound."""
    flow = await whole(services, given, breathe)
    if not dry_run:
        await noted(services, "flow retry", given)
    return await retry_all(services, flow, dry_run=dry_run)


async def cancel_all(
    services: Services, jobs: Mapping[str, Linked], coming: Sequence[str], *, dry_run: bool = False
) -> Tally:
    """Cancel those that have not ended, children before their parents. `coming`: ids that are not in the store."""
    due = [job_id for job_id, row in jobs.items() if not State(row.state).is_final and _may_change(services, row)]
    due += coming
    tally = Tally(matched=len(due))
    for at in range(0, 0 if dry_run else len(due), CANCELS):
        piece = [Coming(job_id, 0) for job_id in sorted(due, reverse=True)[at : at + CANCELS]]
        await record_cancels(services, piece)
        tally.changed += len(piece)
    return tally


async def retry_all(services: Services, flow: Flow, *, dry_run: bool = False) -> Tally:
    """Try anew what failed, parents before what waits for them. What cannot be for the moment, and what waits for it,
    is told as refused (503): the same call goes on with it. Raises Interrupted, and the first error if all failed."""
    left = {job_id: row for job_id, row in flow.jobs.items() if _is_due(flow, row) and _may_change(services, row)}
    tally = Tally(matched=len(left))
    if dry_run:
        return tally
    await services.hooks.looked(services)
    late: dict[str, JqdError] = {}
    until_s = trio.current_time() + WALK_S

    async def one(job_id: str) -> None:
        why = next((late[parent] for parent in flow.parents(left[job_id]) if parent in late), None)
        if why is None and late and trio.current_time() >= until_s:
            why = next(iter(late.values()))
        try:
            if why is not None:
                raise NotYet(f"it was left as it is for another that could not be tried anew yet: {why}"[:DETAIL_MAX])
            view = await services.store.get_job(job_id)
            if isinstance(view, JobView):
                await change(services, view, Kind.RETRY)
                tally.changed += 1
        except (Conflict, Denied) as error:
            tally.refuse(job_id, 409, str(error))
        except (NotYet, StoreAway) as error:
            late[job_id] = why or error
            tally.refuse(job_id, 503, str(error))

    with telling(tally):
        while left:
            now = [job_id for job_id, row in left.items() if not any(parent in left for parent in flow.parents(row))]
            now = now or list(left)  # they wait for each other: nobody would begin
            await act_on_each(now, one)
            for job_id in now:
                del left[job_id]
            await trio.lowlevel.checkpoint()
        if late and not tally.changed:
            raise next(iter(late.values()))
    return tally


def _is_due(flow: Flow, row: Linked) -> bool:
    """Return whether a retry of the flow retries this job: it failed, or was cancelled for its parent."""
    return row.state == State.FAILED or bool(flow.cancelled_for(row))


def _may_change(services: Services, row: Linked) -> bool:
    return services.principal.is_server or not is_reserved(services, row.job.jobtype)
