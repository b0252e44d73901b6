"""What may be done to one job: try it again, run it now, change it while it waits."""

from typing import Any

import msgspec

from jqd.api.change import Kind, change
from jqd.api.find import find, resolve
from jqd.api.large import answer_with
from jqd.api.message import DECODE_ERRORS, Request, Response, read_value
from jqd.api.nesting import NESTING_MAX, nests_deeper
from jqd.api.parts import Parts
from jqd.api.problems import RETRY_AFTER_S, Problem, field_problem
from jqd.api.schema import eligible_at_ms, explain, faults
from jqd.api.show import Coming, job_body
from jqd.store import JobView
from jqd.words.media import MSGPACK_TYPES
from jqd.words.record import Lane, PushedJob


class Edit(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `PATCH /v1/jobs/{id}`; what is left out stays as it is."""

    priority: int | msgspec.UnsetType = msgspec.UNSET
    run_at: str | float | msgspec.UnsetType | None = msgspec.UNSET
    """None: at once."""
    delay: float | msgspec.UnsetType = msgspec.UNSET
    argument: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


async def retry(parts: Parts, request: Request, job_id: str) -> Response:
    """`POST /v1/jobs/{id}/retry`: one that failed or was cancelled is tried anew → 200 the job; 404, 409."""
    view = await change(parts, await _view(parts, job_id), Kind.RETRY)
    return await answer_with(parts, 200, job_body(parts, view, job_id), request.answer_language())


async def run_now(parts: Parts, request: Request, job_id: str) -> Response:
    """`POST /v1/jobs/{id}/run-now`: it does not wait for its date any longer → 200 the job; 404, 409."""
    view = await change(parts, await _view(parts, job_id), Kind.RUN_NOW)
    return await answer_with(parts, 200, job_body(parts, view, job_id), request.answer_language())


async def edit(parts: Parts, request: Request, job_id: str) -> Response:
    """`PATCH /v1/jobs/{id}`: another priority, date or argument for a job that waits → 200 the job; 404, 409, 422."""
    fields = _fields(parts, _read(request))
    view = await change(parts, await _view(parts, job_id), Kind.EDIT, **fields)
    return await answer_with(parts, 200, job_body(parts, view, job_id), request.answer_language())


def _read(request: Request) -> Edit:
    """The body; an argument stays as it came, and is not looked into. Raises Problem 400, 415, 422."""
    try:
        packed = request.body
        if request.media_type() not in MSGPACK_TYPES:
            packed = msgspec.msgpack.encode(read_value(request))
        wanted = msgspec.msgpack.decode(packed, type=Edit)
    except msgspec.ValidationError as error:
        raise field_problem(*explain(str(error), Edit.__struct_fields__)) from error
    except OverflowError as error:
        raise field_problem("", "there is an integer of more than 64 bits, which no job can hold") from error
    except DECODE_ERRORS as error:
        raise Problem(400, f"the body is no MessagePack: {error}") from error
    if wanted == Edit():
        raise Problem(422, f"a change is a map of what changes: {', '.join(Edit.__struct_fields__)}")
    return wanted


def _fields(parts: Parts, wanted: Edit) -> dict[str, Any]:
    """What `change` is told: the limits of a push hold here too. Raises Problem 422."""
    given = {name: value for name in Edit.__struct_fields__ if (value := getattr(wanted, name)) is not msgspec.UNSET}
    job = PushedJob(name="any", **given)
    for fault in faults(job, parts.config.job_bytes_max):
        raise field_problem(*fault)
    fields: dict[str, Any] = {}
    if "priority" in given:
        fields["priority"] = job.priority
    if "run_at" in given or "delay" in given:
        fields["eligible_at_ms"] = eligible_at_ms(job, parts.clock.wall_ms())
    if "argument" in given:
        fields["argument"] = bytes(job.argument)
        if nests_deeper(fields["argument"], NESTING_MAX):
            raise field_problem("/argument", f"an argument nests at most {NESTING_MAX} levels deep")
    return fields


async def _view(parts: Parts, given: str) -> JobView:
    """The job as the store has it; one that is on its way there from here is waited for a moment.

    Raises Problem 404, or 503 while it is on its way; StoreAway, StoreRefused.
    """
    job_id = await resolve(parts, given)
    named = job_id != given
    view = await find(parts, job_id, named=named)
    lane = Lane.CHANGES if named else Lane.JOBS
    if isinstance(view, Coming) and await parts.control.wait_caught_up(
        lane, parts.journal.end, parts.config.cancel_s, parts.where(job_id)
    ):
        view = await find(parts, job_id, named=named)
    if isinstance(view, Coming):
        raise Problem(503, f"job {given} is on its way into the store; try again", retry_after_s=RETRY_AFTER_S)
    return view
