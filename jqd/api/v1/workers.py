"""Workers: POST, GET and DELETE of /v1/workers."""

from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, structs

from jqd.api.context import ApiContext
from jqd.api.decode import read_body
from jqd.api.lists import answer_page, page_wanted
from jqd.api.v1 import responses
from jqd.api.v1.job_views import iso
from jqd.api.v1.members import Workers, gone_worker
from jqd.api.v1.responses import Registered
from jqd.domain import fields
from jqd.domain.errors import Fault, Invalid
from jqd.domain.job import Name
from jqd.domain.job_spec import TypeOptions
from jqd.domain.tenant import bare
from jqd.http import Request, Response, answer
from jqd.runner import Worker, WorkerSpec
from jqd.runner.handler import is_version
from jqd.runner.worker import JOBTYPES_MAX, DeclaredOptions
from jqd.service import workers
from jqd.service.health import health

Declarations = Annotated[
    tuple[Name | dict[str, Any], ...],
    Meta(
        min_length=1,
        max_length=JOBTYPES_MAX,
        description=f"a list of 1 to {JOBTYPES_MAX} names, or of maps with options",
    ),
]
ANY: Final = "*"  # for `jobs`: every jobtype there is and will be
JOBS = f'a list of the jobtypes that this worker can run, like ["mail"], or "{ANY}" for every one'


class Registration(WorkerSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/workers`. `jobs` is required: a worker that takes everything takes others' jobs, too."""

    jobs: Annotated[Declarations | Literal["*"], Meta(description=JOBS)]  # type: ignore[assignment]


async def register(parts: ApiContext, request: Request) -> Response:
    """201 {worker_id}: registered, or its registration repeated in time."""
    given = read_body(request, Registration)
    entries = () if given.jobs == ANY else given.jobs
    declared = {n: _declared(n, entry) for n, entry in enumerate(entries) if isinstance(entry, dict)}
    names = [declared[n].name if n in declared else entry for n, entry in enumerate(entries)]
    spec = WorkerSpec(**{**structs.asdict(given), "jobs": tuple(names) or None})
    options = {one.name: TypeOptions(server_only=one.server_only, **dict(one.given())) for one in declared.values()}
    worker = await workers.register(parts.services, spec, options=options, peer=request.peer)
    control = parts.services.control
    body = Registered(bare(worker.id), control.sharers(), control.urls(request.peer))
    return answer(201, body, request.answer_language())


def _declared(place: int, entry: dict[str, Any]) -> DeclaredOptions:
    """Read an entry of `jobs` with options. Raises Invalid, naming the entry and its field."""
    try:
        return fields.read(msgspec.msgpack.encode(entry), DeclaredOptions)
    except Invalid as error:
        faults = [Fault(f"/jobs/{place}{fault.pointer}", f"jobs/{place}: {fault.detail}") for fault in error.faults]
        raise Invalid(faults[0].detail, faults) from error


async def list_workers(parts: ApiContext, request: Request) -> Response:
    """All workers, and how each daemon sees them: oldest first, then versions of handlers."""
    wanted = page_wanted(request)
    found = ((_place(worker), worker) for worker in workers.seen_by(parts.services))
    gone = [] if wanted.behind else [gone_worker(each) for each in workers.gone(parts.services)]
    return await answer_page(request, wanted, partial(Workers, gone=gone or UNSET), found, partial(_row, parts))


async def unregister(parts: ApiContext, request: Request, worker_id: str) -> Response:
    """Unregister a worker; jobs in flight are still waited for."""
    await workers.unregister(parts.services, worker_id)
    return Response(204)


def _place(worker: Worker) -> str:
    return f"{is_version(worker.id):d}{worker.registered_at_ms:016d}{worker.id}"


def _row(parts: ApiContext, worker: Worker) -> responses.Worker:
    how = health(parts.services, worker)
    return responses.Worker(
        worker_id=bare(worker.id),
        name=worker.name,
        tenant=worker.tenant or UNSET,
        url=worker.url,
        jobs=ANY if worker.takes_any else [*map(bare, worker.jobs or ())],
        max_jobs=worker.max_jobs,
        batch=worker.batch,
        batch_linger_ms=worker.batch_linger_ms,
        priority_min=worker.priority_min,
        priority_max=worker.priority_max,
        ttl=worker.ttl_s,
        heartbeat=worker.heartbeat_s,
        style=worker.style,
        format=worker.language,
        method=worker.method,
        headers=[*worker.headers],
        signed=bool(worker.secrets),
        options={bare(name): described_options for name, described_options in worker.options.items()},
        overruled=[*map(bare, parts.services.options.others(worker.options))],
        trouble=worker.trouble,
        state=how.state,
        why=how.why,
        in_flight=parts.services.control.posted(worker.id) if worker.url is not None else None,
        seen=[
            responses.WorkerHealth(
                daemon, seen.state, iso(seen.since_ms), seen.complaint or None, seen.why or None, iso(seen.until_ms)
            )
            for daemon, seen in parts.services.control.seen(worker.id).items()
        ],
        registered_at=iso(worker.registered_at_ms),
        token_id=worker.token if parts.services.can_see_token(worker.token) else None,
        last_seen_at=iso(parts.services.workers.last_seen_at_ms(worker.id)),
    )
