"""The API of the job queue LightJQ, exactly as its own OpenAPI document has it.

It speaks MessagePack unless the client says JSON. It has fewer statuses than jqd's own API: a wrong request is a 400,
unless it is refused before it comes here (405, 415). Other errors have HTTP's usual statuses: 429 for a quota, 503 and
507 for the daemon's own troubles.
"""

from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import Seconds, instant_in, read_body, read_query, unpack
from jqd.api.large_bodies import answer_any, packed_body, render
from jqd.api.message import problem_answer
from jqd.api.problems import Problem, as_problem
from jqd.domain import errors as ours
from jqd.domain.dates import iso
from jqd.domain.errors import Conflict, Denied, Invalid, JqdError, StoreAway
from jqd.domain.job import NIL, Name, Priority, State
from jqd.domain.job_spec import Retries, Timeout, Value, nothing
from jqd.domain.results import LargeResult
from jqd.domain.tenant import bare
from jqd.http import Request, Response, answer
from jqd.runner import Report, WorkerSpec
from jqd.runner.worker import Jobtypes, Slots, Url
from jqd.service import Coming, Services, outcomes, push, workers
from jqd.service.batch import read_array
from jqd.service.cancel import cancel
from jqd.service.find import find, look_up, resolve, worker_of
from jqd.service.outcome_batch import OutcomeAnswer
from jqd.store import JobView

MAX_RETRY = 10  # default of a job
POLLING_S = 5.0  # default `timeout` of a poll
STATUSES: tuple[tuple[type[JqdError], int], ...] = (
    (ours.Denied, 403),
    (ours.NotFound, 404),
    (ours.Conflict, 409),
    (ours.NotYet, 503),
    (ours.Closed, 503),
    (ours.Overloaded, 429),
    (ours.JournalRefused, 503),
    (ours.StoreAway, 503),
    (ours.StoreRefused, 503),
    (ours.ServiceError, 400),
)
"""Error → status in the LightJQ API. The first row whose class matches counts."""
UNSAID = frozenset({403, 413, 414, 415, 422})  # jqd's statuses that LightJQ lacks: 400 is answered instead


class LightJob(msgspec.Struct):
    """The body of `POST /job`. Unknown fields are ignored, as everywhere in this API."""

    name: Name
    argument: Value
    priority: Priority | UnsetType = UNSET
    max_retry: Retries | UnsetType = UNSET
    keep_result: bool | UnsetType = UNSET
    timeout: Timeout | UnsetType = UNSET


class LightWorker(msgspec.Struct):
    """The body of `POST /worker`; `url` and `jobs` are additions by jqd."""

    name: Name
    max_jobs: Slots
    url: Url | None = None
    jobs: Jobtypes | None = None


class AnyQuery(msgspec.Struct, frozen=True):
    """A query whose parameters are all ignored."""


class Polling(msgspec.Struct, frozen=True):
    """The query of a poll; other parameters are ignored."""

    timeout: Seconds = POLLING_S


class LightPushed(msgspec.Struct, frozen=True):
    """The answer of `POST /job`."""

    job_id: str


class Status(msgspec.Struct, frozen=True):
    """The answer of `GET /job/{job_id}` and its polling."""

    status: Literal["queued", "running", "retrying", "error", "done"]
    worker_id: str = ""
    result: Value = msgspec.field(default_factory=nothing)
    error: Value = msgspec.field(default_factory=nothing)
    message: str = ""
    retry_count: int = 0
    finished_at: str | UnsetType = UNSET
    """When the last attempt ended, as its worker reported it."""


class LightRegistered(msgspec.Struct, frozen=True):
    """The answer of `POST /worker`."""

    worker_id: str


class Done(msgspec.Struct):
    """The field of a body of `POST /done` that says whether it is a `Success` or a `Failure`."""

    type: Literal["success", "failure"]


class Success(msgspec.Struct):
    """The body of `POST /done` for a job that succeeded."""

    job_id: str
    result: Value = msgspec.field(default_factory=nothing)
    finished_at: Value = msgspec.field(default_factory=nothing)


class Failure(msgspec.Struct):
    """The body of `POST /done` for a job that failed."""

    job_id: str
    reason: Literal["timeout", "other"]
    should_retry: bool
    message: str
    error: Value = msgspec.field(default_factory=nothing)
    finished_at: Value = msgspec.field(default_factory=nothing)


async def push_job(parts: ApiContext, request: Request) -> Response:
    """`POST /job` → 201 {job_id}."""
    push.expect_open(parts.services)
    job = read_body(request, LightJob)
    # Only this default is LightJQ's: jqd's limits of a job, and the options of its jobtype, hold here too.
    if job.max_retry is UNSET and not parts.services.options.sets_option(
        parts.services.qualified_name(job.name), "max_retry"
    ):
        job.max_retry = MAX_RETRY
    batch = read_array(msgspec.msgpack.encode([job]), True, parts.config)
    pushed = await push.push(parts.services, batch)
    return answer(201, LightPushed(str(pushed.job_ids[0])), _language(request))


async def get_job(parts: ApiContext, request: Request, job_id: str) -> Response:
    """`GET /job/{job_id}`: state and result of the job."""
    view = await look_up(parts.services, job_id, 0.0)
    return await _answer(parts, request, view)


async def delete_job(parts: ApiContext, request: Request, job_id: str) -> Response:
    """`DELETE /job/{job_id}`: cancel a job that has not started. If it starts meanwhile, the cancel stands, and its
    worker is told to stop: 409 tells so, as the job may still succeed."""
    own_id = await resolve(parts.services, job_id)
    view = await find(parts.services, own_id, named=own_id != job_id, given=job_id)
    if view.state in (State.RUNNING, State.RETRYING) or view.state.is_final:
        raise Conflict(f"job {job_id} is {_status(view)}: it cannot be cancelled any more")
    state = await cancel(parts.services, job_id)
    if state is State.CANCELLED:
        return Response(204)
    if state is State.RUNNING:
        raise Conflict(f"job {job_id} has started meanwhile; its worker is told to stop")
    if state.is_final:
        raise Conflict(f"job {job_id} has ended meanwhile")
    raise StoreAway("the cancel is recorded, but the store does not answer: the job may still start")


async def poll_job(parts: ApiContext, request: Request, job_id: str) -> Response:
    """`GET /job/{job_id}/polling?timeout=5`: answer when the job has ended, or 408 when the time is over."""
    wait_s = _polling_s(request, parts.config.lightjq_wait_s_max)
    view = await look_up(parts.services, job_id, wait_s)
    if not view.state.is_final:
        raise Problem(408, f"job {job_id} is still {_status(view)} after {wait_s:g} s")
    return await _answer(parts, request, view)


async def _answer(parts: ApiContext, request: Request, view: JobView | Coming) -> Response:
    """Return the answer with the state and the result of a job."""
    services, result = parts.services, view.result if isinstance(view, JobView) else None
    if isinstance(result, LargeResult):
        return await render(parts, request, result, partial(_body, services, view), _language(request))
    return await answer_any(parts, _body(services, view, result or NIL), _language(request))


def _polling_s(request: Request, max_s: float) -> float:
    """Return for how many seconds a poll may wait. LightJQ has no error for an invalid value: the default is used
    instead."""
    try:
        return request.wait_s(read_query(request, Polling).timeout, max_s)
    except (Invalid, Problem):
        return request.wait_s(POLLING_S, max_s)


async def register(parts: ApiContext, request: Request) -> Response:
    """`POST /worker` → 201 {worker_id}. Jobs are posted to /worker-job below the worker's `url`; without one, it pulls.

    LightJQ itself has no `url`: for its workers the setting `api.lightjq_workers` has the URLs, by their names.
    """
    spec = WorkerSpec(**msgspec.structs.asdict(read_body(request, LightWorker)), style="lightjq")
    peer = request.peer
    known = dict(each.split("=", 1) for each in parts.config.lightjq_workers)
    if spec.url is None and spec.name in known:
        who = parts.services.principal
        if who.tenant or who.scopes:  # such a worker serves the whole tenant ""
            raise Denied(f"worker {spec.name[:64]!r} is the operator's own; its token has no tenant and no scopes")
        spec, peer = msgspec.structs.replace(spec, url=known[spec.name]), None  # the setting gave the URL, not the peer
    worker = await workers.register(parts.services, spec, peer=peer)
    return answer(201, LightRegistered(bare(worker.id)), _language(request))


async def unregister(parts: ApiContext, request: Request) -> Response:
    """`DELETE /worker`: delete the worker that the header worker-id names."""
    await workers.unregister(parts.services, _worker_id(request, status=404))  # LightJQ's document has no 400 here
    return Response(204)


async def done(parts: ApiContext, request: Request) -> Response:
    """`POST /done`: report the outcome of a job; the header worker-id names the worker."""
    worker_id = _worker_id(request)
    outcome: Success | Failure
    packed = await packed_body(parts, request)  # converted once, as a result in JSON may be large
    if unpack(packed, Done).type == "success":
        outcome = unpack(packed, Success)
        report = Report(status=200, result=bytes(outcome.result), ended_at_ms=instant_in(outcome.finished_at))
    else:
        outcome = unpack(packed, Failure)
        report = Report(
            status=504 if outcome.reason == "timeout" else 500,
            should_retry=outcome.should_retry,
            reason=outcome.reason,
            message=outcome.message,
            error=bytes(outcome.error),
            ended_at_ms=instant_in(outcome.finished_at),
        )
    (error,) = await outcomes.report(
        parts.services, [OutcomeAnswer(outcome.job_id, report, worker=parts.services.qualified_name(worker_id))]
    )
    if error is not None:
        raise error
    return Response(204)


def refuse(request: Request, error: JqdError) -> Response:
    """Return the response for an error, in LightJQ's format."""
    problem = as_problem(error, STATUSES)
    if problem.status in UNSAID:
        problem = Problem(400, problem.detail, errors=problem.errors)
    return problem_answer(problem, _language(request))


def _language(request: Request) -> Any:
    return request.answer_language(otherwise="msgpack")


def _worker_id(request: Request, status: int = 400) -> str:
    worker_id = request.headers.get("worker-id", "")
    if not worker_id:
        raise Problem(status, "the header worker-id is missing; it is what POST /worker answered")
    return worker_id


def _status(view: JobView | Coming) -> Literal["queued", "running", "retrying", "error", "done"]:
    match view.state:
        case State.SUCCEEDED:
            return "done"
        case State.FAILED | State.CANCELLED:
            return "error"
        case State.RUNNING:
            return "running"
        case State.RETRYING:
            return "retrying"
    return "queued"


def _body(services: Services, view: JobView | Coming, result: bytes) -> Status:
    if isinstance(view, Coming):
        return Status(_status(view))
    last = view.outcome
    return Status(
        _status(view),
        worker_id=worker_of(services, view),
        result=Raw(result),
        error=Raw(last.error) if last else nothing(),
        message="cancelled" if view.state is State.CANCELLED else last.message if last else "",
        retry_count=max(0, view.attempts - 1),
        finished_at=iso(finished_ms) if last and (finished_ms := last.by_worker_at_ms) is not None else UNSET,
    )
