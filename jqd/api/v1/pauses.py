"""POST of /v1/types/{name}/pause and /resume for a jobtype, of /v1/types/pause and /resume for a tenant, and of
/v1/daemons/{daemon}/drain and /resume."""

from typing import Annotated

from msgspec import Meta, Struct

from jqd.api.context import ApiContext
from jqd.api.decode import read_body
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant
from jqd.http import Request
from jqd.service import pauses
from jqd.service.health import why_odd

REASON_LENGTH_MAX = 200  # characters: a sentence


class Pausing(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a pause of a jobtype."""

    reason: Annotated[str, Meta(max_length=REASON_LENGTH_MAX, description="a line of at most 200 characters")] = ""
    """Why it is paused: shown with the jobtype and its jobs."""


class Paused(Struct, frozen=True):
    """The answer to a pause of a jobtype: since when it is paused; null: it is not."""

    name: str
    paused_at: Instant | None
    note: str | None = None
    """A hint at a possible mistake."""


class Halted(Struct, frozen=True):
    """The pause of a tenant: since when it is paused; null: it is not paused."""

    tenant: str
    paused_at: Instant | None
    by: Annotated[str | None, Meta(description="the token's id")] = None
    note: str | None = None


class DrainResponse(Struct, frozen=True):
    """The answer to a drain: since when the daemon is drained; null: it is not."""

    daemon: str
    drained_at: Instant | None
    in_flight: Annotated[int | None, Meta(description="jobs in flight; null: the store does not answer")] = None
    note: str | None = None
    """A hint at a possible mistake."""


async def pause_all(parts: ApiContext, request: Request) -> Halted:
    """Pause all jobtypes of a tenant, at all daemons."""
    since_ms, tenant = await pauses.halt(parts.services), parts.services.principal.tenant
    by = next((each.by for each in pauses.halted(parts.services) if each.tenant == tenant), "")
    return Halted(tenant, iso(since_ms), by or None)


async def resume_all(parts: ApiContext, request: Request) -> Halted:
    """Resume a tenant; jobtypes paused by name stay paused."""
    was_paused = await pauses.proceed(parts.services)
    tenant = parts.services.principal.tenant
    note = None if was_paused else f"tenant {tenant!r} was not paused"
    return Halted(tenant, None, note=note)


def halted(parts: ApiContext) -> list[Halted]:
    """Return the paused tenants that the principal can see."""
    return [Halted(each.tenant, iso(each.since_ms), each.by or None) for each in pauses.halted(parts.services)]


async def pause(parts: ApiContext, request: Request, name: str) -> Paused:
    """Pause a jobtype at all daemons. Running jobs go on."""
    wanted = read_body(request, Pausing) if request.body else Pausing()
    since_ms = await pauses.pause(parts.services, name, wanted.reason)
    return Paused(name, iso(since_ms), why_odd(parts.services, name))


async def resume(parts: ApiContext, request: Request, name: str) -> Paused:
    """Resume a jobtype."""
    was_paused = await pauses.resume(parts.services, name)
    note = None if was_paused else f"{name[:64]!r} was not paused"
    return Paused(name, None, note)


async def drain(parts: ApiContext, request: Request, daemon: str) -> DrainResponse:
    """Drain a daemon, or "this" one: it begins no job until it is resumed, also after a restart."""
    sysid, since_ms = await pauses.drain(parts.services, daemon)
    return DrainResponse(sysid, iso(since_ms), await parts.services.control.in_flight(sysid))


async def resume_daemon(parts: ApiContext, request: Request, daemon: str) -> DrainResponse:
    """Resume a drained daemon."""
    sysid, was_drained = await pauses.resume_daemon(parts.services, daemon)
    note = None if was_drained else f"{sysid!r} was not drained"
    return DrainResponse(sysid, None, await parts.services.control.in_flight(sysid), note)
