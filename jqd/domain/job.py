"""The job, its states, and the ways an attempt ends."""

import enum
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from jqd.domain.flow import Flow
from jqd.domain.tenant import tenant_of

NIL = b"\xc0"  # MessagePack nil: the default argument and the absent result

PRIORITY_MIN, PRIORITY_MAX = -(2**31), 2**31 - 1  # int32, as in the LightJQ specification
SNOOZE = "snooze"  # the reason of an attempt that put its job off; it does not count as an attempt
INTERRUPTED = "interrupted"  # the reason of an attempt whose worker or daemon was stopped; it does not count, either
NAME_LENGTH_MAX = 128  # characters of a jobtype, a tag or a pusher's own job id: fits a log line
TIMEOUT_S_MAX = 30 * 86_400.0  # a month
MAX_RETRY_MAX = 1_000_000
BACKOFF_S_MAX = TIMEOUT_S_MAX
WAITS_MAX = 32  # waits in a job's `backoff`; the last one is used for all later failures
TAGS_MAX = 32
DOTS = (".", "..")  # names that clients and proxies resolve in a URL's path

# A name from outside. A type cannot say that the characters must be printable: see `is_name`.
Name = Annotated[
    str, Meta(min_length=1, max_length=NAME_LENGTH_MAX, description=f"1 to {NAME_LENGTH_MAX} printable characters")
]
NewName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_LENGTH_MAX,
        description=f"1 to {NAME_LENGTH_MAX} printable characters, no blank at the ends",
        extra_json_schema={"pattern": r"^[^ ](.*[^ ])?$"},
    ),
]
"""The type of a name that a request introduces. It does not check for blanks at the ends of the name: `has_bare_ends`
does."""
Priority = Annotated[
    int,
    Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX, description=f"a 32-bit whole number, {PRIORITY_MIN} to {PRIORITY_MAX}"),
]
Keep = Annotated[bool | Literal["required"], Meta(description='true, false or "required"')]
"""Whether a result is kept. If a result is too large to keep, it is dropped, and the job's message says so. With
"required" the job fails instead."""


def is_name(text: str) -> bool:
    """Return whether a text may be a jobtype, a pusher's own id or a tag."""
    return 0 < len(text) <= NAME_LENGTH_MAX and text.isprintable()


def has_bare_ends(text: str) -> bool:
    """Return whether a name neither begins nor ends with a blank, which people would not see. Only new names are
    checked."""
    return text[:1] != " " != text[-1:]


def why_no_place(name: str) -> str | None:
    """Return why a name cannot be used in URLs; None if it can. Clients and proxies resolve dots in a path before they
    send it: `/v1/types/./pause` would become `/v1/types/pause`, which pauses all jobtypes. Only new names are
    checked."""
    return "stands in URLs, where . and .. mean something else" if name in DOTS else None


class ChangeKind(enum.IntEnum):
    """What a record in the journal's lane CHANGES (changed jobs, and jobs under pushers' own ids) does to a job."""

    NEW = 0
    """The first push under a pusher's own id."""
    REPLACE = 1
    """New content under a pusher's own id. A waiting job gets the new content, a running job runs again, a job that has
    ended starts from the beginning."""
    EDIT = 2
    """New content of a waiting job. If the job has ended or was cancelled meanwhile, it stays so."""
    RETRY = 3
    """A job that has ended starts again; its attempts are counted from one."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """The version of a job's content. Only jobs that were changed, or that have pushers' own ids, have one."""

    revision: int
    """A number from the store's growing sequence, from which fences (numbers of claims) come, too. The content with the
    greatest revision wins, in whatever order contents arrive."""
    generation: int
    """The revision of the latest change other than an edit. Outcomes with smaller fences, and cancels of smaller
    generations, were meant for an earlier content."""
    kind: ChangeKind
    digest: str = ""
    """Digest of the content if the pusher chose the id, by which a repeated push is recognized; else empty."""
    life: str = ""
    """Id of the store's life (from one loss of its data to the next) in which an edit or a retry got its revision. The
    job was in the store then."""


class JobContent(msgspec.Struct, frozen=True, gc=False):
    """The first fields of a job. They may be given by position; all others are given by name."""

    id: str
    jobtype: str
    """The qualified name: all jobtypes within jqd have the tenant before them (tenant.py)."""
    argument: bytes = NIL
    """One MessagePack value, never decoded by the daemon."""


class Job(JobContent, frozen=True, kw_only=True, gc=False):
    """One job as it was pushed or last changed. Its state, attempts and so on are in the store (`JobView`)."""

    created_at_ms: int = 0
    eligible_at_ms: int = 0
    """The date (Unix ms) before which the job must not start; 0 means at once."""
    name: str = ""
    """The pusher's own id, with the tenant before it; empty if the pusher chose none."""
    tags: tuple[str, ...] = ()
    change: Change | None = None
    """The version of the content. None: this is the first content, and the daemon made the id."""
    copied: tuple[int, int] | None = None
    """Only for a copy that retention made: (the job's first position in its journal, the position that was copied). If
    the store has applied records up to these positions, it has the job or has deleted it. Then the copy is no new
    job."""
    expires_at_ms: int = 0
    """The date (Unix ms) by which an attempt must have begun, or else the job fails; 0: never."""
    queue: str = ""
    """The last part of the name of the job's queue in the store, after the jobtype: the constraints that limit the job,
    with their keys. Empty: none."""
    priority: int = 0
    """Jobs with smaller numbers run first."""
    max_retry: int = 5
    """Attempts that are allowed after the first one failed; 0 means one attempt only."""
    keep_result: Keep = False
    timeout: float = 30.0
    """Seconds that one attempt may take."""
    backoff: float | tuple[float, ...] = ()
    """Seconds between attempts, for `Backoff.asked_s`. Empty: the daemon's back-off."""
    flow: Flow | None = None
    """Links to other jobs; None for most jobs."""
    traceparent: str = ""
    """The W3C trace context that the pusher gave; empty: none."""

    @property
    def tenant(self) -> str:
        """Return the job's tenant; "" is a tenant, too."""
        return tenant_of(self.jobtype)


class Wanted(NamedTuple):
    """The jobs that free workers can run now: of one jobtype, or of all jobtypes of a tenant, in a range of
    priorities."""

    jobtype: str | None = None
    """The jobtype; None: all jobtypes of `tenant` except those in `besides`."""
    priority_min: int = PRIORITY_MIN
    priority_max: int = PRIORITY_MAX
    """The highest number of a wanted priority; `priority_min` is the lowest. Both are included."""
    besides: frozenset[str] = frozenset()
    tenant: str = ""
    """The tenant, if `jobtype` is None."""


class State(enum.StrEnum):
    """The state of a job, as `GET /v1/jobs/{id}` shows it. docs/build/STORE.md draws the transitions."""

    WAITING = "waiting"
    SCHEDULED = "scheduled"
    BLOCKED = "blocked"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Return whether the job has ended."""
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED)


Code = Literal["retry", "ok", "failed", "error"]
"""How an attempt ended, in the API's words (those of miniq)."""
ExitCode = Annotated[int, Meta(ge=100, le=599, description="a whole number from 100 to 599")]
"""The number that says how an attempt ended: 1xx RETRY, 2xx OK, 4xx FAILED, 5xx ERROR."""


class Exit(enum.IntEnum):
    """The four ways an attempt ends, as in miniq: RETRY=1xx, OK=2xx, FAILED=4xx, ERROR=5xx."""

    RETRY = 1
    """An expected obstacle: the job is run again after a delay."""
    OK = 2
    """Success: the job has ended."""
    FAILED = 4
    """The job cannot succeed, for example because of its data: it has ended."""
    ERROR = 5
    """Something unexpected: the job is run again after a delay."""

    @classmethod
    def of_status(cls, status: int) -> "Exit":
        """Return the way of ending for a status: 1xx, 2xx, 4xx or 5xx. 3xx and any other number count as ERROR."""
        try:
            return cls(status // 100)
        except ValueError:
            return cls.ERROR

    @property
    def code(self) -> Code:
        """Return the API's word for this way of ending."""
        return _CODES[self]


_CODES: dict[Exit, Code] = {Exit.RETRY: "retry", Exit.OK: "ok", Exit.FAILED: "failed", Exit.ERROR: "error"}


class Fate(enum.IntEnum):
    """What becomes of a job after an attempt. It is decided once and journaled; from then on it is only carried out."""

    SUCCEEDED = 1
    FAILED = 2
    """The job failed for good, as the worker reported."""
    DEAD = 3
    """The job failed for good, as its retries are used up."""
    RETRY = 4
    """The job is run again after `delay_ms`."""
    ENTRUSTED = 5
    """The attempt goes on. The worker itself holds the job from now on, and may send no heartbeat for `delay_ms`."""


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How one attempt of a job ended, or that the job was handed over to its worker: a record of the journal's lane
    `outcomes`."""

    job_id: str
    fence: int
    """The fence (number) of the claim under which the attempt ran. The store ignores outcomes of other claims."""
    fate: Fate
    jobtype: str
    priority: int
    attempt: int
    """The number of the attempt; the first one has 1."""
    status: int = 200
    """1xx RETRY, 2xx OK, 4xx FAILED, 5xx ERROR."""
    delay_ms: int = 0
    started_at_ms: int = 0
    finished_at_ms: int = 0
    worker: str = ""
    reason: str = ""
    """Why a failed attempt failed: `timeout`, `snooze`, `interrupted` or `other`; empty for a success."""
    error: bytes = NIL
    """The error that the worker reported: any MessagePack value."""
    message: str = ""
    """Text for people, such as a traceback. For a success: a note that its result was dropped, if it was."""
    result: bytes = NIL
    """The result as MessagePack; nil unless the job asks to keep it."""
    keep_result: Keep = False
    generation: int = 0
    """The generation of the job's content that was run (`Change.generation`); 0: the content as first pushed."""
    snoozes: int = 0
    """How often the job was put off, including this time."""
    interruptions: int = 0
    """How often an attempt of the job was interrupted, including this time."""
    log: str = ""
    """The end of what the attempt printed."""
    follows: bytes = b""
    """For a success: the jobs that follow it, encoded by `outcome_followers.encode_followers`."""
    lag_ms: int | None = None
    """How long before `finished_at_ms` the attempt ended by the worker's own clock; None: unknown. It is only
    displayed."""
    log_from: int = 0
    """How many bytes the attempt had printed before the text in `log`."""

    @property
    def content_bytes(self) -> int:
        """Return the size of the result, the error, the followers and the texts together. The other fields are
        small."""
        if self.message or self.log:  # most outcomes have none
            texts = bytes_of(self.message) + bytes_of(self.log)
        elif self.result == NIL and self.error == NIL and not self.follows:
            return 0  # the quick way for most: this is called many times for each outcome
        else:
            texts = 0
        return len(self.result) + len(self.error) + len(self.follows) + texts

    @property
    def by_worker_at_ms(self) -> int | None:
        """Return when the attempt ended by its worker's clock (Unix ms); None if the worker did not say."""
        return None if self.lag_ms is None else self.finished_at_ms - self.lag_ms

    @property
    def for_generation(self) -> int:
        """Return the latest generation (version) of the job's content that the attempt may have run."""
        return self.generation or self.fence - 1


class Held(msgspec.Struct, frozen=True, gc=False):
    """A job that this daemon or a worker is working on, under the claim with the number `fence`."""

    job: Job
    fence: int
    attempt: int
    """The number of this attempt; the first one has 1."""
    generation: int = 0
    """The generation of the job's content that is run; 0: the content as first pushed. The fence does not tell: a claim
    may come after a newer content was acknowledged, but before this content is in the store."""
    snoozes: int = 0
    """How often the job was put off with this content."""
    interruptions: int = 0
    """How often attempts were interrupted with this content."""


def bytes_of(text: str) -> int:
    """Return the length of a text in UTF-8. Most texts are ASCII and need not be encoded for that."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def lease_claim(held: Held, *, worker: str, silence_s: int, started_at_ms: int) -> Outcome:
    """Return the record that hands a job over to its worker. From now on the worker itself holds the job; it loses the
    job if it sends no heartbeat for `silence_s` seconds."""
    job = held.job
    return Outcome(
        job_id=job.id,
        fence=held.fence,
        fate=Fate.ENTRUSTED,
        jobtype=job.jobtype,
        priority=job.priority,
        attempt=held.attempt,
        status=202,
        delay_ms=silence_s * 1000,
        started_at_ms=started_at_ms,
        finished_at_ms=started_at_ms,
        worker=worker,
        keep_result=job.keep_result,
        generation=held.generation,
    )
