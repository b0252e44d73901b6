"""The HTTP routes of constraints, /v1/constraints."""

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
    """A constraint, and what this daemon has counted for it."""

    name: str
    pause: bool | Instant | None
    """The pause as it was set; null: there is none, or it is over."""
    paused: bool
    paused_until: Instant | None
    """Null: no pause, or one without an end."""
    partitions: int
    """Partitions of the store; each counts by itself."""
    warning: str | None
    """How much all partitions together may let through; null: just what was set."""
    changed_at: Instant | None
    failed: int
    """Jobs on which its expressions failed since this daemon began; jobs that differ in nothing they read count
    once."""
    error: str | None
    """The last error of an expression."""
    revision: int
    """A number that every change replaces."""
    tenant: str | UnsetType = UNSET
    """Left out for the tenant ""."""


class ConstraintPage(Page, frozen=True):
    """One page of constraints, by name."""

    constraints: Sequence[ConstraintView]


class PutQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a PUT."""

    dry_run: bool = False
    """Set nothing; answer what the constraint would do to waiting jobs."""
    revision: Revision = None
    """Set the constraint only if it still has this revision, else 409; 0: only if there is none."""


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
    """Constraints of the token's tenant, or of all tenants, by tenant and name."""
    wanted = page_wanted(request, ListQuery)
    every, sees = [*parts.services.feature(Constraints).known.values()], parts.services.principal.can_see
    found = ((f"{known.tenant} {bare(known.name)}", known) for known in every if sees(known.tenant))
    return await answer_page(request, wanted, ConstraintPage, found, partial(_row, parts))


async def delete(parts: ApiContext, request: Request, name: str) -> None:
    """204: it is deleted, and no job waits for it any more."""
    await service.delete(parts.services, name)


def _row(parts: ApiContext, known: KnownConstraint) -> ConstraintView:
    kept = known.constraint
    until = iso(kept.until_ms) if 0 < kept.until_ms < EVER_MS else None
    is_paused = kept.until_ms > parts.services.clock.wall_ms()
    return ConstraintView(
        **kept.own_fields(),
        name=bare(known.name),
        pause=(until or True) if is_paused else None,
        paused=is_paused,
        paused_until=until,
        partitions=parts.services.partitions,
        warning=counted_apart(kept, parts.services.partitions),
        changed_at=iso(known.changed_ms),
        failed=known.failed,
        error=known.error or None,
        revision=revision_of(parts.services, CONSTRAINT, known.name),
        tenant=known.tenant or UNSET,
    )
