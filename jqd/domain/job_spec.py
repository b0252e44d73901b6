"""A job as it is pushed. Every option stands here once, with its limits, its default and its help.

`JobOptions` are the options that pushers, schedules, handlers and workers may set; `JobSpec` is a whole job, as the API
decodes it and the journal keeps it. The SDK's keywords are `JobOptionsDict`, the flags of the command line are made of
the fields. A new option goes to the end of `JobOptions`: the order is part of a digest that stores keep.
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

DELAY_S_MAX = 100 * 366 * 86_400.0  # a century: longer is a slip of units, milliseconds for seconds
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
"""Between attempts. A number is the first wait, and grows as the daemon's own; an array has them one by one, and its
last one stays. An empty one: as the daemon has it."""
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
    """`default`: where nobody sets the option. `help_text`: for the command line."""
    return Meta(extra_json_schema={"default": default}, extra={"help": help_text})


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Options of a job; UNSET where nobody set them. The pusher's win over registered ones."""

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
        """Yield the options that are set, by name."""
        for field in FIELDS:
            value = getattr(self, field)
            if value is not UNSET:
                yield field, value

    def without(self, given: "JobOptions") -> "JobOptions":
        """Return the options that `given` leaves out."""
        return JobOptions(**{field: value for field, value in self.given() if getattr(given, field) is UNSET})


FIELDS = JobOptions.__struct_fields__
KEPT = tuple(field for field in Job.__struct_fields__ if field in FIELDS)
"""Names of the options that stay with a job as they were given. `expires_in` becomes a date."""


class TypeOptions(JobOptions, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Options of a jobtype: defaults of its jobs, and who may push them."""

    server_only: bool | UnsetType = UNSET
    """Only the master key, schedules and jobs may push it."""

    @property
    def of_jobs(self) -> JobOptions:
        """Return the options that are for its jobs."""
        return JobOptions(**dict(self.given()))


NO_OPTIONS = TypeOptions()


def nothing() -> Raw:
    """Return nil for a value that is left out; a factory, for no page can show a default of bytes."""
    return NOTHING


class JobSpec(JobOptions, frozen=True, forbid_unknown_fields=True, gc=False, omit_defaults=True):
    """A job as its pusher writes it."""

    name: NewName
    argument: Value = msgspec.field(default_factory=nothing)
    job_id: NewName | None = None
    run_at: Date | None = None
    delay: Delay | None = None
    replace: bool = False
    tags: Tags = ()
    """Counted before they are read: a body of empty texts is a hundred times as large in memory."""
    then: Then = UNSET
    """What follows its success, with its result as argument."""
    result_into: Name | None = None
    """The field of its argument that gets the results of its parents."""
    after: Parents = ()
    """It is blocked until these have ended."""
    on_parent_failure: OnFailure = "fail"
    group: NewName | None = None
    unique: NewName | None = None
    """While a job with this key lives, another is a duplicate of it."""
    while_: Until = msgspec.field(default="ended", name="while")
    """How long `unique` holds: until the job begins, or until it has ended."""
    debounce: Delay | None = None
    """It waits for so long, if it has no date; a duplicate puts the first off by so long, and gives it its argument."""
    callback: Url | None = None
    """Is told how the job ended."""
    parent: str | None = None
    """Said by jqd alone: the job whose outcome made it, or whose callback it is."""
    one_result: bool = False
    """It waits for one parent, and gets its result itself instead of an array of one."""
    traceparent: TraceParent | None = None
    """The trace of its push, which its attempts go on with: W3C Trace Context."""


LINKS = JobSpec.__struct_fields__[JobSpec.__struct_fields__.index("then") : -1]
"""What ties a job to others: `Flow` has it. A new one goes to the end."""


# ------------------------------------------------------------ in the journal

_DIGESTED = 13
"""Fields that every digest is made of; one that came later is part of a digest only where it is not at its default."""


def _unlimited(hint: Any) -> Any:
    """Return a field's type without limits and UNSET: a journaled job stays valid, whatever the limits are now."""
    if get_origin(hint) is Annotated:
        return _unlimited(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(_unlimited(one) for one in get_args(hint) if one is not UnsetType)]  # noqa: UP007
    if get_origin(hint) is tuple:
        inner: Any = _unlimited(get_args(hint)[0])
        return tuple[inner, ...]
    return hint


def default_of(field: structs.FieldInfo) -> Any:
    """Return a field's default; UNSET where it has none."""
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
"""A job of a `jobs` frame: a JobSpec without limits, with the defaults for what its pusher left out.

A format (JOURNAL.md). `run_at` and `delay` are resolved in the frame's head.
"""


def links_of(flow: Flow | None) -> dict[str, Any]:
    """The fields of a job that `flow` was made of (record.py)."""
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


_CONTENT = len(JobRecord.__struct_fields__) - 1  # the last, a trace, is no content: each try has one of its own
_DEFAULTS = (None, *JobRecord.__struct_defaults__)  # a name has none


def _content(job: Any) -> tuple[Any, ...]:
    values, size = structs.astuple(job), _CONTENT
    while size > _DIGESTED and values[size - 1] == _DEFAULTS[size - 1]:
        size -= 1
    return values[:size]


def content_digest(job: Any) -> str:
    """Return 32 hexadecimal digits of a job's content, to compare pushes under one id. An option that is left out
    equals its default. `keep_result` is no content: it may be declared by the function instead."""
    if job.replace or job.keep_result:
        job = structs.replace(job, replace=False, keep_result=False)
    content = _encoder.encode(_content(job))
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def date_digest(job_id: str) -> str:
    """Return the digest for the job of a schedule's date: the same whatever its content, for of two daemons that fire
    the date one may not know the latest change."""
    return hashlib.blake2b(job_id.encode(), digest_size=16, person=b"date").hexdigest()


FOLLOWER_DIGEST = "made"
"""Of a job that follows another under an id made of its (`jobid.is_made`): it is one job, whatever its content. Of two
outcomes of one attempt, of which one was given up, each may leave it, and the first to push it is right."""


def keyed_digest(job_id: str, request: str) -> str:
    """Return the digest for a job under an Idempotency-Key: the same as long as the whole request is."""
    return hashlib.blake2b(f"{job_id} {request}".encode(), digest_size=16, person=b"request").hexdigest()


def request_digest(jobs: bytes, shape: Sequence[int]) -> str:
    """Return 32 hexadecimal digits of a whole request. `jobs`: a MessagePack array, as pushed; `shape`:
    numbers that say how they came."""
    content = _encoder.encode([shape, [_content(job) for job in _records_decoder.decode(jobs)]])
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def digest_of(job: Raw) -> str:
    """Return `content_digest` of a job as it will stand in a frame: a repeated push is compared with the journaled
    one."""
    return content_digest(_record_decoder.decode(job))


# ------------------------------------------------------------ in a program


class JobOptionsDict(TypedDict, total=False):
    """`JobOptions` as keywords; None: not set."""

    priority: int | None
    max_retry: int | None
    timeout: Duration | None
    keep_result: Keep | None
    backoff: Durations | None
    expires_in: Duration | None


class OnePush(JobOptionsDict, total=False):
    """The options of one push, beside those of the job."""

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
    """The options of a push, and the job's id."""

    job_id: str | None


def _kinds(field: structs.FieldInfo) -> tuple[Any, ...]:
    hint = _unlimited(field.type)
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


DURATIONS = frozenset(
    field.name for field in structs.fields(JobSpec) if float in _kinds(field) and str not in _kinds(field)
)
"""Fields of one duration, or of several."""
SEVERAL = frozenset(
    field.name for field in structs.fields(JobSpec) if any(get_origin(kind) is tuple for kind in _kinds(field))
)


SWITCHES = frozenset(field.name for field in structs.fields(JobSpec) if bool in _kinds(field))


def help_of(option: structs.FieldInfo) -> str:
    """Return an option's help text for the command line."""
    return next(str(meta.extra["help"]) for meta in option.type.__metadata__ if meta.extra)


def plain_option(field: str, value: Any) -> Any:
    """Return an option's value as it is sent. Raises TypeError and ValueError."""
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
