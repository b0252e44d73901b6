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
INTERRUPTED = "interrupted"  # the reason of one whose worker or daemon was stopped; nor does this count
NAME_LENGTH_MAX = 128  # characters of a jobtype, a tag or a pusher's own job id: fits a log line
TIMEOUT_S_MAX = 30 * 86_400.0  # a month
MAX_RETRY_MAX = 1_000_000
BACKOFF_S_MAX = TIMEOUT_S_MAX
WAITS_MAX = 32  # waits in a job's `backoff`; after them the last one stays
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
"""The name of something new. A type cannot check its ends: see `has_bare_ends`."""
Priority = Annotated[
    int,
    Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX, description=f"a 32-bit whole number, {PRIORITY_MIN} to {PRIORITY_MAX}"),
]
Keep = Annotated[bool | Literal["required"], Meta(description='true, false or "required"')]
"""Whether a result is kept. If it is too large, it is dropped, and the job's message says so; with "required" the job
fails."""


def is_name(text: str) -> bool:
    """Return whether a text may be a jobtype, a pusher's own id or a tag."""
    return 0 < len(text) <= NAME_LENGTH_MAX and text.isprintable()


def has_bare_ends(text: str) -> bool:
    """Return whether a name has no blank at its ends, where it is not seen. Only new names are checked."""
    return text[:1] != " " != text[-1:]


def why_no_place(name: str) -> str | None:
    """Return why a name cannot be used in URLs, or None. Clients and proxies resolve dots in a path before they send
    it: `/v1/types/./pause` would become `/v1/types/pause`, which pauses all. Only new names are checked."""
    return "stands in URLs, where . and .. mean something else" if name in DOTS else None


class ChangeKind(enum.IntEnum):
    """What a frame of the lane CHANGES does to a job."""

    NEW = 0
    """The first push under a pusher's own id."""
    REPLACE = 1
    """New content under a pusher's own id. A waiting job gets it, a running one reruns, an ended one begins anew."""
    EDIT = 2
    """New content of a waiting job. A job that has ended or was cancelled stays so."""
    RETRY = 3
    """A job that has ended begins anew; its attempts are counted from one."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """The version of a job's content, for jobs that were changed or have pushers' own ids."""

    revision: int
    """A number that the store gave, from the same growing sequence as fences. The content with the greatest one wins,
    in whatever order they arrive."""
    generation: int
    """The revision of the latest change that was no edit. Outcomes with smaller fences, and cancels of smaller
    generations, were meant for an earlier content."""
    kind: ChangeKind
    digest: str = ""
    """Digest of the content, if the pusher chose the id: so a repeated push is recognized."""
    life: str = ""
    """The store's life in which an edit or a retry was given its revision: the job was in the store then."""


class JobContent(msgspec.Struct, frozen=True, gc=False):
    """The fields of a job that may be given by position."""

    id: str
    jobtype: str
    """The qualified name: with the tenant before it, like all jobtypes within jqd (tenant.py)."""
    argument: bytes = NIL
    """One MessagePack value, never decoded by the daemon."""


class Job(JobContent, frozen=True, kw_only=True, gc=False):
    """One job as it was pushed or last changed. Its state, attempts and so on are in the store (`JobView`)."""

    created_at_ms: int = 0
    eligible_at_ms: int = 0
    """Not before this date; 0 means at once."""
    name: str = ""
    """The pusher's own id, qualified; empty: none."""
    tags: tuple[str, ...] = ()
    change: Change | None = None
    """None: the content is the first one, and the daemon made the id."""
    copied: tuple[int, int] | None = None
    """Of a copy that retention made: the job's first position in its journal, and the position it was copied from. If
    the store had applied these, it has the job or deleted it, and the copy is no new job."""
    expires_at_ms: int = 0
    """The job fails if no attempt has begun by then; 0: never."""
    queue: str = ""
    """What follows the jobtype in the name of the job's queue in the store: the constraints that limit it, with their
    keys. Empty: none."""
    priority: int = 0
    """Smaller runs first."""
    max_retry: int = 5
    """Attempts allowed after the first failed; 0 means one attempt only."""
    keep_result: Keep = False
    timeout: float = 30.0
    """Seconds that one attempt may take."""
    backoff: float | tuple[float, ...] = ()
    """Seconds between attempts, for `Backoff.asked_s`. Empty: the daemon's back-off."""
    flow: Flow | None = None
    """Links to other jobs; None for most jobs."""
    traceparent: str = ""
    """The W3C trace that the pusher named; empty: none."""

    @property
    def tenant(self) -> str:
        """Return the job's tenant, which may be ""."""
        return tenant_of(self.jobtype)


class Wanted(NamedTuple):
    """Jobs that free workers can run now: of one jobtype, or of all jobtypes of a tenant, in a range of priorities."""

    jobtype: str | None = None
    """The jobtype; None: all of `tenant` but those in `besides`."""
    priority_min: int = PRIORITY_MIN
    priority_max: int = PRIORITY_MAX
    """Inclusive, as is the minimum."""
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
"""Why an attempt stopped (seed miniq-queue)."""
ExitCode = Annotated[int, Meta(ge=100, le=599, description="a whole number from 100 to 599")]
"""The number with which an attempt stopped: RETRY=1xx, OK=2xx, FAILED=4xx, ERROR=5xx."""


class Exit(enum.IntEnum):
    """The four ways an attempt ends (seed miniq-queue): RETRY=1xx, OK=2xx, FAILED=4xx, ERROR=5xx."""

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
        """Return the class of a status from 1xx to 5xx. 3xx, and any other number, is an ERROR."""
        try:
            return cls(status // 100)
        except ValueError:
            return cls.ERROR

    @property
    def code(self) -> Code:
        """Return the word for this class in the API."""
        return _CODES[self]


_CODES: dict[Exit, Code] = {Exit.RETRY: "retry", Exit.OK: "ok", Exit.FAILED: "failed", Exit.ERROR: "error"}


class Fate(enum.IntEnum):
    """What becomes of a job after an attempt. It is decided once, journaled, and then only applied."""

    SUCCEEDED = 1
    FAILED = 2
    """The job failed for good, as the worker reported."""
    DEAD = 3
    """The job failed for good, as its retries are used up."""
    RETRY = 4
    """The job is run again after `delay_ms`."""
    ENTRUSTED = 5
    """The attempt goes on: the worker itself holds the job now, and may send no heartbeat for `delay_ms`."""


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How one attempt of a job ended, or was entrusted to its worker: a record of the journal's lane `outcomes`."""

    job_id: str
    fence: int
    """The fence of the claim under which the attempt ran. The store ignores outcomes of other claims."""
    fate: Fate
    jobtype: str
    priority: int
    attempt: int
    """1 for the first."""
    status: int = 200
    """1xx RETRY, 2xx OK, 4xx FAILED, 5xx ERROR."""
    delay_ms: int = 0
    started_at_ms: int = 0
    finished_at_ms: int = 0
    worker: str = ""
    reason: str = ""
    """`timeout`, `snooze`, `interrupted` or `other` for failures, else empty."""
    error: bytes = NIL
    """Any MessagePack value that the worker gave."""
    message: str = ""
    """Text for people, such as a traceback. Of a success: a note that its result was dropped."""
    result: bytes = NIL
    """A MessagePack value; nil unless the job asks to keep it."""
    keep_result: Keep = False
    generation: int = 0
    """The generation of the content that ran (`Change.generation`). 0: as the job was first pushed."""
    snoozes: int = 0
    """How often the job was put off, this time included."""
    interruptions: int = 0
    """How often an attempt of the job was interrupted, this one included."""
    log: str = ""
    """The end of what the attempt printed."""
    follows: bytes = b""
    """Of a success, the jobs that follow it (`brought.following`)."""
    lag_ms: int | None = None
    """How long before `finished_at_ms` the attempt ended by the worker's own clock; None: unknown. Only shown."""
    log_from: int = 0
    """How many bytes the attempt had printed before `log`."""

    @property
    def content_bytes(self) -> int:
        """Return the bytes of result, error, followers and texts; the other fields are small."""
        if self.message or self.log:  # most outcomes have none
            texts = bytes_of(self.message) + bytes_of(self.log)
        elif self.result == NIL and self.error == NIL and not self.follows:
            return 0  # the quick way for most: this is called many times for each outcome
        else:
            texts = 0
        return len(self.result) + len(self.error) + len(self.follows) + texts

    @property
    def by_worker_at_ms(self) -> int | None:
        """Return when the attempt ended by its worker's own clock; None if it did not say."""
        return None if self.lag_ms is None else self.finished_at_ms - self.lag_ms

    @property
    def for_generation(self) -> int:
        """Return the latest generation of the job's content that the attempt may have run."""
        return self.generation or self.fence - 1


class Held(msgspec.Struct, frozen=True, gc=False):
    """A job that this daemon or a worker holds, under the claim with the number `fence`."""

    job: Job
    fence: int
    attempt: int
    """The number of this attempt, 1 for the first."""
    generation: int = 0
    """The generation of the content that is run; 0: as the job was first pushed. The fence does not show it: a claim
    may come after a newer content was acknowledged and before that is in the store."""
    snoozes: int = 0
    """How often this content was put off."""
    interruptions: int = 0
    """How often attempts of this content were interrupted."""


def bytes_of(text: str) -> int:
    """Return the length of a text in UTF-8, without encoding it if it is ASCII, as most are."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def lease_claim(held: Held, *, worker: str, silence_s: int, started_at_ms: int) -> Outcome:
    """Return the record of a hand-over: from now on the worker itself holds the job, and may send no heartbeat for
    `silence_s`."""
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
