"""The worker protocol as bytes: decodes batches, encodes outcomes.

    batch     {batch_id, jobs: [{job_id, name, argument, attempt, max_retry, timeout, keep_result, …}, …]}
    outcome   {type: "success", job_id, finished_at, result, jobs?, result_bytes?, log?, log_from?}
                                             jobs that follow; the size of a result that is too large to be sent
              {type: "failure", job_id, finished_at, reason, should_retry, error, message, retry_after?, status?,
               log?, log_from?}         the end of what the attempt printed, and how many bytes came before
              {type: "snooze", job_id, finished_at, message, retry_after}      put off: no attempt is spent
              {type: "refused", job_id, message, retry_after?, interrupted?}   handed back, not begun or interrupted:
                                                                       no attempt is counted
    note      {type: "started", job_id}                             of a job that had to wait: its time runs from now

Arguments stay encoded until their job runs, so that a malformed one fails only its own job. In MessagePack, outcomes
follow each other without an array. In JSON they form one array, which is streamed as well.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from jqd.domain import media
from jqd.domain.job import TIMEOUT_S_MAX
from jqd.domain.results import RESULT_BYTES_MAX

TIMEOUT_S_DEFAULT = 30.0  # of a job whose batch names none, by the interface
MESSAGE_CHARS_MAX = 16_384  # the end of a traceback: enough to find the line, small enough to keep with the job
ERROR_CHARS_MAX = 1_024  # of an exception's text
ERROR_BYTES_MAX = 65_536  # of an error value: daemons drop larger ones
OUTCOME_BYTES_MAX = RESULT_BYTES_MAX + 4_096  # with the result, without the followers: daemons keep no more

TOO_MUCH_STATUS = 413  # of a job whose followers are too large
CANCELLED_STATUS = 499  # of a cancelled job, which is not retried

NOTHING = msgspec.Raw(b"")

Reason = Literal["timeout", "other"]


class JobIn(msgspec.Struct, gc=False):
    """One job of a batch. Fields that are not named here are ignored."""

    name: str
    job_id: str = ""
    id: str = ""
    argument: msgspec.Raw = msgspec.field(default_factory=lambda: NOTHING)  # no page can draw a default of bytes
    """The argument in the encoding of the batch; empty if there is none."""
    attempt: int = 1
    max_retry: int = 0
    timeout: Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_S_MAX)] | None = None
    created_at: str = ""
    keep_result: bool = True
    """Whether the result is kept. If not, it need not be sent."""
    trace: str = ""
    """W3C traceparent: that of the job's push, or one that the daemon made."""

    @property
    def timeout_s(self) -> float:
        """Return the seconds that this attempt may take, as a finite number above 0."""
        return TIMEOUT_S_DEFAULT if self.timeout is None else self.timeout


class BatchIn(msgspec.Struct):
    """The body of a request with jobs."""

    jobs: list[JobIn]
    batch_id: str = ""


class Success(msgspec.Struct, tag_field="type", tag="success", gc=False, omit_defaults=True):
    """The job succeeded."""

    job_id: str
    finished_at: str
    result: Any
    jobs: Sequence[Mapping[str, Any]] = ()
    """Follower jobs, to be pushed now."""
    result_bytes: int = 0
    """Size of the result, if it is too large to be sent."""
    log: str = ""
    log_from: int = 0


class Failure(msgspec.Struct, tag_field="type", tag="failure", omit_defaults=True):
    """The attempt failed."""

    job_id: str
    finished_at: str
    reason: Reason
    should_retry: bool
    error: Any
    message: str
    retry_after: float | None = None
    status: int | None = None
    log: str = ""
    log_from: int = 0
    """How many bytes the attempt printed before those in `log`."""


class Snoozed(msgspec.Struct, tag_field="type", tag="snooze"):
    """The job asks to be tried later, without spending an attempt."""

    job_id: str
    finished_at: str
    message: str
    retry_after: float


class Refused(msgspec.Struct, tag_field="type", tag="refused", omit_defaults=True):
    """The worker hands the job back: it did not begin it, or interrupted it."""

    job_id: str
    message: str
    retry_after: float | None = None
    interrupted: bool = False


class Started(msgspec.Struct, tag_field="type", tag="started"):
    """The job, which had to wait, begins now."""

    job_id: str


class Health(msgspec.Struct):
    """The state of a worker: the answer to a `GET` at its URL."""

    status: Literal["ok", "refusing"]
    reason: str | None
    """Why it accepts no batches; null: it accepts them."""
    jobs: list[str]
    batches: int
    """Number of batches in flight."""
    concurrency: int
    room: int
    """Number of jobs that it can accept now."""
    stuck: int
    """Number of threads occupied by functions past their timeout."""


@dataclass(frozen=True, slots=True)
class Codec:
    """Encodes and decodes in one format, MessagePack or JSON."""

    content_type: str
    decode_batch: Callable[[bytes], BatchIn]
    encode: Callable[[Any], bytes]
    first: bytes = b""
    """Bytes before the first outcome; `between`: between two outcomes; `last`: after the last one."""
    between: bytes = b""
    last: bytes = b""


MSGPACK = Codec(
    content_type=media.MSGPACK,
    decode_batch=msgspec.msgpack.Decoder(BatchIn).decode,
    encode=msgspec.msgpack.Encoder().encode,
)
JSON = Codec(
    content_type=media.JSON,
    decode_batch=msgspec.json.Decoder(BatchIn).decode,
    encode=msgspec.json.Encoder().encode,
    first=b"[",
    between=b",",
    last=b"]",
)

_CODECS = {
    **dict.fromkeys(("", "application/octet-stream", *media.MSGPACK_TYPES), MSGPACK),
    **dict.fromkeys(media.JSON_TYPES, JSON),
}


def codec_of(content_type: str) -> Codec | None:
    """Return the codec for a Content-Type header; None: it is neither MessagePack nor JSON."""
    return _CODECS.get(media.bare(content_type))
