"""Pulls, reports and heartbeats of workers: POST /v1/leases, /v1/outcomes, /v1/jobs/{id}/heartbeat."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
import trio
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import Seconds, instant_in, read_body
from jqd.api.large_bodies import answer_any, packed_body
from jqd.api.problems import as_problem
from jqd.api.v1.responses import Beaten, Lease, Reported, Reports
from jqd.domain import fields
from jqd.domain.errors import Conflict, Invalid, JqdError, TooLarge, Unreadable
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.job import NIL, Name
from jqd.domain.job_spec import Value, nothing
from jqd.http import Request, Response, answer
from jqd.runner import Report, batch_jobs, interrupted
from jqd.runner.outcome import LOG_BYTES_MAX, Printed, Size, status_of
from jqd.runner.worker import Heartbeat, Slots
from jqd.service import leases, outcomes
from jqd.service.leases import PROGRESS_LENGTH_MAX, Lines, Progress
from jqd.service.outcome_batch import OutcomeAnswer

PIECE = 100  # outcomes handled before other tasks have their turn: some 2 ms, or 30 if the faults of each are listed
DESCRIBED_MAX = 100  # wrong outcomes of a request whose faults are all listed: 0.3 ms each
WRONG_TOO = f"it is wrong, too: what is wrong is said of the first {DESCRIBED_MAX} such outcomes of a request"
FENCE_LENGTH_MAX = 19  # digits of a lease id; a longer one is no lease id
NO_JOBS = (NIL, b"\x90")  # nil, and an empty array
SUCCESS = Report()  # a success without a result

Done = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
Note = Annotated[
    str, Meta(max_length=PROGRESS_LENGTH_MAX, description=f"a text of at most {PROGRESS_LENGTH_MAX} characters")
]
Status = Annotated[int, Meta(ge=100, le=599, description="a whole number from 100 to 599")]
Wait = Annotated[float, Meta(ge=0, description="a number of seconds, 0 or more")]


WARM_MAX = 100  # jobtypes: a worker for code keeps no more of them loaded
Warm = Annotated[
    tuple[Name, ...], Meta(max_length=WARM_MAX, description=f"a list of at most {WARM_MAX} names of jobtypes")
]


class Pulling(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/leases`."""

    worker_id: Name
    max_jobs: Slots
    wait: Seconds = 0.0
    heartbeat: Heartbeat | None = None
    """The longest silence of the worker about these jobs, in seconds; None: as registered."""
    warm: Warm = ()
    """Jobtypes whose code the worker has loaded."""


class Outcome(Struct, frozen=True):
    """One outcome in the body of `POST /v1/outcomes`. Unknown fields are ignored."""

    job_id: Name
    lease_id: str
    type: Literal["success", "failure", "snooze", "refused"] | None = None
    status: Status | None = None
    result: Value = msgspec.field(default_factory=nothing)
    result_bytes: Size = 0
    """Size of a result that is too large to be sent."""
    reason: str = ""
    should_retry: bool | None = None
    retry_after: Wait | None = None
    interrupted: bool = False
    error: Value = msgspec.field(default_factory=nothing)
    message: str = ""
    jobs: Value = msgspec.field(default_factory=nothing)
    log: str = ""
    log_from: Printed = 0
    finished_at: Value = msgspec.field(default_factory=nothing)


class Beating(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /v1/jobs/{id}/heartbeat`."""

    lease_id: str
    progress: Done | None = None
    message: Note | None = None
    extend: Heartbeat | None = None
    log: Annotated[str, Meta(description="lines, of a job that somebody follows")] = ""
    log_from: Printed = 0
    """Bytes that the attempt printed before these lines."""


class Untaken(NamedTuple):
    """An outcome in a report that is refused before the store is asked, with the reason."""

    job_id: str | UnsetType
    """The id of the job; UNSET if it cannot be decoded."""
    error: JqdError


_decoder = msgspec.msgpack.Decoder(list[Outcome])
_one_decoder = msgspec.msgpack.Decoder(Outcome)


async def pull(parts: ApiContext, request: Request) -> Lease | Response:
    """Lease jobs for a worker as soon as there are some; an empty list when `wait` is over."""
    wanted, config = read_body(request, Pulling), parts.config
    if request.hurried:
        return Lease(None, [])
    wait_s = request.wait_s(wanted.wait, config.wait_s_max)
    lease = await leases.pull(parts.services, wanted.worker_id, wanted.max_jobs, wait_s, wanted.heartbeat, wanted.warm)
    if not lease.jobs:
        return Lease(None, [])
    given = batch_jobs(lease.jobs, parts.services.clock.wall_ms())
    try:
        response = await answer_any(parts, Lease(lease.lease_id, given, lease.silence_s), request.answer_language())
    except trio.Cancelled:
        leases.lost(parts.services, lease)
        raise
    return msgspec.structs.replace(response, lost=(lambda: leases.lost(parts.services, lease),))


async def report(parts: ApiContext, request: Request) -> Reports | Response:
    """Accept outcomes of jobs; an outcome with `status` 200 is on disk."""
    given = await _read(await packed_body(parts, request), parts.config.array_jobs_max)
    taken = await outcomes.report(parts.services, [each for each in given if isinstance(each, OutcomeAnswer)])
    results = iter(taken)
    errors = [each.error if isinstance(each, Untaken) else next(results) for each in given]
    failed = [error for error in errors if error is not None and as_problem(error).status >= 500]
    if failed and len(failed) == len(errors):
        raise failed[0]
    rows: list[Reported] = []
    for place, (each, error) in enumerate(zip(given, errors, strict=True)):
        if place % PIECE == 0:
            await trio.lowlevel.checkpoint()
        rows.append(_row(each, error))
    body = Reports(rows)
    if len(rows) <= PIECE or request.answer_language() == "msgpack":
        return body
    return await trio.to_thread.run_sync(answer, 200, body, "json", limiter=parts.shown)


async def beat(parts: ApiContext, request: Request, job_id: str) -> Beaten:
    """Renew a job's lease, and save its progress and output. The answer says whether the job was cancelled."""
    given = read_body(request, Beating)
    progress = None
    if given.progress is not None or given.message is not None:
        progress = Progress(given.progress, given.message, parts.services.clock.wall_ms())
    fence = fence_of(given.lease_id)
    if not fence:
        raise Conflict(f"{given.lease_id[:64]!r} is no lease")
    if (size := len(given.log.encode("utf-8", "replace"))) > LOG_BYTES_MAX:
        raise Invalid.at("/log", f"log has {size} bytes, and {LOG_BYTES_MAX} are kept: send the last ones")
    lines = Lines(given.log_from, given.log)
    beaten = await leases.beat(parts.services, job_id, fence, progress, given.extend, lines)
    log_end = UNSET if beaten.log_end is None else beaten.log_end
    return Beaten(beaten.cancelled, beaten.silence_s or UNSET, log_end)


def fence_of(lease_id: str) -> int:
    """Return the fence (the number of a claim) in a lease id; 0 if the text is no lease id."""
    is_one = lease_id.isascii() and lease_id.isdecimal() and len(lease_id) <= FENCE_LENGTH_MAX
    return int(lease_id) if is_one else 0


async def _read(packed: bytes, most: int) -> list[OutcomeAnswer | Untaken]:
    """Decode the outcomes in a report. Lets other tasks run in between, because describing 10,000 errors takes a
    second. Raises Invalid, Unreadable, TooLarge."""
    try:
        items = msgspec.msgpack.decode(packed, type=list[Raw])
    except msgspec.ValidationError as error:
        raise Invalid.at("", "an array of outcomes is wanted") from error
    except DECODE_ERRORS as error:
        raise Unreadable(f"the body is an array of outcomes, and this is none: {error}") from error
    if not items:
        raise Unreadable("the array of outcomes is empty")
    if len(items) > most:
        raise TooLarge(f"more than {most} outcomes in one request; send them in several")
    rows: list[OutcomeAnswer | Untaken] = []
    wrong = 0
    try:
        outcomes: Sequence[Outcome | Raw] = _decoder.decode(packed)
    except DECODE_ERRORS:
        outcomes = items  # decode them one by one, to find the wrong ones
    for place, item in enumerate(outcomes):
        if place % PIECE == 0:
            await trio.lowlevel.checkpoint()
        job_id: str | UnsetType = UNSET
        try:
            outcome = item if isinstance(item, Outcome) else _outcome(item, wrong)
            job_id = outcome.job_id
            rows.append(_answer_of(outcome))
        except JqdError as error:
            rows.append(Untaken(job_id, error))
            wrong += 1
    return rows


def _outcome(item: Raw, refused: int) -> Outcome:
    """Decode one outcome. `refused`: how many outcomes before it were wrong; if there were many, the error does not say
    what is wrong. Raises Invalid."""
    if refused < DESCRIBED_MAX:
        return fields.read(bytes(item), Outcome)
    try:
        return _one_decoder.decode(item)
    except DECODE_ERRORS as error:
        raise Invalid(WRONG_TOO) from error


def _answer_of(each: Outcome) -> OutcomeAnswer:
    fence = fence_of(each.lease_id)
    if not fence:
        raise Conflict(f"{each.lease_id[:64]!r} is no lease")
    if each == Outcome(each.job_id, each.lease_id, "success"):  # the quick way, for nearly all
        return OutcomeAnswer(each.job_id, SUCCESS, fence)
    if each.type == "refused":
        return OutcomeAnswer(
            each.job_id, interrupted(each.message or "handed back") if each.interrupted else None, fence
        )
    if each.status is None and each.type is None:
        raise Invalid("type or status is required: success, failure, snooze or refused; 100 to 599")
    status, reason = status_of(each.type or "", each.reason, each.should_retry)
    what = Report(
        status=status if each.status is None else each.status,
        should_retry=each.should_retry,
        retry_after_s=each.retry_after,
        reason=reason,
        message=each.message,
        error=bytes(each.error),
        result=bytes(each.result),
        result_bytes=each.result_bytes,
        log=each.log,
        log_from=each.log_from,
        ended_at_ms=instant_in(each.finished_at),
        follows=b"" if bytes(each.jobs) in NO_JOBS else bytes(each.jobs),
    )
    return OutcomeAnswer(each.job_id, what, fence)


def _row(outcome: OutcomeAnswer | Untaken, error: JqdError | None) -> Reported:
    if error is None:
        return Reported(job_id=outcome.job_id, status=200)
    problem = as_problem(error)
    return Reported(job_id=outcome.job_id, status=problem.status, detail=problem.detail)
