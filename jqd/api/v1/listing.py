"""GET /v1/jobs, /v1/errors (reasons for failures) and /v1/daemons."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import read_query
from jqd.api.lists import ListQuery, page_of, page_wanted
from jqd.api.message import answer_rows
from jqd.api.v1.job_views import iso, job_brief
from jqd.api.v1.responses import Instant, Jobs
from jqd.api.v1.workers import Daemon, Daemons, gone_daemon
from jqd.domain.job import State
from jqd.domain.tenant import bare, tenant_of
from jqd.http import Request, Response
from jqd.runner.departures import shown
from jqd.service import listing
from jqd.service.job_filter import JobFilter
from jqd.service.listing import Looked, Of

LIST_JOBS, LIST_JOBS_MAX = 50, 1_000
TEXTS = 10  # lines shown of each reason


class ErrorText(Struct, frozen=True):
    """A line of an error or message, as the worker wrote it."""

    error: str
    count: int


class Reason(Struct, frozen=True):
    """Jobs of one type whose last attempt failed for the same reason."""

    name: str
    pattern: Annotated[str, Meta(description="what their lines have in common, … for numbers, ids, quoted values")]
    error: str
    """The line that shows the newest failure, such as the last one of a traceback."""
    count: int
    last_hour: Annotated[int, Meta(description="of those, in the last hour")]
    since: Instant | None
    """When the first failure was."""
    latest: Instant | None
    job_id: str
    """The job of the newest failure."""
    texts: Annotated[Sequence[ErrorText], Meta(description="their different lines, the 10 most frequent")]
    tenant: str | UnsetType = UNSET
    """Left out for the tenant ""."""


class Errors(Struct, frozen=True):
    """Reasons for failures, the most frequent first."""

    errors: Sequence[Reason]
    others: Annotated[int, Meta(description="failures with rarer reasons")]
    cursor: str
    looked: Looked = UNSET
    of: Of = UNSET


class ErrorsQuery(JobFilter, frozen=True, forbid_unknown_fields=True):
    """The query of reasons for failures."""

    state: Literal["failed", "retrying"] = "failed"  # type: ignore[assignment]


class JobsQuery(JobFilter, frozen=True, forbid_unknown_fields=True):
    """The query of a list of jobs."""

    limit: Annotated[int, Meta(ge=1, le=LIST_JOBS_MAX, description=f"a whole number from 1 to {LIST_JOBS_MAX}")] = (
        LIST_JOBS
    )


async def list_jobs(parts: ApiContext, request: Request) -> Response:
    """`GET /v1/jobs?state&name&tag&error&search&since&before&limit&cursor` → list jobs, newest first.

    Raises Invalid.
    """
    query = read_query(request, JobsQuery)
    page = await listing.list_jobs(parts.services, query, query.limit)
    looked, of = await listing.examined_of(parts.services, query, page.cursor, page.examined)
    return await answer_rows(
        request,
        Jobs([], page.cursor, looked, of, page.in_parts or UNSET),
        (job_brief(parts.services, view) for view in page.jobs),
    )


async def list_errors(parts: ApiContext, request: Request) -> Response:
    """`GET /v1/errors?state&name&tag&error&search&since&before&cursor` → why jobs failed, by frequency.

    Raises Invalid.
    """
    query = read_query(request, ErrorsQuery)
    query = msgspec.structs.replace(query, state=State(query.state))
    found = await listing.failures(parts.services, query)
    rows = (
        Reason(
            name=bare(group.jobtype),
            pattern=group.pattern,
            error=group.error,
            count=group.times,
            last_hour=group.times_of_late,
            since=iso(group.since_ms),
            latest=iso(group.latest_ms),
            job_id=group.job_id,
            texts=[ErrorText(*each) for each in group.texts.most_common(TEXTS)],
            tenant=tenant_of(group.jobtype) or UNSET,
        )
        for group in found.groups
    )
    looked, of = await listing.examined_of(parts.services, query, found.cursor, found.looked)
    return await answer_rows(request, Errors([], found.others, found.cursor, looked, of), rows)


async def list_daemons(parts: ApiContext, request: Request) -> Response:
    """`GET /v1/daemons?limit&cursor` → 200 {daemons, cursor}: the daemons of this store, as this daemon last heard of
    them.

    Raises Invalid, StoreAway.
    """
    wanted, peers = page_wanted(request, ListQuery), parts.services.control.daemons()
    if not peers:  # not even this one: the store was not asked yet. If it is away, this raises why
        await parts.services.store.stats()
    # Sorted by these keys, this daemon comes first.
    page, cursor = await page_of(request, wanted, ((f"{not peer.is_this:d}{peer.sysid}", peer) for peer in peers))
    rows = [
        Daemon(
            daemon=peer.sysid,
            this=peer.is_this,
            living=peer.living,
            through=peer.through,
            last_seen_s=round(peer.last_seen_s, 3),
            in_flight=await parts.services.control.in_flight(peer.sysid),
            drained_at=iso(parts.services.drains.since_ms.get(peer.sysid, 0)),
        )
        for peer in page
    ]
    gone = [] if wanted.behind else shown(parts.services.control.gone("daemon"))
    return await answer_rows(request, Daemons([], [gone_daemon(each) for each in gone] or UNSET, cursor=cursor), rows)
