"""The job, its states, and the ways an attempt ends."""

import enum
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from jqd.domain.flow import Flow
from jqd.domain.tenant import tenant_of

NIL = b"\xc0"  # MessagePack nil: the default argument and the absent result

PRIORITY_MIN, PRIORITY_MAX = -(2**31), 2**31 - 1  # int32, as the LightJQ specification has it
SNOOZE = "snooze"  # the reason of an attempt that put its job off: it counts as none
INTERRUPTED = "interrupted"  # and of one that ended because whoever ran it was stopped: nor does this
NAME_LENGTH_MAX = 128  # characters of a jobtype, a tag or a pusher's own job id: fits a log line
TIMEOUT_S_MAX = 30 * 86_400.0  # a month: long work is welcome, a timeout that never comes is none
MAX_RETRY_MAX = 1_000_000
BACKOFF_S_MAX = TIMEOUT_S_MAX  # a longer wait is a mistake: no job may take as long
WAITS_MAX = 32  # waits that a job names one by one: beyond them the last one stays
TAGS_MAX = 32
DOTS = (".", "..")  # in a path of a URL: this place, and the one above it

# Of what comes from outside. That the characters can be printed no type can say: see `is_name`.
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
"""Of what is given a name now. That of the ends no type says either: see `has_bare_ends`."""
Priority = Annotated[
    int,
    Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX, description=f"a 32-bit whole number, {PRIORITY_MIN} to {PRIORITY_MAX}"),
]
Keep = Annotated[bool | Literal["required"], Meta(description='true, false or "required"')]
"""Whether a result is kept. "required": a job whose result is too large to be kept fails; otherwise only the result is
dropped, and the job says so."""


def is_name(text: str) -> bool:
    """Return whether a text may be a jobtype, a pusher's own id or a tag."""
    return 0 < len(text) <= NAME_LENGTH_MAX and text.isprintable()


def has_bare_ends(text: str) -> bool:
    """Return whether a name has no blank at its ends, where nobody would see it. Only new names must comply."""
    return text[:1] != " " != text[-1:]


def why_no_place(name: str) -> str | None:
    """Return why a name can be none that stands in URLs; None: it can. Clients and proxies resolve dots before they
    send a path: `/v1/types/./pause` would be `/v1/types/pause`, which pauses all. Only new names must comply."""
    return "stands in URLs, where . and .. mean something else" if name in DOTS else None


class ChangeKind(enum.IntEnum):
    """What a frame does to a job whose id or content the store had to agree to."""

    NEW = 0
    """The first push under the pusher's own id."""
    REPLACE = 1
    """Other content under that id: waiting it is exchanged, running it runs again, ended it begins anew."""
    EDIT = 2
    """Other content of a job that waits; one that has ended stays so, and so does one that was cancelled."""
    RETRY = 3
    """A job that has ended begins anew; its attempts are counted from one."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """Which of a job's contents this is: revision, generation, name."""

    revision: int
    """Given by the store, out of the same growing sequence as fences: the greatest wins, in any order of arrival."""
    generation: int
    """The revision of the latest change that was no edit. Outcomes of older fences, and cancels of older generations,
    were meant for what the job was before."""
    kind: ChangeKind
    digest: str = ""
    """Of the content, where the pusher chose the id: pushed again it is known again."""
    life: str = ""
    """Of the store, in which an edit or a retry was given its revision: the job was there."""


class JobContent(msgspec.Struct, frozen=True, gc=False):
    """The fields of a job that may be given by position."""

    id: str
    jobtype: str
    """Its tenant before it, as before all names of jobtypes within jqd (tenant.py)."""
    argument: bytes = NIL
    """One MessagePack value, never decoded by the daemon."""


class Job(JobContent, frozen=True, kw_only=True, gc=False):
    """One job as every room knows it. Immutable: what changes during its life lives in the store beside it."""

    created_at_ms: int = 0
    eligible_at_ms: int = 0
    """Not before this date; 0 means at once."""
    name: str = ""
    """The pusher's own id for the job, its tenant before it; or empty."""
    tags: tuple[str, ...] = ()
    change: Change | None = None
    """None: its content is the one it was pushed with, and its id was made here."""
    copied: tuple[int, int] | None = None
    """This is a copy that retention made: where in its journal the job stood first, and where it was copied from.
    A store that ever had it there has it still, or has deleted it: then the copy is no new job."""
    expires_at_ms: int = 0
    """When it is dead unless an attempt has begun; 0: never."""
    queue: str = ""
    """What stands behind the jobtype in the name of its queue in the store: which constraints limit it, and as what.
    Empty: there were none."""
    priority: int = 0
    """Smaller runs first."""
    max_retry: int = 5
    """Attempts allowed after the first failed; 0 means one attempt only."""
    keep_result: Keep = False
    timeout: float = 30.0
    """Seconds that one attempt may take."""
    backoff: float | tuple[float, ...] = ()
    """Seconds between its attempts, as `Backoff.asked_s` reads them. Empty: as the daemon has it."""
    flow: Flow | None = None
    """What it has to do with other jobs; None for most."""
    traceparent: str = ""
    """The trace that its pusher named; empty: none."""

    @property
    def tenant(self) -> str:
        """Return the job's tenant; "" is one, too."""
        return tenant_of(self.jobtype)


class Wanted(NamedTuple):
    """Jobs that free workers can run now: of one jobtype, or of any of a tenant, with a priority between two,
    inclusive."""

    jobtype: str | None = None
    """The jobtype; None: any but those of `besides`."""
    priority_min: int = PRIORITY_MIN
    priority_max: int = PRIORITY_MAX
    besides: frozenset[str] = frozenset()
    tenant: str = ""
    """The tenant whose jobs of any type are wanted."""


class State(enum.StrEnum):
    """The state of a job, as `GET /v1/jobs/{id}` shows it. docs/build/STORE.md draws the arrows."""

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
"""How: RETRY=1xx, OK=2xx, FAILED=4xx, ERROR=5xx."""


class Exit(enum.IntEnum):
    """The four ways an attempt ends (seed miniq-queue): RETRY=1xx, OK=2xx, FAILED=4xx, ERROR=5xx."""

    RETRY = 1
    """An anticipated hindrance; run again after a delay."""
    OK = 2
    """Ran and succeeded: done."""
    FAILED = 4
    """Ran well and cannot succeed, by data for example: done."""
    ERROR = 5
    """Something unexpected; run again after a delay."""

    @classmethod
    def of_status(cls, status: int) -> "Exit":
        """Return the class of a 1xx … 5xx code. 3xx and anything else is an ERROR: no worker means those."""
        try:
            return cls(status // 100)
        except ValueError:
            return cls.ERROR

    @property
    def code(self) -> Code:
        """Return why an attempt stopped, as people read it."""
        return _CODES[self]


_CODES: dict[Exit, Code] = {Exit.RETRY: "retry", Exit.OK: "ok", Exit.FAILED: "failed", Exit.ERROR: "error"}


class Fate(enum.IntEnum):
    """What becomes of a job after an attempt; decided once, journaled, and applied as it stands."""

    SUCCEEDED = 1
    FAILED = 2
    """Failed for good by the worker's report: dead at once, and kept as such."""
    DEAD = 3
    """Its retries are used up: kept with its error until somebody deals with it."""
    RETRY = 4
    """Eligible again after `delay_ms`."""
    ENTRUSTED = 5
    """It goes on: from now on the worker holds the job by itself, and may be silent for `delay_ms`."""


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How one attempt of a job ended, or went on without this daemon: a record of the journal's `outcomes` lane."""

    job_id: str
    fence: int
    """The fence of the claim under which the attempt ran; the store compares it."""
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
    """Any MessagePack value the worker gave."""
    message: str = ""
    """For people; a traceback perhaps. Of a success: that its result was dropped."""
    result: bytes = NIL
    """Only kept when the job asked for it."""
    keep_result: Keep = False
    generation: int = 0
    """The generation of the content that ran (`Change.generation`). 0: as the job was first pushed."""
    snoozes: int = 0
    """How often the job was put off until now, this time included."""
    interruptions: int = 0
    """How often an attempt of it was interrupted until now, this one included."""
    log: str = ""
    """The end of what the attempt printed."""
    follows: bytes = b""
    """Of a success, the jobs that follow it, as `followers.named` writes them."""
    lag_ms: int | None = None
    """So long before `finished_at_ms` it ended by its worker's own clock; None: it did not say. Nothing goes by it."""
    log_from: int = 0
    """How many bytes the attempt had printed before `log`."""

    @property
    def content_bytes(self) -> int:
        """Return the bytes of result, error and texts; the rest is small."""
        if self.message or self.log:  # most have none
            texts = bytes_of(self.message) + bytes_of(self.log)
        elif self.result == NIL and self.error == NIL and not self.follows:
            return 0  # as of most: nearly each step of an outcome's way asks
        else:
            texts = 0
        return len(self.result) + len(self.error) + len(self.follows) + texts

    @property
    def by_worker_at_ms(self) -> int | None:
        """Return when it ended by its worker's own clock."""
        return None if self.lag_ms is None else self.finished_at_ms - self.lag_ms

    @property
    def for_generation(self) -> int:
        """Return the latest generation that this may be an outcome of."""
        return self.generation or self.fence - 1


class Held(msgspec.Struct, frozen=True, gc=False):
    """A job in flight at this daemon, under the claim with the number `fence`."""

    job: Job
    fence: int
    attempt: int
    """The number of this attempt, 1 for the first."""
    generation: int = 0
    """The generation of its content, 0 as it was first pushed: a claim may come after a later content was
    acknowledged and before that is in the store, so its fence does not show which content ran."""
    snoozes: int = 0
    """How often this content was put off."""
    interruptions: int = 0
    """How often it was interrupted."""


def bytes_of(text: str) -> int:
    """Return the length in UTF-8; ASCII texts, which most are, are not encoded for it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def lease_claim(held: Held, *, worker: str, silence_s: int, started_at_ms: int) -> Outcome:
    """Return the record of a hand-over: that worker holds the job by itself from now on, and may be silent for so
    long."""
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
