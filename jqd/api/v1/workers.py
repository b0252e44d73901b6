"""Who runs jobs here: POST, GET and DELETE of /v1/workers."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, structs

from jqd.api.context import Parts
from jqd.api.decode import read_body
from jqd.api.message import Request, Response, answer, answer_rows
from jqd.api.v1 import responses
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Registered, Workers
from jqd.domain import fields
from jqd.domain.errors import Fault, Invalid
from jqd.domain.job import Name
from jqd.domain.job_options import TypeOptions
from jqd.domain.tenant import bare
from jqd.runner import Card, Worker
from jqd.runner.worker import JOBTYPES_MAX, Declared
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


class Registration(Card, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/workers`. `jobs` is required: a worker that takes everything takes others' jobs, too."""

    jobs: Annotated[Declarations | Literal["*"], Meta(description=JOBS)]  # type: ignore[assignment]


async def register(parts: Parts, request: Request) -> Response:
    """201 {worker_id}: registered, or its registration repeated in time."""
    told = read_body(request, Registration)
    entries = () if told.jobs == ANY else told.jobs
    declared = {n: _declared(n, entry) for n, entry in enumerate(entries) if isinstance(entry, dict)}
    names = [declared[n].name if n in declared else entry for n, entry in enumerate(entries)]
    card = Card(**{**structs.asdict(told), "jobs": tuple(names) or None})
    options = {one.name: TypeOptions(server_only=one.server_only, **dict(one.said())) for one in declared.values()}
    worker = await workers.register(parts.desk, card, options=options, peer=request.peer)
    control = parts.desk.control
    told_of = Registered(bare(worker.id), control.sharers(), control.urls(request.peer))
    return answer(201, told_of, request.answer_language())


def _declared(place: int, entry: dict[str, Any]) -> Declared:
    """An entry of `jobs` with options. Raises Invalid, naming the entry and its field."""
    try:
        return fields.read(msgspec.msgpack.encode(entry), Declared)
    except Invalid as error:
        faults = [Fault(f"/jobs/{place}{fault.pointer}", f"jobs/{place}: {fault.detail}") for fault in error.faults]
        raise Invalid(faults[0].detail, faults) from error


async def list_workers(parts: Parts, request: Request) -> Response:
    """All workers, and how each daemon sees them."""
    return await answer_rows(request, Workers([]), (_row(parts, worker) for worker in workers.seen_by(parts.desk)))


async def unregister(parts: Parts, request: Request, worker_id: str) -> Response:
    """204; what the worker has in hand is still waited for."""
    await workers.unregister(parts.desk, worker_id)
    return Response(204)


def _row(parts: Parts, worker: Worker) -> responses.Worker:
    how = health(parts.desk, worker)
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
        options={bare(name): said for name, said in worker.options.items()},
        overruled=[*map(bare, parts.desk.options.others(worker.options))],
        trouble=worker.trouble,
        state=how.state,
        why=how.why,
        in_hand=parts.desk.control.posted(worker.id) if worker.url is not None else None,
        seen=[
            responses.Seen(
                daemon, seen.state, iso(seen.since_ms), seen.complaint or None, seen.why or None, iso(seen.until_ms)
            )
            for daemon, seen in parts.desk.control.seen(worker.id).items()
        ],
        registered_at=iso(worker.registered_at_ms),
        heard_at=iso(parts.desk.workers.heard_at_ms(worker.id)),
    )
