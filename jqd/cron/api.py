"""The HTTP routes of schedules, /v1/schedules: jobs that are pushed at recurring dates."""

from collections.abc import Sequence
from functools import partial

from msgspec import UNSET, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import Revision, read_body, read_query
from jqd.api.lists import ListQuery, Page, PageLimit, answer_page, page_wanted
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant
from jqd.cron import service
from jqd.cron.schedules import KnownSchedule, Plan, Schedules
from jqd.domain.array_split import in_steps
from jqd.domain.settings import SCHEDULE
from jqd.domain.tenant import bare, tenant_of
from jqd.http import Request, Response
from jqd.service.server_only import expect_allowed
from jqd.service.settings import revision_of

LIST_SCHEDULES = 50  # in one answer, as with jobs; to compute the next dates of 1,000 with rare dates takes some 2 s


class LastDate(Struct, frozen=True):
    """The date that was fired last, and the job that was pushed for it."""

    date: Instant | None
    job_id: str
    pushed_at: Instant | None


class ScheduleView(Plan, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A schedule, its next dates, and what it has done so far."""

    name: str
    until: Instant | None
    paused_at: Instant | None
    next: Sequence[Instant]
    """The next five dates; empty while it is paused."""
    last: LastDate | None
    fired: int
    skipped: int
    waits: str | None
    """Why a date that has come is not fired; null if none waits."""
    revision: int
    """A number that every change replaces."""
    tenant: str | UnsetType = UNSET
    """Left out for a schedule of no tenant."""


class SchedulePage(Page, frozen=True):
    """One page of schedules."""

    schedules: Sequence[ScheduleView]


class SchedulesQuery(ListQuery, frozen=True, forbid_unknown_fields=True):
    """The query of a list: page size and cursor."""

    limit: PageLimit = LIST_SCHEDULES


class PutQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a PUT."""

    revision: Revision = None
    """Set the schedule only if it still has this revision, otherwise answer 409; 0: only if there is none."""


class Pushed(Struct, frozen=True):
    """The job that `run-now` has pushed."""

    job_id: str


async def put(parts: ApiContext, request: Request, name: str) -> tuple[int, ScheduleView]:
    """201 and the schedule; 200 if it replaces one. If `cron`, `every` or `tz` changes, only dates after this call are
    fired; else also dates already due."""
    revision, plan = read_query(request, PutQuery).revision, read_body(request, Plan)
    expect_allowed(parts.services, [parts.services.qualified_name(plan.job.name)])
    new = await service.put(parts.services, name, plan, revision)
    return 201 if new else 200, _shown(parts, name)


async def get(parts: ApiContext, request: Request, name: str) -> ScheduleView:
    """200 and the schedule, with the next five dates."""
    return _row(parts, await service.known(parts.services, name))


async def list_schedules(parts: ApiContext, request: Request) -> Response:
    """`GET /v1/schedules?limit&cursor` → 200 {schedules, cursor}, by name. Raises Invalid."""
    wanted = page_wanted(request, SchedulesQuery)
    await in_steps(parts.services.feature(Schedules).looks(), request.breathe)
    sees, every = parts.services.principal.can_see, [*parts.services.feature(Schedules).known.items()]
    found = (item for item in every if sees(tenant_of(item[0])))
    return await answer_page(request, wanted, SchedulePage, found, partial(_row, parts))


async def delete(parts: ApiContext, request: Request, name: str) -> None:
    """204: it is deleted. None of its dates is fired any more; pushed jobs stay."""
    await service.delete(parts.services, name)


async def run_now(parts: ApiContext, request: Request, name: str) -> Pushed:
    """201 {job_id}: its job is pushed once, independent of its dates, even while it is paused."""
    return Pushed(await service.run_now(parts.services, name))


async def pause(parts: ApiContext, request: Request, name: str) -> ScheduleView:
    """200 and the schedule: it is paused. No date is fired until it is resumed."""
    await service.pause(parts.services, name)
    return _shown(parts, name)


async def resume(parts: ApiContext, request: Request, name: str) -> ScheduleView:
    """200 and the schedule: it is resumed. Its dates from now on are fired."""
    await service.resume(parts.services, name)
    return _shown(parts, name)


def _shown(parts: ApiContext, name: str) -> ScheduleView:
    return _row(parts, service.find(parts.services, name))


def _row(parts: ApiContext, one: KnownSchedule) -> ScheduleView:
    schedule, fired, now_ms = one.schedule, one.fired, parts.services.feature(Schedules).now_ms()
    is_due = one.next_ms is None or one.next_ms <= now_ms
    return ScheduleView(
        **schedule.own_fields(),
        name=bare(one.name),
        tenant=tenant_of(one.name) or UNSET,
        paused_at=iso(schedule.paused_at_ms),
        next=[str(iso(date_ms)) for date_ms in service.next_dates(one, now_ms)],
        last=LastDate(iso(fired.date_ms), bare(fired.job_id), iso(fired.at_ms)) if fired.job_id else None,
        fired=fired.fired,
        skipped=fired.skipped,
        waits=(one.trouble or None) if is_due else None,
        revision=revision_of(parts.services, SCHEDULE, one.name),
    )
