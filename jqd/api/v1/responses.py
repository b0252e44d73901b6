"""What the native interface answers, each as a type: they are rendered as they stand, and say what may be in them.

Instants are ISO 8601 in UTC. What is any value stands there as `msgspec.Raw`, MessagePack.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from jqd.api.problems import Error
from jqd.domain.job import Keep, State
from jqd.domain.job_spec import JobOptions, TypeOptions, Value, Waits
from jqd.runner import BatchJob
from jqd.runner.worker import Format, StyleName
from jqd.service.push import Level

Instant = Annotated[str, Meta(description="ISO 8601, in UTC")]


class PushedJob(Struct, frozen=True):
    """One job was taken, or had been before."""

    job_id: str
    ack: Level | UnsetType = UNSET
    """The level reached."""
    replicas: int | UnsetType = UNSET
    duplicate: bool | UnsetType = UNSET


class PushedJobs(Struct, frozen=True):
    """What became of an array of jobs, in its order."""

    job_ids: Sequence[str | None]
    ack: Level | UnsetType = UNSET
    replicas: int | UnsetType = UNSET
    duplicates: Sequence[str] | UnsetType = UNSET
    errors: Sequence[Error] | UnsetType = UNSET


class Attempt(Struct, kw_only=True, frozen=True):
    """One that failed."""

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
    """How far the worker is, as it said last."""

    done: float | None
    message: str | None
    at: Instant | None


class JobState(Struct, kw_only=True, frozen=True):
    """What is told of every job."""

    job_id: str
    id: str | UnsetType = UNSET
    """The id that workers know, where its pusher chose one."""
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
    exit_code: Annotated[int, Meta(description="of the last attempt")] | UnsetType = UNSET
    worker: str | None = None
    daemon: str | None = None
    tags: Sequence[str] | UnsetType = UNSET


class JobBrief(JobState, kw_only=True, frozen=True):
    """One of a list, without what may be large."""

    message: str | None


class Job(JobState, kw_only=True, frozen=True):
    """One job in full. While it is on its way into the store its name is empty, and some of it is left out."""

    timeout: Annotated[float, Meta(description="seconds of one attempt")] | UnsetType = UNSET
    keep_result: Keep | UnsetType = UNSET
    backoff: Waits | UnsetType = UNSET
    """Its own, where it has one."""
    expires_at: Annotated[Instant | UnsetType, Meta(description="dead unless begun by then")] = UNSET
    argument: Value | UnsetType = UNSET
    """Left out where large, unless asked for whole."""
    argument_bytes: Annotated[int, Meta(description="its length as MessagePack")] | UnsetType = UNSET
    error: Value
    message: str | None = None
    history: Sequence[Attempt] = ()
    note: str | UnsetType = UNSET
    """Why nobody runs it, while it waits."""
    progress: Progress | UnsetType = UNSET
    """How far it is."""
    log: str | UnsetType = UNSET
    """The end of what the last attempt printed."""
    result: Value | UnsetType = UNSET
    """With `keep_result`; one too large was dropped: `message` says how large."""


class Result(Struct, frozen=True):
    """What the worker answered."""

    result: Value


class JobLog(Struct, frozen=True):
    """What a job printed."""

    job_id: str
    state: State
    attempts: int
    log: str
    dropped: Annotated[int, Meta(description="bytes printed before `log`")]


class RecordedJob(Struct, frozen=True):
    """A cancel that may still be too late."""

    job_id: str
    state: State
    cancel: Literal["recorded"] = "recorded"


class Jobs(Struct, frozen=True):
    """One page of a list."""

    jobs: Sequence[JobBrief]
    cursor: str


class Reason(Struct, frozen=True):
    """Jobs of one type whose last attempt ended with the same words."""

    name: str
    error: str
    """The telling line: of a traceback the last."""
    count: int
    since: Instant | None
    """The first failure."""
    latest: Instant | None
    job_id: str
    """The newest of them."""
    tenant: str | UnsetType = UNSET
    """Left out for the tenant ""."""


class Errors(Struct, frozen=True):
    """The reasons for which jobs failed, the most frequent first."""

    errors: Sequence[Reason]
    others: Annotated[int, Meta(description="failures with rarer reasons")]
    looked: Annotated[int, Meta(description="jobs looked at")]
    cursor: str


class Daemon(Struct, frozen=True):
    """One that shares the store."""

    daemon: str
    this: bool
    living: bool
    through: bool
    heard_s: float
    in_hand: int | None
    drained_at: Instant | None = None
    """Drained since."""


class Daemons(Struct, frozen=True):
    """One page of them."""

    daemons: Sequence[Daemon]
    cursor: str
    """For the next page; empty: that was all."""


class Lease(Struct, frozen=True):
    """What a worker asked for and got."""

    lease_id: str | None
    """None: nothing came in time."""
    jobs: Sequence[BatchJob]
    """Of one jobtype, as in a batch that is posted."""
    heartbeat: Annotated[int, Meta(description="longest silence about them, in seconds")] | UnsetType = UNSET


class Reported(Struct, frozen=True, kw_only=True):
    """What became of one outcome."""

    job_id: str | UnsetType = UNSET
    status: Annotated[int, Meta(description="200: it counts, and is on disk; else an error")]
    detail: str | UnsetType = UNSET


class Reports(Struct, frozen=True):
    """What became of several, in their order."""

    outcomes: Sequence[Reported]


class Beaten(Struct, frozen=True):
    """The answer to a sign of life."""

    cancelled: Annotated[bool, Meta(description="stop the work")]
    heartbeat: Annotated[int, Meta(description="longest silence about the lease, in seconds")] | UnsetType = UNSET
    log_end: Annotated[int, Meta(description="somebody follows: send what it prints from this byte on")] | UnsetType = (
        UNSET
    )


class Registered(Struct, frozen=True):
    """A worker that is known now."""

    worker_id: str
    daemons: list[str]
    """Those that share its slots, the answering one first."""
    urls: list[str]
    """Where they are reached: the registration may be repeated at any."""


class WorkerHealth(Struct, frozen=True):
    """How one daemon sees a worker."""

    daemon: str
    state: Literal["ok", "backed_off", "unreachable"]
    since: Instant | None
    complaint: str | None
    why: str | None
    """How its last request ended, where it gets no jobs for now."""
    until: Instant | None
    """Then one job tries it."""


class Worker(Struct, frozen=True):
    """A registration."""

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
    """Names only."""
    signed: bool
    """Whether requests are signed."""
    options: dict[str, TypeOptions]
    """Its options, by jobtype."""
    overruled: list[str]
    """Jobtypes for which another worker's options hold."""
    trouble: str | None
    """What keeps it from running jobs, in its own words."""
    state: Literal["ok", "trouble", "silent", "backed_off", "unreachable"]
    """The worst that is known."""
    why: str | None
    """In words."""
    in_hand: Annotated[int, Meta(description="jobs that this daemon has posted to it and waits for")] | None
    """Null of a worker that pulls."""
    seen: Sequence[WorkerHealth]
    """By each living daemon."""
    registered_at: Instant | None
    heard_at: Instant | None
    """Last sign of life at any daemon, within half a minute."""
    tenant: str | UnsetType = UNSET
    """Left out for the tenant ""."""


class Workers(Struct, frozen=True):
    """One page of them."""

    workers: Sequence[Worker]
    cursor: str
    """For the next page; empty: that was all."""


class HandlerSettings(JobOptions, frozen=True, kw_only=True):
    """How a handler is spoken to, and what counts for its jobs where their pushers leave it out. Of code only `batch`,
    and the latter."""

    batch: int | None
    style: StyleName | UnsetType = UNSET
    format: Format | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    headers: Sequence[str] | UnsetType = UNSET
    """Names only."""
    signed: bool | UnsetType = UNSET
    max_jobs: int | UnsetType = UNSET
    priority_min: int | UnsetType = UNSET
    priority_max: int | UnsetType = UNSET


class HandlerVersion(Struct, frozen=True):
    """One version of a handler."""

    version: int
    out: str | None
    """Why it gets none."""


class Handler(Struct, frozen=True, rename={"before_each": "beforeEach", "after_each": "afterEach"}):
    """One version of a handler, and which others there are."""

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
    """Why it gets no jobs any more."""
    versions: Sequence[HandlerVersion]
    """The last one that is not out takes the jobs."""
    tenant: str | UnsetType = UNSET
    """Left out for the tenant ""."""


class Handlers(Struct, frozen=True):
    """One page of them."""

    handlers: Sequence[Handler]
    cursor: str
    """For the next page; empty: that was all."""


class Live(Struct, frozen=True):
    """The process turns its loop."""

    live: bool


class Half(Struct, frozen=True):
    """Whether one half is ready, and why not."""

    ready: bool
    reason: str | None


class Ready(Struct, frozen=True):
    """Both halves."""

    status: Literal["ready", "degraded", "not ready"]
    push: Half
    run: Half
    warnings: Sequence[str]
