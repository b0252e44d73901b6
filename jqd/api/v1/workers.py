"""POST, GET and DELETE of /v1/workers; and the workers and daemons that went away lately, for the lists of both."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from jqd.api.context import ApiContext
from jqd.api.decode import read_body
from jqd.api.lists import ListQuery, Page, answer_page, page_wanted
from jqd.api.message import alike
from jqd.api.v1 import responses
from jqd.api.v1.job_views import iso
from jqd.api.v1.responses import Instant, Registered
from jqd.domain import fields
from jqd.domain.errors import Fault, Invalid
from jqd.domain.job import Name
from jqd.domain.job_spec import TypeOptions
from jqd.domain.tenant import bare, tenant_of
from jqd.http import Request, Response
from jqd.runner import Worker, WorkerSpec
from jqd.runner.departures import Gone
from jqd.runner.handler import is_version
from jqd.runner.worker import JOBTYPES_MAX, DeclaredOptions
from jqd.service import workers
from jqd.service.health import health

GONE = "on the first page: what went within the last day, the newest first, at most 100, those that died before others"


class Daemon(Struct, frozen=True):
    """A daemon of the store."""

    daemon: str
    this: bool
    living: Annotated[bool | None, Meta(description="null: not known, the store is away")]
    through: bool
    last_seen_s: float
    in_flight: int | None
    drained_at: Instant | None = None
    """Since when it is drained."""


class GoneDaemon(Struct, frozen=True):
    """A daemon that went away within the last 24 hours."""

    daemon: str
    how: Annotated[Literal["died", "left"], Meta(description="`left`: it was stopped in good order")]
    at: Instant | None
    """When its end was noticed."""
    last_seen_at: Annotated[Instant | None, Meta(description="its last sign of life; null: not known")]
    jobs: Annotated[int, Meta(description="in flight there, and ready again since")]
    by: Annotated[Sequence[str], Meta(description="daemons that gave them back, or saw it go")]
    times: Annotated[int, Meta(description="how often within the day")]


class Daemons(Page, frozen=True):
    """One page of daemons."""

    daemons: Sequence[Daemon]
    gone: Annotated[Sequence[GoneDaemon], Meta(description=GONE)] | UnsetType = UNSET


class GoneWorker(Struct, frozen=True, kw_only=True):
    """A worker that went away within the last 24 hours, and has not come back."""

    worker_id: str
    name: str
    tenant: str | UnsetType = UNSET
    how: Annotated[Literal["died", "left"], Meta(description="`left`: it was unregistered")]
    at: Instant | None
    last_seen_at: Instant | None
    jobs: Annotated[int, Meta(description="in flight there that went back or failed an attempt as it fell silent")]
    by: Sequence[str]
    times: int


class Workers(Page, frozen=True):
    """One page of workers."""

    workers: Sequence[responses.Worker]
    gone: Annotated[Sequence[GoneWorker], Meta(description=GONE)] | UnsetType = UNSET


def gone_daemon(gone: Gone) -> GoneDaemon:
    row = gone.row
    return GoneDaemon(row.name, _how(gone), iso(row.at_ms), iso(row.last_seen_at_ms), row.jobs, gone.by, row.times)


def gone_worker(gone: Gone) -> GoneWorker:
    row = gone.row
    return GoneWorker(
        worker_id=bare(row.name),
        name=row.called,
        tenant=tenant_of(row.name) or UNSET,
        how=_how(gone),
        at=iso(row.at_ms),
        last_seen_at=iso(row.last_seen_at_ms),
        jobs=row.jobs,
        by=gone.by,
        times=row.times,
    )


def _how(gone: Gone) -> Literal["died", "left"]:
    return "died" if gone.row.died else "left"


Declarations = Annotated[
    tuple[Name | dict[str, Any], ...],
    Meta(
        min_length=1,
        max_length=JOBTYPES_MAX,
        description=f"a list of 1 to {JOBTYPES_MAX} names, or of maps with options",
    ),
]
ANY: Final = "*"  # as `jobs`: all jobtypes, also future ones
JOBS = f'a list of the jobtypes that this worker can run, like ["mail"], or "{ANY}" for every one'


class Registration(WorkerSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/workers`. `jobs` is required: by default a worker would take jobs meant for others."""

    jobs: Annotated[Declarations | Literal["*"], Meta(description=JOBS)]  # type: ignore[assignment]


async def register(parts: ApiContext, request: Request) -> Registered:
    """201 {worker_id}: register a worker, or repeat its registration."""
    given = read_body(request, Registration)
    entries = () if given.jobs == ANY else given.jobs
    declared = {n: _declared(n, entry) for n, entry in enumerate(entries) if isinstance(entry, dict)}
    names = [declared[n].name if n in declared else entry for n, entry in enumerate(entries)]
    spec = WorkerSpec(**{**structs.asdict(given), "jobs": tuple(names) or None})
    options = {each.name: TypeOptions(server_only=each.server_only, **dict(each.given())) for each in declared.values()}
    worker = await workers.register(parts.services, spec, options=options, peer=request.peer)
    control = parts.services.control
    return Registered(bare(worker.id), control.sharers(), control.urls(request.peer))


def _declared(place: int, entry: dict[str, Any]) -> DeclaredOptions:
    """Decode an entry of `jobs` in a registration that has options. `place`: its index. Raises Invalid, which names the
    entry and its field."""
    try:
        return fields.read(msgspec.msgpack.encode(entry), DeclaredOptions)
    except Invalid as error:
        faults = [Fault(f"/jobs/{place}{fault.pointer}", f"jobs/{place}: {fault.detail}") for fault in error.faults]
        raise Invalid(faults[0].detail, faults) from error


async def list_workers(parts: ApiContext, request: Request) -> Response:
    """All workers, the oldest first, then versions of handlers; and how each daemon sees them."""
    wanted = page_wanted(request, ListQuery)
    found = (
        (f"{is_version(each.id):d}{each.registered_at_ms:016d}{each.id}", each)
        for each in workers.seen_by(parts.services)
    )
    gone = [] if wanted.behind else [gone_worker(each) for each in workers.gone(parts.services)]
    return await answer_page(request, wanted, partial(Workers, gone=gone or UNSET), found, partial(_row, parts))


async def unregister(parts: ApiContext, request: Request, worker_id: str) -> None:
    """Unregister a worker. Jobs in flight go on."""
    await workers.unregister(parts.services, worker_id)


def _row(parts: ApiContext, worker: Worker) -> responses.Worker:
    how = health(parts.services, worker)
    fields = alike(
        responses.Worker,
        worker,
        worker_id=bare(worker.id),
        tenant=worker.tenant or UNSET,
        jobs=ANY if worker.takes_any else [*map(bare, worker.jobs or ())],
        ttl=worker.ttl_s,
        heartbeat=worker.heartbeat_s,
        format=worker.language,
        headers=[*worker.headers],
        signed=bool(worker.secrets),
        options={bare(name): described_options for name, described_options in worker.options.items()},
        overruled=[*map(bare, parts.services.options.changed(worker.options))],
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
    return responses.Worker(**fields)
