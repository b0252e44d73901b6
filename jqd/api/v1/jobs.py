"""GET and DELETE /v1/jobs/{id}, and GET of its /result."""

import msgspec
import trio
from msgspec import Raw, structs

from jqd.api.context import ApiContext
from jqd.api.decode import YES, Flag, Seconds, read_query
from jqd.api.large_bodies import answer_any, send_result
from jqd.api.v1.job_views import job_body
from jqd.api.v1.responses import Job, RecordedJob, Result
from jqd.domain.errors import Conflict, Denied
from jqd.domain.job import NIL, State
from jqd.domain.results import LargeResult
from jqd.domain.tokens import Role
from jqd.http import Request, Response, answer
from jqd.service.cancel import cancel, purge
from jqd.service.find import look_up, take_result
from jqd.service.parents import cancelled_for
from jqd.store import JobView


class WaitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a call that may wait until a job has ended."""

    wait: Seconds = 0.0


class JobQuery(WaitQuery, frozen=True, forbid_unknown_fields=True):
    """The query of `GET /v1/jobs/{job_id}`."""

    whole: Flag = "0"
    """Show the argument even if it is large."""


class ResultQuery(WaitQuery, frozen=True, forbid_unknown_fields=True):
    """The query of `GET /v1/jobs/{job_id}/result`."""

    consume: Flag = "0"


class DeleteQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of `DELETE /v1/jobs/{job_id}`."""

    purge: Flag = "0"


async def get_job(parts: ApiContext, request: Request, job_id: str) -> Job:
    """`GET /v1/jobs/{id}`: the job, once it has ended or after `wait` s; `whole`: with a large argument, too."""
    query = read_query(request, JobQuery)
    view = await look_up(parts.services, job_id, request.wait_s(query.wait, parts.config.wait_s_max))
    body = job_body(parts.services, view, job_id, whole=query.whole in YES)
    if isinstance(view, JobView) and (parent := await cancelled_for(parts.services, view)):
        body = structs.replace(body, message=f"PARENT_FAILED: it was cancelled because parent {parent} did not succeed")
    return body


async def get_result(parts: ApiContext, request: Request, job_id: str) -> Response:
    """`GET /v1/jobs/{id}/result?wait=S&consume=1`: the result; nil if there is none yet, or it was deleted."""
    query = read_query(request, ResultQuery)
    consume = query.consume in YES and request.method == "GET"  # a HEAD does not drop the result
    if consume and not parts.services.principal.may(Role.PUSH):
        raise Denied("consume=1 takes the result away: that is for a token of a pusher; a viewer looks without it")
    wait_s = request.wait_s(query.wait, parts.config.wait_s_max)
    view = await look_up(parts.services, job_id, wait_s)
    # Not to be cancelled once the result is dropped: a poll that ends early is answered anew, without the result.
    with trio.CancelScope(shield=consume):
        result = await take_result(parts.services, view, consume=consume)
        if isinstance(result, LargeResult):
            response = await send_result(parts, request, result, _result_of, consume=consume)
        else:
            response = await answer_any(parts, _result_of(result or NIL), request.answer_language())
    return response


def _result_of(packed: bytes) -> Result:
    return Result(Raw(packed))


async def delete_job(parts: ApiContext, request: Request, job_id: str) -> Response:
    """`DELETE /v1/jobs/{id}`: cancel a job: 204 it will not start; 202 recorded, but it runs or the store is away; 409
    it succeeded or failed.

    With `?purge=1` (operator) an ended job is deleted for good: 204; 409 if not; 503 not now.
    """
    if read_query(request, DeleteQuery).purge in YES:
        await purge(parts.services, job_id)
        return Response(204)
    state = await cancel(parts.services, job_id)
    if state is State.CANCELLED:
        return Response(204)
    if state.is_final:
        raise Conflict(f"job {job_id} has already ended: {state.value}")
    return answer(202, RecordedJob(job_id, state), request.answer_language())
