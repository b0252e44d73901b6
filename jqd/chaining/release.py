"""Lets a job that waited for others go on: with their results, or not at all where one of them did not succeed."""

from typing import Any

import msgspec
from msgspec import Raw

from jqd.chaining.callbacks import told
from jqd.domain.errors import Conflict, NotFound, NotYet, StoreUnsettled
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.flow import CALLBACK, NO_FIELD, RESULTS_TOO_LARGE, Flow, put_into
from jqd.domain.job import NIL, State
from jqd.domain.jobid import parse_id
from jqd.domain.results import LargeResult
from jqd.domain.tenant import bare
from jqd.service.callbacks import expect_called
from jqd.service.cancel import record_cancels
from jqd.service.edit import Kind, change
from jqd.service.find import read_pieces
from jqd.service.services import Services
from jqd.store import JobView

_encoder = msgspec.msgpack.Encoder()


async def release(services: Services, job_id: str, failed: str) -> bool:
    """Let the job go on whose parents have ended; `failed`: the first of them that did not succeed, or "".

    False: the store has not applied it yet, or tells its daemons again what it forgot: ask again. Raises
    JournalRefused, StoreAway, StoreRefused."""
    try:
        view = await services.store.get_job(job_id)
        if not isinstance(view, JobView) or view.state is not State.BLOCKED or view.flow is None:
            return True  # it was released, cancelled or deleted meanwhile
        if failed and view.flow.on_parent_failure == "cancel":
            return await record_cancels(services, [view]) is not None
        fields: dict[str, Any] = {"failed": failed} if failed and view.flow.on_parent_failure == "fail" else {}
        if bare(view.jobtype) == CALLBACK:
            await expect_called(services, view.tenant)
            fields = {"argument": await told(services, view, view.flow)}
        elif not fields:
            fields = await _with_results(services, view, view.flow)
        await change(services, view, Kind.RELEASE, **fields)
    except Conflict:
        return True  # it was cancelled, or deleted, in that moment
    except (NotYet, StoreUnsettled):
        return False
    return True


async def _with_results(services: Services, view: JobView, flow: Flow) -> dict[str, Any]:
    """Its argument with the kept results of its parents, where it wants them; or why it cannot have them."""
    if view.argument != NIL and not flow.result_into:
        return {"argument": view.argument}
    results: list[Raw] = []
    bytes_max = services.config.job_bytes_max
    room = bytes_max
    for parent in flow.after:
        result = await _result(services, parent, view.tenant, room)
        if result is None:
            return {"failed": RESULTS_TOO_LARGE}
        room -= len(result)
        results.append(Raw(result))
    value = bytes(results[0]) if flow.one_result else _encoder.encode(results)
    try:
        argument = bytes(put_into(view.argument, flow.result_into, value)) if flow.result_into else value
    except DECODE_ERRORS:  # who changed it saw another content of the job
        return {"failed": NO_FIELD}
    return {"argument": argument} if len(argument) <= bytes_max else {"failed": RESULTS_TOO_LARGE}


async def _result(services: Services, parent: str, tenant: str, room: int) -> bytes | None:
    """The kept result of a parent, nil where there is none or the parent is another tenant's; None: it has more bytes
    than there is room for."""
    job_id = parent if parse_id(parent) is not None else await services.store.resolve(parent)
    view = await services.store.get_job(job_id) if job_id is not None else None
    if not isinstance(view, JobView) or view.tenant != tenant or view.result is None:
        return NIL
    result = view.result
    if (result.bytes if isinstance(result, LargeResult) else len(result)) > room:
        return None
    if not isinstance(result, LargeResult):
        return result
    try:
        return b"".join([piece async for piece in read_pieces(services, result)])
    except NotFound:
        return NIL  # its time is over
