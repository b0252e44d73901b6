"""Pausing jobtypes: POST of /v1/types/{name}/pause and /resume."""

from msgspec import Struct

from jqd.api.message import Request, Response, answer
from jqd.api.native.answers import Instant
from jqd.api.native.show import iso
from jqd.api.parts import Parts
from jqd.desk import pauses
from jqd.desk.health import why_odd


class Paused(Struct, frozen=True):
    """Since when jobs of that type are not begun; null: they are."""

    name: str
    paused_at: Instant | None
    note: str | None = None
    """What may be a slip."""


async def pause(parts: Parts, request: Request, name: str) -> Response:
    """Pause a jobtype: no job of it is begun, at any daemon, until it is resumed. What runs goes on."""
    since_ms = await pauses.pause(parts.desk, name)
    return answer(200, Paused(name, iso(since_ms), why_odd(parts.desk, name)), request.answer_language())


async def resume(parts: Parts, request: Request, name: str) -> Response:
    """Resume a jobtype: its jobs are begun again, those that wait first. Where it was not paused, that is said."""
    was_paused = await pauses.resume(parts.desk, name)
    note = None if was_paused else f"{name[:64]!r} was not paused"
    return answer(200, Paused(name, None, note), request.answer_language())
