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
    """What the worker knows it by, where its pusher chose another."""
    name: str
    tenant: str | UnsetType = UNSET
    """Whose it is; left out for the tenant ""."""
    state: State
    priority: int | UnsetType = UNSET
    attempts: int
    interrupted: (
        Annotated[int, Meta(description="how often worker or daemon was stopped at it, which is no attempt")]
        | UnsetType
    ) = UNSET
    snoozes: Annotated[int, Meta(description="how often it put itself off, which is no attempt")] | UnsetType = UNSET
    max_retry: int | UnsetType = UNSET
    created_at: Instant | None
    eligible_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    worker_finished_at: (
        Annotated[Instant, Meta(description="the same by the clock of its worker, as it said")] | UnsetType
    ) = UNSET
    exit_code: (
        Annotated[int, Meta(description="of its last attempt: 1xx retry, 2xx ok, 4xx failed, 5xx error")] | UnsetType
    ) = UNSET
    worker: str | None = None
    daemon: str | None = None
    tags: Sequence[str] | UnsetType = UNSET


class JobBrief(JobState, kw_only=True, frozen=True):
    """One of a list, without what may be large."""

    message: str | None


class Job(JobState, kw_only=True, frozen=True):
    """One job in full. While it is on its way into the store its name is empty, and some of it is left out."""

    timeout: Annotated[float, Meta(description="seconds that one attempt may take")] | UnsetType = UNSET
    keep_result: Keep | UnsetType = UNSET
    backoff: Waits | UnsetType = UNSET
    """Its own, where it has one."""
    expires_at: Annotated[Instant | UnsetType, Meta(description="it is dead unless an attempt has begun by then")] = (
        UNSET
    )
    argument: Value | UnsetType = UNSET
    """Left out where it is large and nobody asked for the whole."""
    argument_bytes: Annotated[int, Meta(description="its length as MessagePack")] | UnsetType = UNSET
    error: Value
    message: str | None = None
    history: Sequence[Attempt] = ()
    note: str | UnsetType = UNSET
    """Why nobody runs it, while it waits and nobody does."""
    progress: Progress | UnsetType = UNSET
    """How far its worker is, while it runs."""
    log: str | UnsetType = UNSET
    """The end of what its last attempt printed, if that failed. Kept of the newest failures."""
    result: Value | UnsetType = UNSET
    """Where it was pushed with `keep_result`. One too large to be kept was dropped: `message` says how large."""


class Result(Struct, frozen=True):
    """What the worker answered."""

    result: Value


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
    """The line that tells, of what it said: the last of a traceback."""
    count: int
    since: Instant | None
    """When the first of them failed."""
    latest: Instant | None
    job_id: str
    """The newest of them."""
    tenant: str | UnsetType = UNSET
    """Whose they are; left out for the tenant ""."""


class Errors(Struct, frozen=True):
    """The reasons for which jobs failed, the most frequent first."""

    errors: Sequence[Reason]
    others: Annotated[int, Meta(description="failures with rarer reasons than these")]
    looked: Annotated[int, Meta(description="jobs that were looked at for this answer")]
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
    """Since when it begins nothing."""


class Daemons(Struct, frozen=True):
    """One page of them."""

    daemons: Sequence[Daemon]
    cursor: str
    """For those that follow; empty: there are no more."""


class Lease(Struct, frozen=True):
    """What a worker asked for and got."""

    lease_id: str | None
    """None: nothing came in time."""
    jobs: Sequence[BatchJob]
    """Of one jobtype, as in a batch that is posted."""
    heartbeat: (
        Annotated[int, Meta(description="seconds in which something must be heard of one of them")] | UnsetType
    ) = UNSET


class Reported(Struct, frozen=True, kw_only=True):
    """What became of one outcome."""

    job_id: str | UnsetType = UNSET
    status: Annotated[int, Meta(description="200: it counts, and is on disk; else as that of an error")]
    detail: str | UnsetType = UNSET


class Reports(Struct, frozen=True):
    """What became of several, in their order."""

    outcomes: Sequence[Reported]


class Beaten(Struct, frozen=True):
    """The answer to a sign of life."""

    cancelled: Annotated[bool, Meta(description="whether the work is to be stopped")]
    heartbeat: Annotated[int, Meta(description="seconds in which something must be heard of the lease")] | UnsetType = (
        UNSET
    )


class Registered(Struct, frozen=True):
    """A worker that is known now."""

    worker_id: str
    daemons: list[str]
    """Those that share its slots, the one that answers first."""
    urls: list[str]
    """Where they are reached, as far as that is known: the registration may be repeated at any of them."""


class WorkerHealth(Struct, frozen=True):
    """How one daemon sees a worker."""

    daemon: str
    state: Literal["ok", "backed_off", "unreachable"]
    since: Instant | None
    complaint: str | None
    why: str | None
    """How its last request ended, where it gets no jobs for now."""
    until: Instant | None
    """Until when; then one job tries it."""


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
    """Their names: a value may be a secret."""
    signed: bool
    """Whether requests to it are, with secrets that nobody is shown."""
    options: dict[str, TypeOptions]
    """What it said of its jobs, by jobtype."""
    overruled: list[str]
    """Those jobtypes for which something else holds, which another said later."""
    trouble: str | None
    """What keeps it from running jobs, in its own words."""
    state: Literal["ok", "trouble", "silent", "backed_off", "unreachable"]
    """The worst of what is known of it."""
    why: str | None
    """The same in words."""
    in_hand: Annotated[int, Meta(description="jobs that this daemon has posted to it and waits for")] | None
    """None of a worker that asks for its jobs."""
    seen: Sequence[WorkerHealth]
    """By each living daemon, in the order of their names."""
    registered_at: Instant | None
    heard_at: Instant | None
    """When some daemon heard of it last, half a minute more or less; none of versions of handlers."""
    tenant: str | UnsetType = UNSET
    """Whose it is; left out for the tenant ""."""


class Workers(Struct, frozen=True):
    """One page of them."""

    workers: Sequence[Worker]
    cursor: str
    """For those that follow; empty: there are no more."""


class HandlerSettings(JobOptions, frozen=True, kw_only=True):
    """How a handler is spoken to, and what counts for its jobs where their pushers leave it out."""

    style: StyleName
    format: Format | None
    method: str
    headers: Sequence[str]
    """Their names: a value may be a secret."""
    signed: bool
    weight: int
    max_jobs: int
    batch: int | None
    priority_min: int
    priority_max: int


class VersionShare(Struct, frozen=True):
    """One version of a handler."""

    version: int
    share: Annotated[float, Meta(description="its part of the batches, 0 to 1")]
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
    versions: Sequence[VersionShare]
    tenant: str | UnsetType = UNSET
    """Whose it is; left out for the tenant ""."""


class Handlers(Struct, frozen=True):
    """One page of them."""

    handlers: Sequence[Handler]
    cursor: str
    """For those that follow; empty: there are no more."""


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
