"""Cancels and retries all jobs of a flow together. A flow is a job and all jobs that it is linked with, directly or
not."""

from collections.abc import Mapping, Sequence

import trio

from jqd.domain.errors import Conflict, Denied, JqdError, NotYet, StoreAway
from jqd.domain.job import State
from jqd.service.act_on_each import act_on_each
from jqd.service.bulk import Tally, counting_changes
from jqd.service.cancel import record_cancels
from jqd.service.edit import Kind, change
from jqd.service.find import Coming
from jqd.service.listing import WALK_S
from jqd.service.server_only import is_reserved
from jqd.service.services import Services
from jqd.service.settings import Note, noting
from jqd.service.walk import Breathe, Flow, cursor_of, part, with_parents
from jqd.store import JobView
from jqd.store.links import Linked

CANCELS = 500  # cancels in one frame of the journal
PASSES = 4  # a cancel looks this often for jobs that running jobs of the flow pushed before they were stopped
DETAIL_MAX = 300  # characters of the reason for each refused job, of which there may be 10,000


async def cancel_flow(services: Services, given: str, begin: int, breathe: Breathe, *, dry_run: bool = False) -> Tally:
    """Cancel the jobs of a flow that have not ended. Of a large flow only one part is cancelled: the jobs that come
    after the `begin` jobs nearest to the given one. The returned cursor leads to the next part.

    Jobs that join the flow meanwhile are cancelled too, unless the flow is cancelled in parts. `breathe`: awaited
    between steps, so that other requests go on. `dry_run`: only count the jobs. Raises NotFound."""
    flow, end = await part(services, "cancel", given, begin, breathe)
    if dry_run:
        return _with_cursor(await cancel_all(services, flow.jobs, [], None), flow, end)
    note, tally, seen, new = noting(services, "flow cancel", given), Tally(), set[str](), flow.jobs
    with counting_changes(tally):
        for _ in range(PASSES):
            some = await cancel_all(services, new, [], note)
            tally.matched, tally.changed = tally.matched + some.matched, tally.changed + some.changed
            seen.update(new)
            if begin or end:
                break
            flow, end = await part(services, "cancel", given, begin, breathe)
            new = {job_id: row for job_id, row in flow.jobs.items() if job_id not in seen}
            if not new:
                break
    return _with_cursor(tally, flow, end)


async def retry_flow(services: Services, given: str, begin: int, breathe: Breathe, *, dry_run: bool = False) -> Tally:
    """Retry the jobs of a flow that failed, or were cancelled because of a parent. `given`: an id of any job of the
    flow, its pusher's or the daemon's. Of a large flow only one part is retried: the jobs after the `begin` jobs
    nearest to that one. The returned cursor leads to the next part.

    If the flow is retried in parts, a child may fail again because of a parent in a later part. `breathe`: awaited
    between steps. `dry_run`: only count the jobs. Raises NotFound.
    """
    flow, end = await part(services, "retry", given, begin, breathe)
    in_part = flow.jobs.keys()
    if begin or end:
        flow = await with_parents(services, flow, breathe)
    if dry_run:  # parents in another part are counted there
        return _with_cursor(Tally(matched=len(_due(services, flow).keys() & in_part)), flow, end)
    return _with_cursor(await retry_all(services, flow, noting(services, "flow retry", given)), flow, end)


def _with_cursor(tally: Tally, flow: Flow, end: int) -> Tally:
    """Return `tally` with the cursor of the next part, which begins after `end` jobs. If this is the last part (`end`
    is 0) and jobs of the flow may be missing, set `tally.whole` to False."""
    if end:
        tally.cursor = cursor_of(end)
    elif not flow.is_whole:
        tally.whole = False
    return tally


async def cancel_all(services: Services, jobs: Mapping[str, Linked], coming: Sequence[str], note: Note | None) -> Tally:
    """Cancel those of the jobs that have not ended, children before their parents.

    `coming`: ids of jobs that are not in the store yet. `note`: writes the request to the audit log before the first
    cancel; None: the jobs are only counted.
    """
    due = [job_id for job_id, row in jobs.items() if not State(row.state).is_final and _may_change(services, row)]
    due += coming
    tally = Tally(matched=len(due))
    if not due or note is None:
        return tally
    await note()
    for at in range(0, len(due), CANCELS):
        piece = [Coming(job_id, 0) for job_id in sorted(due, reverse=True)[at : at + CANCELS]]
        await record_cancels(services, piece)
        tally.changed += len(piece)
    return tally


async def retry_all(services: Services, flow: Flow, note: Note | None) -> Tally:
    """Retry the failed jobs of a flow, parents before their children. Jobs that cannot be retried at the moment, and
    their children, are reported as refused (503); the client repeats the call to retry them.

    `note`: writes the request to the audit log before the first retry; None: only count the jobs. Raises Interrupted if
    an error comes after the first retry, and the first error if no job could be retried.
    """
    left = _due(services, flow)
    tally = Tally(matched=len(left))
    if not left or note is None:
        return tally
    await note()
    await services.hooks.count_usage(services)
    late: dict[str, JqdError] = {}
    until_s = trio.current_time() + WALK_S

    async def retry(job_id: str) -> None:
        why = next((late[parent] for parent in flow.parents(left[job_id]) if parent in late), None)
        if why is None and late and trio.current_time() >= until_s:
            why = next(iter(late.values()))
        try:
            if why is not None:
                raise NotYet(f"it was left as it is for another that could not be retried yet: {why}"[:DETAIL_MAX])
            view = await services.store.get_job(job_id)
            if isinstance(view, JobView):
                await change(services, view, Kind.RETRY)
                tally.changed += 1
        except (Conflict, Denied) as error:
            tally.refuse(job_id, 409, str(error))
        except (NotYet, StoreAway) as error:
            late[job_id] = why or error
            tally.refuse(job_id, 503, str(error))

    with counting_changes(tally):
        while left:
            now = [job_id for job_id, row in left.items() if not any(parent in left for parent in flow.parents(row))]
            now = now or list(left)  # jobs that wait for each other: none has only retried parents
            await act_on_each(now, retry)
            for job_id in now:
                del left[job_id]
            await trio.lowlevel.checkpoint()
        if late and not tally.changed:
            raise next(iter(late.values()))
    return tally


def _due(services: Services, flow: Flow) -> dict[str, Linked]:
    """Return the jobs of the flow that `retry_all` retries: those that failed, or were cancelled because of a
    parent."""
    due = {job_id: row for job_id, row in flow.jobs.items() if row.state == State.FAILED or flow.cancelled_for(row)}
    return {job_id: row for job_id, row in due.items() if _may_change(services, row)}


def _may_change(services: Services, row: Linked) -> bool:
    return services.principal.is_server or not is_reserved(services, row.job.jobtype)
