"""Pausing jobtypes: POST of /v1/types/{name}/pause and /resume."""

from msgspec import Struct

from jqd.api.message import Request, Response, answer
from jqd.api.native.answers import Instant
from jqd.api.native.show import iso
from jqd.api.parts import Parts
from jqd.desk import pauses


class Paused(Struct, frozen=True):
    """Since when jobs of that type are not begun; null: they are."""

    name: str
    paused_at: Instant | None


async def pause(parts: Parts, request: Request, name: str) -> Response:
    """Pause a jobtype: no job of it is begun, at any daemon, until it is resumed. What runs goes on."""
    since_ms = await pauses.pause(parts.desk, name)
    return answer(200, Paused(name, iso(since_ms)), request.answer_language())


async def resume(parts: Parts, request: Request, name: str) -> Response:
    """Resume a jobtype: its jobs are begun again, those that wait first. The same again is nothing."""
    await pauses.resume(parts.desk, name)
    return answer(200, Paused(name, None), request.answer_language())
