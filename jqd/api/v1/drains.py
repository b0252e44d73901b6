"""Draining daemons: POST of /v1/daemons/{daemon}/drain and /resume."""

from typing import Annotated

from msgspec import Meta, Struct

from jqd.api.context import ApiContext
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant
from jqd.http import Request, Response, answer
from jqd.service import pauses


class DrainResponse(Struct, frozen=True):
    """The answer to a drain: since when the daemon is drained; null: it is not."""

    daemon: str
    drained_at: Instant | None
    in_flight: Annotated[int | None, Meta(description="jobs in flight; null: the store does not answer")] = None
    note: str | None = None
    """What may be a mistake."""


async def drain(parts: ApiContext, request: Request, daemon: str) -> Response:
    """Drain a daemon, or "this": it begins no job, through restarts, until it is resumed."""
    sysid, since_ms = await pauses.drain(parts.services, daemon)
    body = DrainResponse(sysid, iso(since_ms), await parts.services.control.in_flight(sysid))
    return answer(200, body, request.answer_language())


async def resume(parts: ApiContext, request: Request, daemon: str) -> Response:
    """Resume a daemon."""
    sysid, was_drained = await pauses.resume_daemon(parts.services, daemon)
    note = None if was_drained else f"{sysid!r} was not drained"
    body = DrainResponse(sysid, None, await parts.services.control.in_flight(sysid), note)
    return answer(200, body, request.answer_language())
