"""Flows, the jobs that a job is linked with: GET /v1/jobs/{id}/flow, and POST of its /cancel and /retry."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import read_body, read_query
from jqd.api.lists import Page
from jqd.domain.job import State
from jqd.domain.tenant import bare
from jqd.http import Request
from jqd.service import flow, walk
from jqd.service.bulk import Tally
from jqd.service.listing import no_cursor
from jqd.service.walk import BEHIND, FLOW_MAX, LINKS_MAX, NEAR_MAX, cursor_of
from jqd.store.links import Linked

PAGE = 500  # jobs of one answer


class FlowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query parameters for a page of a flow: all jobs that a job is linked with."""

    limit: Annotated[int, Meta(ge=1, le=PAGE)] = PAGE
    """The most jobs of a page."""
    cursor: str = ""
    """The previous page's cursor."""


class Change(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a cancel or retry of a whole flow or group."""

    dry_run: bool = False
    """Only count the jobs."""


class FlowChange(Change, frozen=True, forbid_unknown_fields=True):
    """The body of a cancel or retry of a flow: each call changes 10,000 jobs, the nearest first."""

    cursor: str = ""
    """The previous answer's cursor. Jobs that fail again or join meanwhile need another round of calls."""


class FlowJob(Struct, frozen=True):
    """One job in the page of a flow, with the jobs that it is linked with."""

    job_id: str
    name: str
    state: State
    attempts: Annotated[int, Meta(description="with the one that goes on")]
    parents: Annotated[Sequence[str], Meta(description=f"the first {NEAR_MAX}")]
    children: Annotated[Sequence[str], Meta(description=f"the first {NEAR_MAX}")]
    waits_for: Annotated[Sequence[str], Meta(description=f"parents that have not ended: the first {NEAR_MAX}")]
    group: str | UnsetType = UNSET
    cancelled_for: Annotated[str, Meta(description="the parent that did not succeed")] | UnsetType = UNSET


class FlowPage(Page, frozen=True):
    """One page of a flow. The first page has the jobs nearest to the job in the path. Within a page the oldest job is
    first."""

    jobs: Sequence[FlowJob]
    whole: bool
    """On the last page: false if jobs may be missing, because the flow has more than 10,000, or some are not in the
    store yet."""


async def get(parts: ApiContext, request: Request, job_id: str) -> FlowPage:
    """`GET /v1/jobs/{id}/flow?limit=&cursor=`: all jobs that a job is linked with, however far away → 200; 404."""
    query = read_query(request, FlowQuery)
    found = await walk.shown(parts.services, job_id, _begin(query.cursor), query.limit, request.breathe)
    jobs = []
    for row in found.rows:
        jobs.append(_row_of(found.flow, row, is_scoped=bool(parts.services.principal.scopes)))
        await request.breathe()
    return FlowPage(jobs, found.flow.is_whole, cursor=cursor_of(found.end) if found.end else "")


async def cancel(parts: ApiContext, request: Request, job_id: str) -> Tally:
    """`POST /v1/jobs/{id}/flow/cancel`: cancel all jobs of a job's flow that have not ended."""
    begin, dry_run = _read_flow_change(request)
    return await flow.cancel_flow(parts.services, job_id, begin, request.breathe, dry_run=dry_run)


async def retry(parts: ApiContext, request: Request, job_id: str) -> Tally:
    """`POST /v1/jobs/{id}/flow/retry`: retry all jobs of a job's flow that failed, or were cancelled because of a
    parent."""
    begin, dry_run = _read_flow_change(request)
    return await flow.retry_flow(parts.services, job_id, begin, request.breathe, dry_run=dry_run)


def _begin(cursor: str, most: int = FLOW_MAX) -> int:
    """Return how many jobs of a flow come before the next page, from its cursor; of a change, before the jobs that the
    next call changes. `most`: the largest number that a cursor may have. Raises Invalid."""
    if not cursor:
        return 0
    sign, number = cursor[:1], cursor[1:]
    if not (sign == BEHIND and number.isdecimal() and number.isascii() and len(number) <= len(str(most))):
        raise no_cursor(cursor)
    return int(number)


def _read_flow_change(request: Request) -> tuple[int, bool]:
    """Decode the body of a cancel or retry of a flow. Returns how many jobs of the flow come before those to change,
    and `dry_run`. Raises Invalid."""
    change = read_body(request, FlowChange) if request.body else FlowChange()
    return _begin(change.cursor, LINKS_MAX), change.dry_run


def read_change(request: Request) -> Change:
    """Decode the body of a cancel or retry, which may be left out. Raises Invalid."""
    return read_body(request, Change) if request.body else Change()


def _row_of(found: walk.Flow, row: Linked, *, is_scoped: bool) -> FlowJob:
    """Make the row of one job in a page of a flow. `is_scoped`: leave out the ids of linked jobs that were not found,
    because the token may not have the right to see them."""

    def known(job_ids: Sequence[str]) -> list[str]:
        return [each for each in job_ids if each in found.jobs] if is_scoped else [*job_ids]

    parents = known(found.parents(row))
    waits = [each for each in parents if each in found.jobs and not State(found.jobs[each].state).is_final]
    blocked = row.state == State.BLOCKED
    group = row.job.flow.group if row.job.flow is not None else ""
    return FlowJob(
        _called(found, row.job.id),
        bare(row.job.jobtype),
        State(row.state),
        row.attempts,
        [_called(found, each) for each in parents[:NEAR_MAX]],
        [_called(found, each) for each in known(row.listed)[:NEAR_MAX]],
        [_called(found, each) for each in waits[:NEAR_MAX]] if blocked else [],
        bare(group) or UNSET,
        next((_called(found, each) for each in known([found.cancelled_for(row)]) if each), UNSET),
    )


def _called(found: walk.Flow, job_id: str) -> str:
    """Return the id by which a job is shown: the pusher's own id if it has one, else the daemon's."""
    row = found.jobs.get(job_id)
    return bare(row.job.name if row is not None else job_id) or job_id
