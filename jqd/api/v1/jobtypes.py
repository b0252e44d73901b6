"""Jobtypes: how many jobs each has in each state, and why they wait."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.lists import ListQuery, Page, answer_page, page_wanted
from jqd.api.v1.job_views import iso
from jqd.api.v1.pauses import Halted, halted
from jqd.api.v1.responses import Instant
from jqd.domain.array_split import in_steps
from jqd.domain.job import State
from jqd.domain.job_spec import JobOptions
from jqd.domain.pauses import all_of
from jqd.domain.tenant import bare, tenant_of
from jqd.http import Request, Response
from jqd.runner.handler import id_of
from jqd.service.health import Takers, why_waiting
from jqd.service.rates import PerMinute, Rates
from jqd.store import TypeView


class Jobtype(Struct, frozen=True):
    """A jobtype that has jobs, or is paused. Each job counts in one of the eight states."""

    name: str
    waiting: int = 0
    running: int = 0
    scheduled: int = 0
    retrying: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    blocked: int = 0
    per_minute: PerMinute = PerMinute()
    oldest_at: Instant | None = None
    """Since when the oldest ready job is ready; null: none is ready."""
    oldest_s: float | None = None
    rate: Annotated[float, Meta(description="ended jobs a second, over the last minute")] = 0
    handler: str | None = None
    """Name and newest version of its handler, if it has one."""
    note: str | None = None
    """Why its jobs wait, if that is known."""
    workers: Annotated[int, Meta(description="workers, not silent ones, and handler versions that take its jobs")] = 0
    options: JobOptions | None = None
    """Registered default options of its jobs."""
    options_by: str | None = None
    """The worker or handler that set these options."""
    paused_at: Instant | None = None
    """Since when it is paused."""
    paused_for: str | None = None
    """Why it is paused, if that was said."""
    tenant: str | UnsetType = UNSET
    """Left out for the tenant ""."""


class Jobtypes(Page, frozen=True):
    """One page of jobtypes, by name."""

    types: Sequence[Jobtype]
    paused: Annotated[Sequence[Halted], Meta(description="paused tenants")] = ()


class TypesQuery(ListQuery, frozen=True, forbid_unknown_fields=True):
    """The query of jobtypes."""

    name: str = ""
    """A part of the jobtype, or with a * at its end, its beginning. Case does not count."""


async def list_types(parts: ApiContext, request: Request) -> Response:
    """`GET /v1/types?name&limit&cursor` → 200 {types, cursor, paused}: jobtypes with jobs and paused ones, by name.

    Raises Invalid.
    """
    wanted, sees = page_wanted(request, TypesQuery), parts.services.principal.can_see
    fits = _matcher(wanted.name)
    answer = await parts.types.read(parts.services.store, wanted.limit, goes_on=bool(wanted.cursor))
    named = {row.jobtype for row in answer}
    views = [*answer, *(TypeView(name) for name in parts.services.pauses.names if name not in named)]
    found = ((view.jobtype, view) for view in views if sees(tenant_of(view.jobtype)) and fits(view.jobtype))
    workers, takers, present = parts.services.workers, Takers(), Takers()
    await in_steps(takers.add(workers.list()), request.breathe)
    await in_steps(present.add(worker for worker in workers.list() if not workers.is_overdue(worker)), request.breathe)
    page = partial(Jobtypes, paused=halted(parts))
    return await answer_page(request, wanted, page, found, lambda view: _jobtype(parts, view, takers, present))


def _matcher(name: str) -> Callable[[str], bool]:
    text = name.casefold()
    if text.endswith("*"):
        return lambda jobtype: bare(jobtype).casefold().startswith(text[:-1])
    return lambda jobtype: text in bare(jobtype).casefold()


def _jobtype(parts: ApiContext, view: TypeView, takers: Takers, present: Takers) -> Jobtype:
    """Return the row of one jobtype. `takers`: the workers for this type. `present`: those of them that were heard of
    lately."""
    counts, services, jobtype = view.counts, parts.services, view.jobtype
    known = services.options.known.get(jobtype)
    reason = why_waiting(services, jobtype, takers=takers) if view.oldest_ms else None
    rates = services.feature(Rates).of(view)
    return Jobtype(
        bare(jobtype),
        tenant=tenant_of(jobtype) or UNSET,
        **{state.value: getattr(counts, state.value) for state in State},
        per_minute=rates,
        oldest_at=iso(view.oldest_ms),
        oldest_s=max(0, services.clock.wall_ms() - view.oldest_ms) / 1000 if view.oldest_ms else None,
        rate=round(rates.ended / 60, 3),
        handler=_handler(parts, jobtype),
        note=reason.text if reason else None,
        workers=present.count(jobtype),
        options=known.options if known else None,
        options_by=bare(known.by) if known else None,
        paused_at=iso(
            services.pauses.since_ms.get(jobtype) or services.halts.since_ms.get(all_of(tenant_of(jobtype)), 0)
        ),
        paused_for=services.pauses.reasons.get(jobtype),
    )


def _handler(parts: ApiContext, jobtype: str) -> str | None:
    handler = parts.services.workers.handler(jobtype)
    return id_of(bare(jobtype), handler.versions[-1].number) if handler and handler.versions else None
