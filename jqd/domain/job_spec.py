"""A job as it is pushed. Each option is defined here once, with its limits, default and help text.

    JobOptions      the options that pushers, schedules, handlers and workers may set
    JobSpec         a whole job, as the API decodes it
    JobRecord       a job in the journal: without limits, with defaults
    JobOptionsDict  the options as keywords of the SDK; the command line makes its flags from the fields

Add a new option at the end of `JobOptions`: the order is part of digests that stores keep.
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from types import UnionType
from typing import Annotated, Any, TypedDict, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, structs

from jqd.domain.dates import instant_ms
from jqd.domain.flow import AFTER_MAX, THEN_MAX, Flow, OnFailure, Until, unique_text
from jqd.domain.job import (
    BACKOFF_S_MAX,
    MAX_RETRY_MAX,
    NIL,
    TAGS_MAX,
    TIMEOUT_S_MAX,
    WAITS_MAX,
    Job,
    Keep,
    Name,
    NewName,
    Priority,
)
from jqd.domain.tenant import bare
from jqd.domain.units import Duration, Durations, duration_s, durations_s

DELAY_S_MAX = 100 * 366 * 86_400.0  # a century: more is most likely milliseconds instead of seconds
NOTHING = Raw(NIL)

Retries = Annotated[int, Meta(ge=0, le=MAX_RETRY_MAX, description=f"a whole number from 0 to {MAX_RETRY_MAX}")]
Timeout = Annotated[
    float, Meta(gt=0, le=TIMEOUT_S_MAX, description=f"a number of seconds above 0 and at most {TIMEOUT_S_MAX:.0f}")
]
WAIT = f"a number of seconds above 0, at most {BACKOFF_S_MAX:.0f}"
_Wait = Annotated[float, Meta(gt=0, le=BACKOFF_S_MAX, description=WAIT)]
Waits = Annotated[
    _Wait | Annotated[tuple[_Wait, ...], Meta(max_length=WAITS_MAX)],
    Meta(description=f"{WAIT}, or an array of up to {WAITS_MAX}"),
]
"""Waits between attempts. A number is the first wait; the further ones grow like the daemon's own. An array has the
wait after each failure; its last item is used for all later failures. An empty array stands for the daemon's
back-off."""
Expiry = Annotated[
    float, Meta(gt=0, le=DELAY_S_MAX, description=f"a number of seconds, above 0 and at most {DELAY_S_MAX:.0f}")
]
Delay = Annotated[float, Meta(ge=0, le=DELAY_S_MAX, description=f"a number of seconds, 0 to {DELAY_S_MAX:.0f}")]
Tags = Annotated[tuple[Name, ...], Meta(max_length=TAGS_MAX, description=f"an array of at most {TAGS_MAX} tags")]
Parents = Annotated[
    tuple[Name, ...], Meta(max_length=AFTER_MAX, description=f"an array of at most {AFTER_MAX} ids of jobs")
]
Then = Annotated[Raw | UnsetType, Meta(description=f"a job, or an array of up to {THEN_MAX}")]
TraceParent = Annotated[
    str, Meta(pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$(?!\n)", description="a traceparent of version 00")
]
Url = Annotated[str, Meta(max_length=2_000, description="a URL of up to 2000 characters")]
Value = Annotated[Raw, Meta(description="any value")]
Date = Annotated[
    str | float,
    Meta(description="an ISO 8601 date with a time zone, or a number of Unix seconds", extra={"check": instant_ms}),
]


def _option(default: object, help_text: str) -> Meta:
    """Return the `Meta` of an option: its default, and its help text for the command line."""
    return Meta(extra_json_schema={"default": default}, extra={"help": help_text})


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Options of a job. An option that is left out is UNSET. A pusher's options win over the defaults registered for
    the jobtype."""

    priority: Annotated[Priority | UnsetType, _option(0, "Smaller runs first.")] = UNSET
    max_retry: Annotated[Retries | UnsetType, _option(5, "Attempts after the first.")] = UNSET
    keep_result: Annotated[
        Keep | UnsetType,
        _option(False, "Keep what the worker returns for an hour; push with --wait or --result does so by itself."),
    ] = UNSET
    timeout: Annotated[Timeout | UnsetType, _option(30.0, "Time one attempt may take: 90, 30s, 5m, 2h.")] = UNSET
    backoff: Annotated[
        Waits | UnsetType,
        _option(
            (),
            "Wait after the first failed attempt, growing from there: 10s; "
            "or all waits, the last one stays: 10s,1m,10m.",
        ),
    ] = UNSET
    expires_in: Annotated[
        Expiry | UnsetType | None,
        _option(None, "Fail it unless an attempt has begun so long after its date, or after now: 90, 30s, 5m, 2h, 1d."),
    ] = UNSET

    def given(self) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of each option that is set."""
        for field in FIELDS:
            value = getattr(self, field)
            if value is not UNSET:
                yield field, value

    def without(self, given: "JobOptions") -> "JobOptions":
        """Return a copy of these options without those that are set in `given`."""
        return JobOptions(**{field: value for field, value in self.given() if getattr(given, field) is UNSET})


FIELDS = JobOptions.__struct_fields__
KEPT = tuple(field for field in Job.__struct_fields__ if field in FIELDS)
"""Names of the options that are fields of `Job`, too. `expires_in` is none: it becomes a date."""


class TypeOptions(JobOptions, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Options of a jobtype: default options of its jobs, and who may push them."""

    server_only: bool | UnsetType = UNSET
    """Whether only the master key, schedules and running jobs may push jobs of this type."""

    @property
    def of_jobs(self) -> JobOptions:
        """Return the default options of the type's jobs."""
        return JobOptions(**dict(self.given()))


NO_OPTIONS = TypeOptions()


def nothing() -> Raw:
    """Return nil in MessagePack. It is used as `default_factory`, because OpenAPI cannot show a default of type
    bytes."""
    return NOTHING


class JobSpec(JobOptions, frozen=True, forbid_unknown_fields=True, gc=False, omit_defaults=True):
    """A job as a pusher writes it."""

    name: NewName
    argument: Value = msgspec.field(default_factory=nothing)
    job_id: NewName | None = None
    run_at: Date | None = None
    delay: Delay | None = None
    replace: bool = False
    tags: Tags = ()
    then: Then = UNSET
    """Jobs that follow a success, with its result as their argument."""
    result_into: Name | None = None
    """The argument's field that gets the results of the parents."""
    after: Parents = ()
    """The job is blocked until these jobs have ended."""
    on_parent_failure: OnFailure = "fail"
    group: NewName | None = None
    unique: NewName | None = None
    """While a job with this key lives, another one is a duplicate of it."""
    while_: Until = msgspec.field(default="ended", name="while")
    """How long the job has its `unique` key: until it begins, or until it has ended."""
    debounce: Delay | None = None
    """The job waits this long, if it has no date. A duplicate puts it off by this long, and replaces its argument."""
    callback: Url | None = None
    """The URL that is called when the job has ended."""
    parent: str | None = None
    """Set by jqd alone: the job whose outcome made this one, or whose callback this one is."""
    one_result: bool = False
    """The job waits for one parent, and gets its result itself instead of an array of one."""
    traceparent: TraceParent | None = None
    """The trace of the push, which the job's attempts continue: W3C Trace Context."""


LINKS = JobSpec.__struct_fields__[JobSpec.__struct_fields__.index("then") : -1]
"""Names of the fields that link a job to others; `Flow` has them, too. Add new fields at the end."""


# ------------------------------------------------------------ in the journal

_DIGESTED = 13
"""The number of fields that are part of every digest. A field that was added later is part of a digest only if it
differs from its default."""


def _unlimited(hint: Any) -> Any:
    """Return the type of a field without its limits and without UNSET. Journaled jobs are decoded with such types, so
    they stay valid even if limits change."""
    if get_origin(hint) is Annotated:
        return _unlimited(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(_unlimited(part) for part in get_args(hint) if part is not UnsetType)]  # noqa: UP007
    if get_origin(hint) is tuple:
        inner: Any = _unlimited(get_args(hint)[0])
        return tuple[inner, ...]
    return hint


def default_of(field: structs.FieldInfo) -> Any:
    """Return a field's default; UNSET if it has none."""
    if field.default is UNSET:
        metas = (meta.extra_json_schema or {} for meta in getattr(field.type, "__metadata__", ()))
        return next((meta["default"] for meta in metas if "default" in meta), UNSET)
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _record_fields() -> Iterator[tuple[str, Any] | tuple[str, Any, Any]]:
    fields = {field.name: field for field in structs.fields(JobSpec)}
    first = ("name", "argument", *FIELDS[:4], "job_id", "run_at", "delay", "replace", "tags", *FIELDS[4:])
    for name in (*first, *LINKS, "traceparent"):
        field, hint = fields[name], _unlimited(fields[name].type)
        default = NOTHING if name == "then" else default_of(field)
        if field.required:
            yield name, hint
        elif field.encode_name != name:
            yield name, hint, msgspec.field(default=default, name=field.encode_name)
        else:
            yield name, hint, default
    assert {*first, *LINKS, "traceparent"} == fields.keys()


JobRecord: Any = msgspec.defstruct(
    "JobRecord",
    _record_fields(),
    module=__name__,
    kw_only=True,
    forbid_unknown_fields=True,
    gc=False,
    omit_defaults=True,
)
"""A job in a frame of the journal (a file format, see JOURNAL.md): a JobSpec without limits, and with defaults. The
date that results from `run_at` or `delay` is in the frame's head."""


def links_of(flow: Flow | None) -> dict[str, Any]:
    """Return the fields of a `JobRecord` from which `flow` is made again when the record is decoded (record.py)."""
    if flow is None:
        return {}
    return {
        "then": Raw(flow.then) if flow.then else NOTHING,
        "result_into": flow.result_into or None,
        "after": tuple(map(bare, flow.after)),
        "on_parent_failure": flow.on_parent_failure,
        "group": bare(flow.group) or None,
        "unique": unique_text(flow.unique) or None,
        "while_": flow.until,
        "callback": flow.callback or None,
        "parent": flow.parent or None,
        "one_result": flow.one_result,
    }


_encoder = msgspec.msgpack.Encoder()
_record_decoder = msgspec.msgpack.Decoder(JobRecord)
_records_decoder = msgspec.msgpack.Decoder(list[JobRecord])


_CONTENT = len(JobRecord.__struct_fields__) - 1  # all fields but the last, the trace: each try of a push has its own
_DEFAULTS = (None, *JobRecord.__struct_defaults__)  # the first field, the name, has no default


def _content(job: Any) -> tuple[Any, ...]:
    values, size = structs.astuple(job), _CONTENT
    while size > _DIGESTED and values[size - 1] == _DEFAULTS[size - 1]:
        size -= 1
    return values[:size]


def content_digest(job: Any) -> str:
    """Return the digest of a job's content (32 hexadecimal digits), by which pushes under the same id are compared. An
    option that is left out counts as its default. `replace` and `keep_result` do not count, the latter because a
    worker's registration may set it."""
    if job.replace or job.keep_result:
        job = structs.replace(job, replace=False, keep_result=False)
    content = _encoder.encode(_content(job))
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def date_digest(job_id: str) -> str:
    """Return the digest of a job that a schedule pushes for one date. It depends only on the id: two daemons may push
    the job for the same date with different contents, as one may not know the schedule's latest change yet."""
    return hashlib.blake2b(job_id.encode(), digest_size=16, person=b"date").hexdigest()


FOLLOWER_DIGEST = "made"
"""The digest of all followers whose id jqd made (`jobid.is_made`), whatever their content. If an attempt was given up
but reports after all, two outcomes may bring the same follower. The first one counts."""


def keyed_digest(job_id: str, request: str) -> str:
    """Return the digest of a job pushed under an Idempotency-Key, from the job's id and the digest of the whole
    request."""
    return hashlib.blake2b(f"{job_id} {request}".encode(), digest_size=16, person=b"request").hexdigest()


def request_digest(jobs: bytes, shape: Sequence[int]) -> str:
    """Return the digest of a whole push (32 hexadecimal digits). `jobs`: a MessagePack array. `shape`: numbers that
    describe the push: whether it was one job or an array, how many jobs it had, and the indexes of refused jobs."""
    content = _encoder.encode([shape, [_content(job) for job in _records_decoder.decode(jobs)]])
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def digest_of(job: Raw) -> str:
    """Return the `content_digest` of a job that is encoded in MessagePack."""
    return content_digest(_record_decoder.decode(job))


# ------------------------------------------------------------ in a program


class JobOptionsDict(TypedDict, total=False):
    """`JobOptions` as keyword arguments of the SDK. An option that is None counts as left out."""

    priority: int | None
    max_retry: int | None
    timeout: Duration | None
    keep_result: Keep | None
    backoff: Durations | None
    expires_in: Duration | None


class OnePush(JobOptionsDict, total=False):
    """All options of a push except `job_id`."""

    run_at: datetime | float | str | None
    delay: Duration | None
    replace: bool | None
    tags: Sequence[str] | None
    then: Any
    result_into: str | None
    after: Sequence[str] | None
    on_parent_failure: OnFailure | None
    group: str | None
    unique: str | None
    while_: Until | None
    debounce: Duration | None
    callback: str | None
    one_result: bool | None
    traceparent: str | None


class PushOptions(OnePush, total=False):
    """All options of a push, including `job_id`."""

    job_id: str | None


def _kinds(field: structs.FieldInfo) -> tuple[Any, ...]:
    hint = _unlimited(field.type)
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


DURATIONS = frozenset(
    field.name for field in structs.fields(JobSpec) if float in _kinds(field) and str not in _kinds(field)
)
"""Names of the fields that are a duration, or a list of durations."""
SEVERAL = frozenset(
    field.name for field in structs.fields(JobSpec) if any(get_origin(kind) is tuple for kind in _kinds(field))
)


SWITCHES = frozenset(field.name for field in structs.fields(JobSpec) if bool in _kinds(field))


def help_of(option: structs.FieldInfo) -> str:
    """Return an option's help text for the command line."""
    return next(str(meta.extra["help"]) for meta in option.type.__metadata__ if meta.extra)


def plain_option(field: str, value: Any) -> Any:
    """Convert the value of an SDK option to the form in which it is sent to the API. Raises TypeError, ValueError."""
    if field in DURATIONS:
        return durations_s(value) if field in SEVERAL else duration_s(value)
    if field in SEVERAL:
        if isinstance(value, str):
            raise TypeError(f"{field} is a list of strings, not the string {value!r}")
        return list(value)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{field} {value} has no time zone; write datetime.now(UTC) + … or use delay")
        return value.isoformat()
    return value
