"""What may start when, by what a job is: /v1/constraints."""

from collections.abc import Sequence
from functools import partial

from msgspec import UNSET, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import Revision, read_body, read_query
from jqd.api.lists import ListQuery, Page, answer_page, page_wanted
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant
from jqd.domain.settings import CONSTRAINT
from jqd.domain.tenant import bare
from jqd.http import Request, Response
from jqd.rate_limits import service
from jqd.rate_limits.constraints import EVER_MS, Constraints, KnownConstraint, Limit, Limits, counted_apart
from jqd.rate_limits.service import Trial
from jqd.service.settings import revision_of


class ConstraintView(Limit, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A constraint, and what this daemon saw of it."""

    name: str
    pause: bool | Instant | None
    """As it was set; null: no pause, or one that is over."""
    paused: bool
    paused_until: Instant | None
    """Null: no pause, or one without an end."""
    partitions: int
    """Of the store; each counts by itself."""
    warning: str | None
    """What more that may let through, in numbers; null: nothing."""
    changed_at: Instant | None
    failed: int
    """Jobs on which it failed since this daemon began; like ones count once."""
    error: str | None
    """The last failure."""
    revision: int
    """Another one after each change."""
    tenant: str | UnsetType = UNSET
    """Left out for the tenant ""."""


class ConstraintPage(Page, frozen=True):
    """One page of constraints, by name."""

    constraints: Sequence[ConstraintView]


class PutQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a PUT."""

    dry_run: bool = False
    """Say nothing; answer what it would do to jobs that wait."""
    revision: Revision = None
    """Set it only if it still has this revision, else 409; 0: only if there is none."""


async def put(parts: ApiContext, request: Request, name: str) -> tuple[int, ConstraintView | Trial]:
    """201 and the constraint, 200 where it replaces one. With `dry_run` 200 and what it would match.

    It holds within a second at all daemons, for waiting jobs too.
    """
    query, wish = read_query(request, PutQuery), read_body(request, Limits)
    if query.dry_run:
        return 200, await service.try_out(parts.services, name, wish)
    new = await service.put(parts.services, name, wish, query.revision)
    return 201 if new else 200, _row(parts, service.find(parts.services, name))


async def get(parts: ApiContext, request: Request, name: str) -> ConstraintView:
    """200 and the constraint."""
    return _row(parts, await service.known(parts.services, name))


async def list_constraints(parts: ApiContext, request: Request) -> Response:
    """Constraints of the token's tenant, or all, by tenant and name."""
    wanted = page_wanted(request, ListQuery)
    known, sees = [*parts.services.feature(Constraints).known.values()], parts.services.principal.can_see
    found = ((f"{one.tenant} {bare(one.name)}", one) for one in known if sees(one.tenant))
    return await answer_page(request, wanted, ConstraintPage, found, partial(_row, parts))


async def delete(parts: ApiContext, request: Request, name: str) -> None:
    """204: nothing waits for it any more."""
    await service.delete(parts.services, name)


def _row(parts: ApiContext, one: KnownConstraint) -> ConstraintView:
    kept = one.constraint
    until = iso(kept.until_ms) if 0 < kept.until_ms < EVER_MS else None
    is_paused = kept.until_ms > parts.services.clock.wall_ms()
    return ConstraintView(
        **kept.given(),
        name=bare(one.name),
        pause=(until or True) if is_paused else None,
        paused=is_paused,
        paused_until=until,
        partitions=parts.services.partitions,
        warning=counted_apart(kept, parts.services.partitions),
        changed_at=iso(one.changed_ms),
        failed=one.failed,
        error=one.error or None,
        revision=revision_of(parts.services, CONSTRAINT, one.name),
        tenant=one.tenant or UNSET,
    )
