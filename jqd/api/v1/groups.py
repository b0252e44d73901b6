"""Groups: GET /v1/groups/{group}, and POST of its /close, /cancel and /retry."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import read_body
from jqd.api.v1.flows import read_change
from jqd.api.v1.job_views import brief_message, iso
from jqd.api.v1.push import TRACE_HEADER
from jqd.api.v1.responses import Instant
from jqd.domain.flow import OnFailure
from jqd.domain.job import State
from jqd.domain.job_spec import Then, Url
from jqd.domain.tenant import bare
from jqd.http import Request
from jqd.service import groups
from jqd.service.bulk import Tally
from jqd.store import JobView


class Close(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a close of a group."""

    then: Then = UNSET
    """The job that runs once all members have ended."""
    on_parent_failure: OnFailure | UnsetType = UNSET
    """What becomes of `then` if a member does not succeed."""
    callback: Url | None = None
    """The URL that is called once all members have ended."""


class Waits(Struct, frozen=True):
    """The job that waits for a group."""

    job_id: str
    state: Annotated[State | None, Meta(description="null: it is not in the store yet")]


class Member(Struct, frozen=True):
    """A job of a group."""

    job_id: str
    name: str
    state: State


class GroupError(Struct, frozen=True):
    """A member of the group that failed, and why."""

    job_id: str
    name: str
    message: str | None


class Group(Struct, frozen=True):
    """The answer about a group: its jobs by state, and the job that waits for them."""

    group: str
    closed: bool
    closed_at: Instant | None
    jobs: int
    counts: Annotated[Mapping[str, int], Meta(description="state → number; unknown: on its way, or deleted since")]
    progress: Annotated[float, Meta(description="ended of all, 0 to 1")]
    then: Waits | None
    errors: Sequence[GroupError]
    """The first ten members that failed."""
    first: Sequence[Member]
    """The ten members that joined first: the flow of each shows the jobs that wait for it."""


class Closed(Struct, frozen=True):
    """The answer to a close of a group."""

    group: str
    then: Waits | None
    closed: bool = True


async def get(parts: ApiContext, request: Request, group: str) -> Group:
    """`GET /v1/groups/{group}`: how many jobs are in which state, and the job that waits for them → 200; 404."""
    view = await groups.get(parts.services, group, request.breathe)
    at_ms = view.group.closed_at_ms
    jobs, errors = len(view.group.job_ids), [_error(failed) for failed in view.failed]
    then, counts = _waits(view.then), {**{state.value: 0 for state in State}, **view.counts}
    first = [Member(bare(row.job.name) or row.job.id, bare(row.job.jobtype), State(row.state)) for row in view.first]
    return Group(group, at_ms > 0, iso(at_ms), jobs, counts, round(view.progress, 6), then, errors, first)


async def close(parts: ApiContext, request: Request, group: str) -> Closed:
    """`POST /v1/groups/{group}/close`: let no more jobs join; `then` and `callback` run once all members have ended →
    200; a repeat counts once, another `then` or `callback` is 409."""
    wanted = read_body(request, Close) if request.body else Close()
    then = None if wanted.then is UNSET or bytes(wanted.then) == b"\xc0" else Raw(bytes(wanted.then))
    on_failure, trace = wanted.on_parent_failure or None, request.headers.get(TRACE_HEADER) or ""
    waits = await groups.close(parts.services, group, then, on_failure, wanted.callback, trace)
    return Closed(group, _waits(waits))


async def cancel(parts: ApiContext, request: Request, group: str) -> Tally:
    """`POST /v1/groups/{group}/cancel`: cancel the group's jobs that have not ended, and the one that waits for
    them."""
    dry_run = read_change(request).dry_run
    return await groups.cancel(parts.services, group, request.breathe, dry_run=dry_run)


async def retry(parts: ApiContext, request: Request, group: str) -> Tally:
    """`POST /v1/groups/{group}/retry`: retry the group's failed jobs, and the one that waits for them if it failed."""
    dry_run = read_change(request).dry_run
    return await groups.retry(parts.services, group, request.breathe, dry_run=dry_run)


def _waits(then: groups.Then | None) -> Waits | None:
    return None if then is None else Waits(then.job_id, then.state)


def _error(view: JobView) -> GroupError:
    return GroupError(bare(view.name) or view.id, bare(view.jobtype), brief_message(view))
