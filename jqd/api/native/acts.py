"""What may be done to one job: try it again, run it now, change it while it waits."""

import msgspec

from jqd.api.large import answer_with
from jqd.api.message import DECODE_ERRORS, Request, Response, read_value
from jqd.api.native.show import job_body
from jqd.api.parts import Parts
from jqd.desk import change
from jqd.desk.change import Edit
from jqd.desk.limits import explain
from jqd.store import JobView
from jqd.words.errors import Fault, Invalid, Unreadable
from jqd.words.media import MSGPACK_TYPES


async def retry(parts: Parts, request: Request, job_id: str) -> Response:
    """`POST /v1/jobs/{id}/retry`: one that failed or was cancelled is tried anew → 200 the job; 404, 409."""
    return await _answer(parts, request, job_id, await change.retry(parts.desk, job_id))


async def run_now(parts: Parts, request: Request, job_id: str) -> Response:
    """`POST /v1/jobs/{id}/run-now`: it does not wait for its date any longer → 200 the job; 404, 409."""
    return await _answer(parts, request, job_id, await change.run_now(parts.desk, job_id))


async def edit(parts: Parts, request: Request, job_id: str) -> Response:
    """`PATCH /v1/jobs/{id}`: another priority, date or argument for a job that waits → 200 the job; 404, 409, 422."""
    return await _answer(parts, request, job_id, await change.edit(parts.desk, job_id, _read(request)))


async def _answer(parts: Parts, request: Request, job_id: str, view: JobView) -> Response:
    return await answer_with(parts, 200, job_body(parts.desk, view, job_id), request.answer_language())


def _read(request: Request) -> Edit:
    """The body; an argument stays as it came, and is not looked into. Raises Problem 400, 415; Invalid."""
    try:
        packed = request.body
        if request.media_type() not in MSGPACK_TYPES:
            packed = msgspec.msgpack.encode(read_value(request))
        return msgspec.msgpack.decode(packed, type=Edit)
    except msgspec.ValidationError as error:
        fault = explain(str(error), Edit.__struct_fields__)
        raise Invalid(fault.detail, [fault]) from error
    except OverflowError as error:
        detail = "there is an integer of more than 64 bits, which no job can hold"
        raise Invalid(detail, [Fault("", detail)]) from error
    except DECODE_ERRORS as error:
        raise Unreadable(f"the body is no MessagePack: {error}") from error
