"""Response types of jqd's own API, which are encoded as they are.

Instants are ISO 8601 in UTC. Arbitrary values, such as results, are MessagePack in a `msgspec.Raw`.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.lists import Page
from jqd.api.problems import Error
from jqd.domain.job import Code, Keep, State
from jqd.domain.job_spec import JobOptions, TypeOptions, Value, Waits
from jqd.runner import BatchJob
from jqd.runner.handler import Lang
from jqd.runner.worker import Format, StyleName
from jqd.service.health import WorkerState
from jqd.service.listing import Looked, Of
from jqd.service.push import Level
from jqd.service.walk import NEAR_MAX

Instant = Annotated[str, Meta(description="ISO 8601, in UTC")]


class PushedJob(Struct, frozen=True):
    """The answer to a push of one job."""

    job_id: str
    ack: Level | UnsetType = UNSET
    """How safe the job is: the level reached."""
    replicas: int | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET


class PushedJobs(Struct, frozen=True):
    """The answer to a push of an array: ids in the order of the array, null for refused jobs."""

    job_ids: Sequence[str | None]
    ack: Level | UnsetType = UNSET
    replicas: int | UnsetType = UNSET
    duplicates: Sequence[str] | UnsetType = UNSET
    errors: Sequence[Error] | UnsetType = UNSET


class Attempt(Struct, kw_only=True, frozen=True):
    """One failed attempt."""

    attempt: int
    status: int
    started_at: Instant | None
    finished_at: Instant | None
    worker_finished_at: Instant | UnsetType = UNSET
    worker: str | None
    reason: str | None
    error: Value
    message: str | None


class Progress(Struct, frozen=True):
    """A job's latest progress."""

    done: float | None
    message: str | None
    at: Instant | None


class JobLinks(Struct, frozen=True, kw_only=True):
    """A job's links to other jobs; left out of lists."""

    parents: Annotated[Sequence[str], Meta(description=f"it waits for them: the first {NEAR_MAX}")] | UnsetType = UNSET
    parents_count: int | UnsetType = UNSET
    parent: Annotated[str, Meta(description="the job whose outcome made it")] | UnsetType = UNSET
    group: str | UnsetType = UNSET
    unique: str | UnsetType = UNSET
    then: Annotated[Sequence[str], Meta(description="names of the jobs that follow its success")] | UnsetType = UNSET


class JobState(JobLinks, kw_only=True, frozen=True):
    """Fields that every view of a job has."""

    job_id: str
    id: str | UnsetType = UNSET
    """The daemon's id, which workers know, if `job_id` is the pusher's own."""
    name: str
    tenant: str | UnsetType = UNSET
    """Left out for the tenant ""."""
    state: State
    priority: int | UnsetType = UNSET
    attempts: int
    interrupted: (
        Annotated[int, Meta(description="how often its worker or daemon was stopped; no attempt")] | UnsetType
    ) = UNSET
    snoozes: Annotated[int, Meta(description="how often it put itself off; no attempt")] | UnsetType = UNSET
    max_retry: int | UnsetType = UNSET
    created_at: Instant | None
    eligible_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    worker_finished_at: Annotated[Instant, Meta(description="the same by the worker's clock")] | UnsetType = UNSET
    code: Annotated[Code, Meta(description="why the last attempt stopped")] | UnsetType = UNSET
    exitcode: Annotated[int, Meta(description="its number: 1xx retry, 2xx ok, 4xx failed, 5xx error")] | UnsetType = (
        UNSET
    )
    worker: str | None = None
    daemon: str | None = None
    tags: Sequence[str] | UnsetType = UNSET


class JobBrief(JobState, kw_only=True, frozen=True):
    """One job of a list, without large fields."""

    message: str | None


class Job(JobState, kw_only=True, frozen=True):
    """One job in full. Of a job that is not in the store yet, the name is empty and options are left out."""

    timeout: Annotated[float, Meta(description="seconds of one attempt")] | UnsetType = UNSET
    keep_result: Keep | UnsetType = UNSET
    backoff: Waits | UnsetType = UNSET
    """The job's own back-off, if it has one."""
    expires_at: Annotated[Instant | UnsetType, Meta(description="dead unless begun by then")] = UNSET
    argument: Value | UnsetType = UNSET
    """Left out if it is large, unless `whole=1` asks for it."""
    argument_bytes: Annotated[int, Meta(description="its length as MessagePack")] | UnsetType = UNSET
    error: Value
    message: str | None = None
    history: Sequence[Attempt] = ()
    note: str | UnsetType = UNSET
    """Why no worker runs it while it waits."""
    progress: Progress | UnsetType = UNSET
    """How far the worker is with it."""
    log: str | UnsetType = UNSET
    """The end of what the last attempt printed."""
    result: Value | UnsetType = UNSET
    """Only with `keep_result`. A result that is too large was dropped; `message` says its size."""
    result_bytes: Annotated[int, Meta(description="length of a large result")] | UnsetType = UNSET
    """Given instead of a large `result`, which `GET /v1/jobs/{id}/result` has."""


class Result(Struct, frozen=True):
    """A job's result."""

    result: Value


class JobLog(Struct, frozen=True):
    """What a job printed."""

    job_id: str
    state: State
    attempts: int
    log: str
    dropped: Annotated[int, Meta(description="bytes printed before `log`")]


class RecordedJob(Struct, frozen=True):
    """The answer to a cancel that is recorded but may come too late."""

    job_id: str
    state: State
    cancel: Literal["recorded"] = "recorded"


class Jobs(Struct, frozen=True):
    """One page of jobs."""

    jobs: Sequence[JobBrief]
    cursor: Annotated[str, Meta(description="for the next page; a page without jobs may have one, too")]
    looked: Looked = UNSET
    of: Of = UNSET
    in_parts: (
        Annotated[bool, Meta(description="true: of many jobtypes one part comes after the other, each newest first")]
        | UnsetType
    ) = UNSET


class Lease(Struct, frozen=True):
    """The answer to a pull."""

    lease_id: str | None
    """None: no job came in time."""
    jobs: Sequence[BatchJob]
    """Jobs of one type, in the form of a batch that is posted to a worker."""
    heartbeat: Annotated[int, Meta(description="longest silence about them, in seconds")] | UnsetType = UNSET


class Reported(Struct, frozen=True, kw_only=True):
    """The answer to one report."""

    job_id: str | UnsetType = UNSET
    status: Annotated[int, Meta(description="200: it counts, and is on disk; else an error")]
    detail: str | UnsetType = UNSET


class Reports(Struct, frozen=True):
    """The answers to several reports, in order."""

    outcomes: Sequence[Reported]


class Beaten(Struct, frozen=True):
    """The answer to a heartbeat."""

    cancelled: Annotated[bool, Meta(description="stop the work")]
    heartbeat: Annotated[int, Meta(description="longest silence about the lease, in seconds")] | UnsetType = UNSET
    log_end: Annotated[int, Meta(description="somebody follows: send what it prints from this byte on")] | UnsetType = (
        UNSET
    )


class Registered(Struct, frozen=True):
    """The answer to a registration."""

    worker_id: str
    daemons: list[str]
    """The daemons that share the worker's slots; first the one that answers."""
    urls: list[str]
    """The URLs of these daemons: the registration may be repeated at any of them."""


class WorkerHealth(Struct, frozen=True):
    """How one daemon sees a worker."""

    daemon: str
    state: Literal["ok", "backed_off", "unreachable"]
    since: Instant | None
    complaint: str | None
    why: str | None
    """How the last request to it ended, if it gets no jobs now."""
    until: Instant | None
    """When it is tried again with one job."""


class Worker(Struct, frozen=True):
    """A registered worker."""

    worker_id: str
    name: str
    url: str | None
    jobs: Sequence[str] | Literal["*"]
    max_jobs: int
    batch: int | None
    batch_linger_ms: int
    priority_min: int
    priority_max: int
    ttl: float | None
    heartbeat: float | None
    style: StyleName
    format: Format | None
    method: str
    headers: Sequence[str]
    """Names of its headers, without values."""
    signed: bool
    """Whether requests are signed."""
    options: dict[str, TypeOptions]
    """The options that it declared, by jobtype."""
    overruled: list[str]
    """Jobtypes for which another worker's options hold."""
    trouble: str | None
    """What keeps it from running jobs, in its own words."""
    state: WorkerState
    """The worst that is known. `silent`: two signs of life are missing; `unknown`: the store is away, too."""
    why: str | None
    """Why it is in this state."""
    in_flight: Annotated[int, Meta(description="jobs that this daemon has posted to it and waits for")] | None
    """Null for a worker that pulls."""
    seen: Sequence[WorkerHealth]
    """How each living daemon sees it."""
    registered_at: Instant | None
    last_seen_at: Instant | None
    """Last sign of life at any daemon, to within half a minute."""
    token_id: str | None
    """The token that it was registered with, if the caller may see that: jobs are posted to it while that is valid."""
    tenant: str | UnsetType = UNSET
    """Left out for the tenant ""."""


class HandlerSettings(JobOptions, frozen=True, kw_only=True):
    """How a handler is called, and defaults for its jobs. A handler that is code has only `batch` and the defaults."""

    batch: int | None
    style: StyleName | UnsetType = UNSET
    format: Format | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    headers: Sequence[str] | UnsetType = UNSET
    """Names of its headers, without values."""
    signed: bool | UnsetType = UNSET
    weight: int | UnsetType = UNSET
    max_jobs: int | UnsetType = UNSET
    priority_min: int | UnsetType = UNSET
    priority_max: int | UnsetType = UNSET


class HandlerVersion(Struct, frozen=True):
    """One version of a handler."""

    version: int
    lang: Lang
    share: int
    """How many of a hundred jobs of the handler it gets."""
    out: str | None
    """Why it no longer gets jobs."""


class Handler(Struct, frozen=True, rename={"before_each": "beforeEach", "after_each": "afterEach"}):
    """One version of a handler, and its other versions."""

    name: str
    version: int
    lang: str
    body: str
    eid: str | None
    before: str | None
    before_each: str | None
    after_each: str | None
    options: HandlerSettings
    server_only: bool
    set_at: Instant | None
    out: str | None
    """Why it no longer gets jobs."""
    note: str | None
    """Why its jobs wait now."""
    versions: Sequence[HandlerVersion]
    tenant: str | UnsetType = UNSET
    """Left out for the tenant ""."""


class Handlers(Page, frozen=True):
    """One page of handlers."""

    handlers: Sequence[Handler]


class Live(Struct, frozen=True):
    """The process is alive."""

    live: bool


class Half(Struct, frozen=True):
    """Whether pushing (or running) is ready, and if not, why."""

    ready: bool
    reason: str | None


class ProcessReady(Struct, frozen=True):
    """The readiness of one process of `jqd serve --processes`."""

    process: int
    push: Half
    run: Half


class Ready(Struct, frozen=True):
    """The readiness of pushing and of running; if several processes share the port, of all of them."""

    status: Literal["ready", "degraded", "not ready"]
    push: Half
    run: Half
    warnings: Sequence[str]
    processes: Sequence[ProcessReady] | UnsetType = UNSET
