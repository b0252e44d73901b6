"""The API of Skygear's job queue: two actions, for callers with the master key.

    POST /               {action: "job:enqueue" | "job:cancel", api_key, …}
    POST /job/enqueue    {api_key, job: {action, args}, job_id, run_at, replace}    → {result: {job_id}}
    POST /job/cancel     {api_key, job_id}                                          → {result: {job_id}}

The key is in the body or in the header X-Skygear-Api-Key. Errors are {error: {name, code, message, info}}, with
Skygear's names, codes and statuses. Unknown fields of a body are ignored, as Skygear does.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from jqd.api.auth import TENANT, speaking_for
from jqd.api.context import ApiContext
from jqd.api.decode import pack, unpack
from jqd.api.problems import Problem, as_problem
from jqd.domain import errors as ours
from jqd.domain.errors import Conflict, Denied, Invalid, JqdError, NotFound, StoreAway
from jqd.domain.job import Name, State
from jqd.domain.job_spec import Value
from jqd.domain.tokens import Role
from jqd.http import Request, Response, answer
from jqd.runner.worker import SECRET
from jqd.service import push
from jqd.service.batch import read_array
from jqd.service.cancel import cancel
from jqd.service.find import find, resolve
from jqd.store import Replace

ENQUEUE, CANCEL = "job:enqueue", "job:cancel"
KEY_HEADER = "x-skygear-api-key"
PLACES = {"/name": "job/action", "/argument": "job/args"}  # pointer to a job's field → its place in Skygear's body
NO_KEY = (
    "the api key is empty; send the master key, or a token of the role master, as api_key or in X-Skygear-Api-Key"
    " (Authorization is not read here)"
)
WAITS = (State.WAITING, State.SCHEDULED, State.RETRYING)


class Kind(NamedTuple):
    """A kind of error of Skygear: its name and number."""

    name: str
    code: int
    status: int


NOT_AUTHENTICATED = Kind("NotAuthenticated", 101, 401)
PERMISSION_DENIED = Kind("PermissionDenied", 102, 403)
KEY_NOT_ACCEPTED = Kind("AccessKeyNotAccepted", 103, 401)
BAD_REQUEST = Kind("BadRequest", 107, 400)
INVALID_ARGUMENT = Kind("InvalidArgument", 108, 400)
DUPLICATED = Kind("Duplicated", 109, 409)
NOT_FOUND = Kind("ResourceNotFound", 110, 404)
UNDEFINED = Kind("UndefinedOperation", 117, 404)
UNAVAILABLE = Kind("PluginUnavailable", 118, 503)  # its status is 507 if the disk is full
UNEXPECTED = Kind("UnexpectedError", 10_000, 500)
KINDS: tuple[tuple[type[JqdError], Kind], ...] = (
    (ours.Denied, PERMISSION_DENIED),
    (ours.NotFound, NOT_FOUND),
    (ours.Conflict, DUPLICATED),
    (ours.Invalid, INVALID_ARGUMENT),
    (ours.Unreadable, BAD_REQUEST),
    (ours.TooLarge, BAD_REQUEST),
    (ours.Overloaded, UNAVAILABLE),
)
"""Error → kind of error. The first row whose class matches counts. For other errors the kind follows from their status
in jqd's own API."""


class Refused(Problem):
    """A refusal that is one of Skygear's own kinds of error."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(kind.status, message)
        self.kind = kind


class SkyJob(Struct):
    """The job of a request."""

    action: Name
    args: Annotated[Value, Meta(description="an array or a map")] | UnsetType = UNSET


class SkyKeyed(Struct, kw_only=True):
    """The fields that every body may have."""

    api_key: Annotated[str, Meta(extra_json_schema=SECRET)] | None = None
    action: str | None = None


class SkyEnqueue(SkyKeyed, kw_only=True):
    """The body of `job:enqueue`."""

    job: SkyJob
    job_id: str | None = None
    """The id of the job. If it is missing or empty, jqd makes one."""
    run_at: Annotated[str, Meta(description="an ISO 8601 date with a time zone")] | None = None
    replace: bool = False


class SkyCancel(SkyKeyed, kw_only=True):
    """The body of `job:cancel`."""

    job_id: str


class SkyPushed(Struct, frozen=True):
    """The `result` in an answer: the id of the job."""

    job_id: str


class SkyResult(Struct, frozen=True):
    """The answer of `job:enqueue` and `job:cancel`."""

    result: SkyPushed


class SkyError(Struct, frozen=True):
    """An error in Skygear's format."""

    name: str
    code: int
    message: str
    info: dict[str, Sequence[str]]
    """`arguments`: names of wrong fields, if there are any."""


class SkyRefusal(Struct, frozen=True):
    """The body of a response with an error."""

    error: SkyError


async def act(parts: ApiContext, request: Request) -> SkyResult:
    """`POST /`: run the action that the body names."""
    parts, packed = _let_in(parts, request)
    action = unpack(packed, SkyKeyed).action
    if action == ENQUEUE:
        return await _enqueue(parts, packed, request)
    if action == CANCEL:
        return await _cancel(parts, packed, request)
    raise Refused(UNDEFINED, f"there is no action {(action or '')[:64]!r}; there are {ENQUEUE} and {CANCEL}")


async def enqueue(parts: ApiContext, request: Request) -> SkyResult:
    """`POST /job/enqueue` → 200 {result: {job_id}}; 409 if another job has that id and `replace` is false."""
    return await _enqueue(*_let_in(parts, request), request)


async def cancel_job(parts: ApiContext, request: Request) -> SkyResult:
    """`POST /job/cancel` → 200 {result: {job_id}}: the job will not start. 404 if no such job waits."""
    return await _cancel(*_let_in(parts, request), request)


def refuse(request: Request, error: JqdError) -> Response:
    """Return the response for an error, in Skygear's format."""
    problem = as_problem(error)
    kind = _kind(error, problem)
    error_body = SkyError(kind.name, kind.code, problem.detail, _info(error))
    headers = {} if problem.retry_after_s is None else {"retry-after": str(problem.retry_after_s)}
    status = 507 if problem.status == 507 else kind.status
    return answer(status, SkyRefusal(error_body), request.answer_language(), headers)


def _kind(error: JqdError, problem: Problem) -> Kind:
    if isinstance(error, Refused):
        return error.kind
    for type_, kind in KINDS:
        if isinstance(error, type_):
            return kind
    if problem.status in (401, 403):
        return PERMISSION_DENIED
    if problem.status == 500:
        return UNEXPECTED
    return UNAVAILABLE if problem.status > 500 else BAD_REQUEST


def _info(error: JqdError) -> dict[str, Sequence[str]]:
    if not isinstance(error, Invalid) or not error.faults:
        return {}
    names = (PLACES.get(fault.pointer) or fault.pointer.strip("/") for fault in error.faults)
    return {"arguments": [name for name in names if name]}


def _let_in(parts: ApiContext, request: Request) -> tuple[ApiContext, bytes]:
    """Check the key, before anything else of the request. Returns the context that acts for the key's principal, and
    the body as MessagePack. The key is the master key or a token of the role master."""
    packed = pack(request)
    given = request.headers.get(KEY_HEADER) or unpack(packed, SkyKeyed).api_key or ""
    if not given:
        raise Refused(NOT_AUTHENTICATED, NO_KEY)
    try:
        who = parts.auth.by_token(given)
        if (tenant := request.headers.get(TENANT)) is not None:
            who = speaking_for(who, tenant)
    except Problem as problem:
        if problem.status != 401:
            raise
        raise Refused(KEY_NOT_ACCEPTED, "this api key is none that is known here") from problem
    if not who.may(Role.MASTER):
        raise Denied("this takes the master key, and another one was sent")
    return parts.as_principal(who), packed


async def _enqueue(parts: ApiContext, packed: bytes, request: Request) -> SkyResult:
    push.expect_open(parts.services)
    given = unpack(packed, SkyEnqueue)
    fields: dict[str, object] = {"name": given.job.action}
    if not isinstance(given.job.args, UnsetType):
        fields["argument"] = _args(given.job.args)
    if given.job_id:
        fields |= {"job_id": given.job_id, "replace": given.replace}  # without an id `replace` would be refused
    if given.run_at:
        fields["run_at"] = given.run_at
    batch = read_array(msgspec.msgpack.encode([fields]), True, parts.config)
    batch.over = Replace.ENDED  # in Skygear a job that has ended no longer exists
    pushed = await push.push(parts.services, batch)
    if pushed.duplicates:
        raise Conflict(f"there is a job {given.job_id!r} already; enqueue with replace to have this one in its place")
    return SkyResult(SkyPushed(str(pushed.job_ids[0])))


def _args(args: Raw) -> Raw:
    """Check that the arguments are an array or a map, and return them. Raises Invalid."""
    first = bytes(memoryview(args)[:1])[0]
    if 0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF:
        return args
    raise Invalid.at("/argument", "job/args must be an array or a map; put any other value into one, or leave args out")


async def _cancel(parts: ApiContext, packed: bytes, request: Request) -> SkyResult:
    """Cancel a job that has not started. Raises NotFound if it runs or has ended."""
    given = unpack(packed, SkyCancel).job_id
    job_id = await resolve(parts.services, given)
    view = await find(parts.services, job_id, named=job_id != given)
    if view.state not in WAITS:
        raise NotFound(f"job {given!r} is {view.state.value}: it does not wait, so there is nothing to cancel")
    state = await cancel(parts.services, given)
    if state is State.CANCELLED:
        return SkyResult(SkyPushed(given))
    if state is State.RUNNING or state.is_final:
        raise NotFound(f"job {given!r} has started meanwhile; its worker is told to stop")
    raise StoreAway("the cancel is recorded, but the store does not answer: the job may still start")
