"""Health and counters: /livez, /readyz and its halves, /v1/stats."""

import dataclasses
from typing import Any, Literal

from jqd.api.context import ApiContext
from jqd.api.v1.responses import Half, Live, Ready
from jqd.domain.errors import StoreAway, StoreRefused
from jqd.http import Request, Response, answer
from jqd.service.rates import shown


async def livez(parts: ApiContext, request: Request) -> Live:
    """The process is alive."""
    return Live(True)


async def readyz(parts: ApiContext, request: Request) -> Response:
    """200 while pushes are taken; the body says which half is ready, and why not."""
    push, run = parts.services.control.push_ready(), parts.services.control.run_ready()
    warnings = list(parts.services.control.warnings())
    status: Literal["ready", "degraded", "not ready"]
    status = "ready" if push is None and run is None and not warnings else "degraded" if push is None else "not ready"
    who = parts.services.principal
    if not who.sees_all:  # they name workers and schedules of all tenants
        owed = parts.services.control.owed_text(who.tenant)
        warnings = [] if owed is None else [owed]
    body = Ready(status, _half(push), _half(run), warnings)
    return answer(200 if push is None else 503, body, request.answer_language())


async def readyz_push(parts: ApiContext, request: Request) -> Response:
    """Whether pushes are taken."""
    reason = parts.services.control.push_ready()
    return answer(200 if reason is None else 503, _half(reason), request.answer_language())


async def readyz_run(parts: ApiContext, request: Request) -> Response:
    """Whether jobs are being run."""
    reason = parts.services.control.run_ready()
    return answer(200 if reason is None else 503, _half(reason), request.answer_language())


async def stats(parts: ApiContext, request: Request) -> dict[str, Any]:
    """Counters of this daemon, and of the store as far as it answers."""
    return await figures(parts)


async def figures(parts: ApiContext) -> dict[str, Any]:
    """Return the counters as plain values."""
    body: dict[str, Any] = {name: _plain(value) for name, value in parts.services.control.stats().items()}
    try:
        body["store"] = shown(parts.services, await parts.services.store.stats())
    except (StoreAway, StoreRefused) as error:
        body["store"] = None
        body["store_error"] = str(error)
    return body


def _half(reason: str | None) -> Half:
    return Half(reason is None, reason)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "_asdict"):
        return value._asdict()
    return value
