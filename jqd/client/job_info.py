"""Types of the daemon's answers about jobs, and the form in which jobs are pushed. Pure."""

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
"""As they are sent: `while` is a word of Python's."""


class Cancel(enum.Enum):
    """The result of a cancel."""

    CANCELLED = "cancelled"
    """The job will not start."""
    RECORDED = "recorded"
    """The job runs: its worker is told to stop, it is not tried again. Or the store is away: it may still start."""
    TOO_LATE = "too late"
    """The job had ended already."""

    def __bool__(self) -> bool:
        return self is not Cancel.TOO_LATE


class Changed(NamedTuple):
    """The result of a call about many jobs."""

    matched: int
    """Jobs that it was about."""
    changed: int
    """Those that it changed: none in a dry run, and none that another call changed meanwhile."""
    refused: Sequence[Mapping[str, Any]] = ()
    """Of `job_ids` those that it left as they were: `job_id`, `status` (404, 409) and `detail`."""
    whole: bool = True
    """False: of a flow some jobs were not found, for they are on their way, or behind a million links."""


class PushedJob(NamedTuple):
    """One job that a daemon took."""

    job_id: str
    duplicate: bool = False
    """It was pushed before, with this id and this content: it counts once."""


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One job as `GET /v1/jobs/{id}` tells it. Dates are aware; None: it has not happened."""

    job_id: str
    """Its pusher's own id, where one was given."""
    name: str
    state: str
    """`waiting`, `scheduled`, `blocked`, `running`, `retrying`, `succeeded`, `failed` or `cancelled`."""
    argument: Any = None
    """None, too, where it is large: `argument_bytes` tells, and `get` with `whole` has it."""
    argument_bytes: int | None = None
    """Its length as MessagePack. A list leaves this, the argument, `timeout`, `backoff` and `keep_result` out."""
    priority: int = 0
    attempts: int = 0
    max_retry: int = 0
    timeout: float | None = None
    """Seconds one attempt may take."""
    keep_result: Keep | None = None
    backoff: float | Sequence[float] | None = None
    """Seconds between its attempts, as it was pushed or declared; None: as the daemon has it."""
    created_at: datetime | None = None
    eligible_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker_finished_at: datetime | None = None
    """The same by its worker's own clock, as it said."""
    expires_at: datetime | None = None
    """It is dead unless an attempt has begun by then; None: it waits however long."""
    code: Code | None = None
    """Why its last attempt stopped."""
    exitcode: int | None = None
    """The number behind `code`: 1xx retry, 2xx ok, 4xx failed, 5xx error."""
    worker: str | None = None
    daemon: str | None = None
    note: str | None = None
    """Why nobody runs it, while it waits."""
    progress: Mapping[str, Any] | None = None
    """`done`, `message` and `at`, as its worker said last."""
    snoozes: int | None = None
    """How often it put itself off; None: never."""
    interrupted: int | None = None
    """How often its worker or daemon was stopped while it was at work, so that it began anew; None: never."""
    log: str | None = None
    """The end of what its last attempt printed, if that failed."""
    id: str | None = None
    """The id that workers know it by, where `job_id` is the pusher's own."""
    error: Any = None
    """What the worker gave as the last attempt's error: any value."""
    message: str | None = None
    """The last attempt's message, for people; a traceback perhaps. Of a success: that its result was dropped."""
    result: Any = None
    """Only of a job pushed with keep_result, and only until it is dropped. None, too, where it is large: `result_bytes`
    tells, and `Client.result` has it."""
    result_bytes: int | None = None
    """The length of a large result as MessagePack."""
    history: Sequence[Mapping[str, Any]] = ()
    """The failed attempts, oldest first."""
    tags: Sequence[str] = ()
    tenant: str = ""
    """The tenant of the job; empty: none."""
    parents: Sequence[str] = ()
    """Jobs that it waits for, or did: the first hundred."""
    parents_count: int | None = None
    """Number of all parents; None: it waits for no job."""
    parent: str | None = None
    """The job whose outcome made it."""
    group: str | None = None
    unique: str | None = None
    then: Sequence[str] = ()
    """Names of the jobs that follow its success."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to the job by itself."""
        return self.state in FINAL_STATES

    @property
    def succeeded(self) -> bool:
        """Return whether the job has succeeded."""
        return self.state == "succeeded"


def job_info(answer: Any) -> JobInfo:
    """Return the daemon's map as a `JobInfo`; fields that are not known here are passed over. Raises ValueError for
    what is no map of a job."""
    if not isinstance(answer, Mapping):
        raise ValueError(f"a job is a map, not as {type(answer).__name__}")
    try:
        return msgspec.convert({name: each for name, each in answer.items() if each is not None}, JobInfo)
    except msgspec.ValidationError as error:
        raise ValueError(f"not understood: {error}") from None


def job_map(name: str, argument: Any = None, **options: Unpack[PushOptions]) -> dict[str, Any]:
    """A job as `POST /v1/jobs` takes it; what is None stays out, so that the daemon's own defaults hold."""
    fields: dict[str, Any] = {"name": name} if argument is None else {"name": name, "argument": argument}
    for field, value in options.items():
        if field not in FIELDS:
            raise TypeError(f"a push has no option {field!r}{suggestion(field, FIELDS)}")
        if value is not None:
            fields[NAMES[field]] = plain_option(field, value)
    return fields


def listed_job(index: int, job: Any) -> dict[str, Any]:
    """One map of a list to be pushed, as `job_map` makes it. TypeError and ValueError name the job and the field."""
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
    """Return a date, or a time ago, as a daemon takes it. Raises ValueError without a time zone."""
    if isinstance(given, timedelta):
        given = datetime.now(UTC) - given
    if not isinstance(given, datetime):
        return given
    if given.tzinfo is None:
        raise ValueError(f"{field} {given} has no time zone; write datetime(…, tzinfo=UTC)")
    return given.timestamp()
