"""The types of a daemon's answers about jobs, and the maps with which jobs are pushed."""

import enum
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, Unpack

import msgspec

from jqd.domain.job import Code, Keep, State
from jqd.domain.job_spec import JobSpec, PushOptions, plain_option
from jqd.domain.suggest import suggestion

FINAL_STATES = tuple(state.value for state in State if state.is_final)

Ack = Literal["fsync", "memory", "store"]
FIELDS = JobSpec.__struct_fields__
NAMES = dict(zip(FIELDS, JobSpec.__struct_encode_fields__, strict=True))
"""Name of a field in Python → its name in a request, which may be a word reserved in Python (`while`)."""


class Cancel(enum.Enum):
    """The result of a cancel."""

    CANCELLED = "cancelled"
    """The job will not start any more."""
    RECORDED = "recorded"
    """The job runs, and its worker will be asked to stop it; no retry follows. Or the store is unavailable, and the job
    may still start."""
    TOO_LATE = "too late"
    """The job had ended already."""

    def __bool__(self) -> bool:
        return self is not Cancel.TOO_LATE


class Changed(NamedTuple):
    """The result of a call that changes many jobs."""

    matched: int
    """Number of jobs that matched."""
    changed: int
    """Number of jobs that were changed; 0 in a dry run. Jobs that another call changed at the same time are not
    counted."""
    refused: Sequence[Mapping[str, Any]] = ()
    """Jobs given in `job_ids` that were not changed: `job_id`, `status` (404, 409) and `detail`."""
    whole: bool = True
    """False: some jobs of a flow were not found, because they are not in the store yet or a million links are
    between."""
    at: str = ""
    """When the daemon began to look for them, as a date by its clock."""


class PushedJob(NamedTuple):
    """One job that a daemon took."""

    job_id: str
    duplicate: bool = False
    """Whether the same job was pushed before, with the same id and content; then it counts once."""


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as `GET /v1/jobs/{id}` returns it. Dates have a time zone; None: it has not happened yet."""

    job_id: str
    """The id that its pusher chose; if he chose none, jqd's id."""
    name: str
    state: str
    """`waiting`, `scheduled`, `blocked`, `running`, `retrying`, `succeeded`, `failed` or `cancelled`."""
    argument: Any = None
    """None also for a large argument, which `get` returns with `whole`; then `argument_bytes` is set."""
    argument_bytes: int | None = None
    """Length of the argument as MessagePack. Lists omit this, the argument, `timeout`, `backoff` and `keep_result`."""
    priority: int = 0
    attempts: int = 0
    max_retry: int = 0
    timeout: float | None = None
    """How many seconds an attempt may take."""
    keep_result: Keep | None = None
    backoff: float | Sequence[float] | None = None
    """Seconds between attempts, as set by the pusher or the worker; None: the daemon's default."""
    created_at: datetime | None = None
    eligible_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker_finished_at: datetime | None = None
    """When the last attempt finished, by its worker's own clock."""
    expires_at: datetime | None = None
    """When the job dies unless an attempt has begun; None: never."""
    code: Code | None = None
    """Why the last attempt stopped."""
    exitcode: int | None = None
    """The status behind `code`: 1xx retry, 2xx ok, 4xx failed, 5xx error."""
    worker: str | None = None
    daemon: str | None = None
    note: str | None = None
    """Why the job waits, if it does."""
    progress: Mapping[str, Any] | None = None
    """The latest progress that the worker reported: `done`, `message` and `at`."""
    snoozes: int | None = None
    """How often the job asked to be tried later (a snooze); None: never."""
    interrupted: int | None = None
    """How often the job was begun again because its worker or daemon was stopped; None: never."""
    log: str | None = None
    """The last lines that the last attempt printed, if it failed."""
    id: str | None = None
    """jqd's id, which workers get, if `job_id` is that of the pusher."""
    error: Any = None
    """The error of the last attempt, as its worker reported it: any value."""
    message: str | None = None
    """The message of the last attempt, for people; perhaps a traceback. Of a success: that its result was dropped."""
    result: Any = None
    """The result, if the job was pushed with keep_result, until it is dropped. None also for a large result, which
    `Client.result` returns; then `result_bytes` is set."""
    result_bytes: int | None = None
    """Length of a large result as MessagePack."""
    history: Sequence[Mapping[str, Any]] = ()
    """The failed attempts, oldest first."""
    tags: Sequence[str] = ()
    tenant: str = ""
    """The tenant of the job; empty: none."""
    parents: Sequence[str] = ()
    """Ids of the jobs for which it waits or waited: at most a hundred."""
    parents_count: int | None = None
    """Number of all these jobs; None: it waits for none."""
    parent: str | None = None
    """Id of the job whose outcome created it."""
    group: str | None = None
    unique: str | None = None
    then: Sequence[str] = ()
    """Jobtypes of the jobs that are pushed when it succeeds."""

    @property
    def ended(self) -> bool:
        """Whether the job has ended, so that nothing more happens to it by itself."""
        return self.state in FINAL_STATES

    @property
    def succeeded(self) -> bool:
        """Return whether the job has succeeded."""
        return self.state == "succeeded"


def job_info(answer: Any) -> JobInfo:
    """Convert a daemon's map to a `JobInfo`; ignores unknown fields. Raises ValueError if it is not a map of a job."""
    if not isinstance(answer, Mapping):
        raise ValueError(f"a job is a map, not as {type(answer).__name__}")
    try:
        return msgspec.convert({name: each for name, each in answer.items() if each is not None}, JobInfo)
    except msgspec.ValidationError as error:
        raise ValueError(f"not understood: {error}") from None


def job_map(name: str, argument: Any = None, **options: Unpack[PushOptions]) -> dict[str, Any]:
    """Return a job as the map that `POST /v1/jobs` takes. Options that are None are left out, so the daemon's defaults
    hold."""
    fields: dict[str, Any] = {"name": name} if argument is None else {"name": name, "argument": argument}
    for field, value in options.items():
        if field not in FIELDS:
            raise TypeError(f"a push has no option {field!r}{suggestion(field, FIELDS)}")
        if value is not None:
            fields[NAMES[field]] = plain_option(field, value)
    return fields


def listed_job(index: int, job: Any) -> dict[str, Any]:
    """Check a map in a list of jobs that are pushed together, and return it as the API takes it. Raises TypeError or
    ValueError, which names the job (by `index`) and the field."""
    if not isinstance(job, Mapping):
        raise TypeError(f"job {index} is a map with the parameters of push by name, not a {type(job).__name__}")
    unknown = [name for name in job if name not in FIELDS]
    if unknown:
        name = str(unknown[0])
        raise TypeError(f"job {index} has no field {name!r}{suggestion(name, FIELDS)}")
    if "name" not in job:
        raise TypeError(f"job {index} has no name: the jobtype, which says who can run it")
    try:
        return job_map(**job)
    except (TypeError, ValueError) as error:
        raise type(error)(f"job {index}: {error}") from error


def date_given(field: str, given: datetime | float | str | timedelta | None) -> float | str | None:
    """Return a date in the form that a daemon takes. A timedelta means so long before now; None stays None. Raises
    ValueError if there is no time zone."""
    if isinstance(given, timedelta):
        given = datetime.now(UTC) - given
    if not isinstance(given, datetime):
        return given
    if given.tzinfo is None:
        raise ValueError(f"{field} {given} has no time zone; write datetime(…, tzinfo=UTC)")
    return given.timestamp()
