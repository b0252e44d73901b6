"""GET /v1/jobs/{id}/why: why one job waits."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant
from jqd.domain.job import State
from jqd.domain.tenant import bare
from jqd.http import Request
from jqd.service.explain import explain
from jqd.service.wait_reason import Cause

LOOKS = "for tokens that see everything:"


class Taker(Struct, frozen=True):
    """A worker that takes jobs of the waiting job's type, but gets none now."""

    name: str
    state: str
    why: str


class Better(Struct, frozen=True):
    """Another jobtype, whose ready jobs are started before the waiting job."""

    name: str
    ready: int


class Why(Struct, frozen=True):
    """Why a job waits."""

    job_id: str
    reason: Cause
    text: Annotated[str, Meta(description="one sentence for people")]
    state: State | UnsetType = UNSET
    name: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    since: Instant | UnsetType = UNSET
    until: Annotated[Instant | UnsetType, Meta(description="when it is over by itself")] = UNSET
    by: Annotated[
        str | UnsetType, Meta(description=f"the worker that runs it, or what limits it; {LOOKS} who paused it")
    ] = UNSET
    daemon: str | UnsetType = UNSET
    ahead: Annotated[int | UnsetType, Meta(description="jobs of its type before it")] = UNSET
    exact: Annotated[bool | UnsetType, Meta(description="false: there may be fewer ahead")] = UNSET
    better: Annotated[
        Sequence[Better] | UnsetType,
        Meta(description="some other types with better jobs"),
    ] = UNSET
    more_better: Annotated[int | UnsetType, Meta(description="how many more such types")] = UNSET
    workers: Annotated[Sequence[Taker] | UnsetType, Meta(description=f"{LOOKS} those that would take it")] = UNSET
    holds: Annotated[Sequence[str] | UnsetType, Meta(description=f"{LOOKS} some jobs in flight that it counts")] = UNSET
    deaths: Annotated[int | UnsetType, Meta(description="of daemons while they had it in flight")] = UNSET


async def get_why(parts: ApiContext, request: Request, job_id: str) -> Why:
    """`GET /v1/jobs/{id}/why` → 200 {reason, text, …}: why the job waits, also while the store is away; 404."""
    view, why = await explain(parts.services, job_id)
    waits = why.ahead is not None
    return Why(
        job_id,
        why.reason,
        why.text,
        state=view.state if view else UNSET,
        name=bare(view.jobtype) if view else UNSET,
        priority=view.priority if view else UNSET,
        since=iso(why.since_ms) or UNSET,
        until=iso(why.until_ms) or UNSET,
        by=why.by or UNSET,
        daemon=(view.daemon if view else "") or UNSET,
        ahead=UNSET if why.ahead is None else why.ahead,
        exact=why.is_exact if waits else UNSET,
        better=[Better(*each) for each in why.better] or UNSET,
        more_better=why.more_better or UNSET,
        workers=[Taker(*each) for each in why.workers] or UNSET,
        holds=why.holds or UNSET,
        deaths=why.deaths or UNSET,
    )
