"""Health and counters: GET /livez, /readyz, /readyz/push, /readyz/run and /v1/stats."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from jqd.api.context import ApiContext
from jqd.api.siblings import ANSWER_S
from jqd.api.v1.responses import Half, Live, ProcessReady, Ready
from jqd.domain import media
from jqd.domain.errors import StoreAway, StoreRefused
from jqd.http import Request, Response, answer
from jqd.service.principal import EVERYBODY, Principal
from jqd.service.rates import shown

HIDDEN = "not now; why is told to tokens of all tenants"

_decoder = msgspec.json.Decoder(Ready)


async def livez(parts: ApiContext, request: Request) -> Live:
    """200 while the process is alive."""
    return Live(True)


async def readyz(parts: ApiContext, request: Request) -> Response:
    """200 while pushes are taken; the body says whether pushing and running are ready, and why not."""
    ready = await _ready(parts, request)
    return answer(200 if ready.push.ready else 503, ready, request.answer_language())


async def readyz_push(parts: ApiContext, request: Request) -> Response:
    """200 while pushes are taken."""
    half = (await _ready(parts, request)).push
    return answer(200 if half.ready else 503, half, request.answer_language())


async def readyz_run(parts: ApiContext, request: Request) -> Response:
    """200 while jobs are run."""
    half = (await _ready(parts, request)).run
    return answer(200 if half.ready else 503, half, request.answer_language())


async def _ready(parts: ApiContext, request: Request) -> Ready:
    """Return the readiness of all processes that share the port; if one of the other processes asks, only that of this
    process."""
    control, who, warnings = parts.services.control, parts.services.principal, list(parts.services.control.warnings())
    push, run = _half(control.push_ready(), who), _half(control.run_ready(), who)
    status: Literal["ready", "degraded", "not ready"]
    status = "not ready" if not push.ready else "ready" if run.ready and not warnings else "degraded"
    if not who.sees_all:  # warnings name workers and schedules of all tenants
        warning = control.quota_wait_warning(who.tenant)
        warnings = [] if warning is None else [warning]
    own, siblings = Ready(status, push, run, warnings), parts.siblings
    if not siblings.asked(request):
        return own
    found, away = {siblings.process.number: own}, dict[int, str]()
    for number, body in (await siblings.ask(request, "/readyz", media.JSON, ANSWER_S)).items():
        try:
            found[number] = _decoder.decode(body)
        except msgspec.MsgspecError:  # the text says why the process does not answer, or the body is an error
            away[number] = body if isinstance(body, str) else "it refuses to answer"
    return together(found, away, siblings.process.processes)


def together(present: Mapping[int, Ready], away: Mapping[int, str], sharing: int) -> Ready:
    """Return the readiness of several processes together. `present`: process number → its readiness. `away`: number of
    a process that does not answer → why. `sharing`: processes with smaller numbers share the port.

    Pushing is ready if no process that listens on the port refuses pushes, because a push may reach any of them; a
    process that is away does not listen. Running is ready if at least one process runs jobs.
    """
    rows = [ProcessReady(number, each.push, each.run) for number, each in present.items()]
    rows += [ProcessReady(number, _half(why), _half(why)) for number, why in away.items()]
    rows.sort(key=lambda row: row.process)
    takers = [row for row in rows if row.process < sharing and row.process in present]
    refusals = [f"process {row.process}: {row.push.reason}" for row in takers if not row.push.ready]
    push = _half(None if takers and not refusals else "; ".join(refusals) or "no process takes pushes")
    run = next((row.run for row in rows if row.run.ready), takers[0].run if takers else rows[0].run)
    warnings = [*dict.fromkeys(text for each in present.values() for text in each.warnings)]
    warnings += [f"process {number} is away: {why}" for number, why in sorted(away.items())]
    is_well = not away and all(each.status == "ready" for each in present.values())
    return Ready("not ready" if not push.ready else "ready" if is_well else "degraded", push, run, warnings, rows)


async def stats(parts: ApiContext, request: Request) -> dict[str, Any]:
    """Counters of this daemon, and of the store if it answers."""
    return await figures(parts)


async def figures(parts: ApiContext) -> dict[str, Any]:
    """Return the counters of this daemon and of the store as plain values."""
    body: dict[str, Any] = {name: _plain(value) for name, value in parts.services.control.stats().items()}
    try:
        body["store"] = shown(parts.services, await parts.services.store.stats())
    except (StoreAway, StoreRefused) as error:
        body["store"] = None
        body["store_error"] = str(error)
    return body


def _half(reason: str | None, who: Principal = EVERYBODY) -> Half:
    """Return the readiness of pushing or running; `reason` is None if it is ready. A principal that does not see all
    tenants gets no reason, because it may name the store's address, directories and other daemons."""
    return Half(reason is None, reason if reason is None or who.sees_all else HIDDEN)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "_asdict"):
        return value._asdict()
    return value
