"""The interface of a worker protocol: how a request is made, and what its answer means. Pure: `transport/` sends and
reads, `delivery.py` acts on the answers.

    Sending ──request──▶ Request ──signed───▶ transport/ ─ ─▶ status ──judge──▶ Judgement
                                                          body ──reader──▶ an Answer for each value from the worker

A new kind of worker is a file beside this one, a line in `__init__.py`, and its name in `StyleName`.
"""

import enum
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol
from urllib.parse import quote

import msgspec

from jqd import __version__
from jqd.domain import media
from jqd.domain.job import Held
from jqd.domain.signature import signature
from jqd.domain.tenant import bare, tenant_of
from jqd.runner.endpoint import merge
from jqd.runner.outcome import Report
from jqd.runner.worker import Worker

Headers = Sequence[tuple[str, str]]
BATCH_ID = "JQD-Batch-Id"
READ_AT_ONCE_BYTES = 32_768  # of JSON that is decoded in the event loop: some 5 ms for numbers that are slow to read
MEND = "mend the worker: what it may answer stands in docs/use/WORKERS.md"


class Sending(NamedTuple):
    worker: Worker
    jobtype: str
    held: Sequence[Held]
    """The jobs to send; never more than the protocol allows in one request."""
    batch_id: str
    daemon: str
    sent_at_ms: int

    @property
    def url(self) -> str:
        assert self.worker.url is not None, f"worker {self.worker.id} has no URL, but something to be sent"
        return self.worker.url


class Request(NamedTuple):
    method: str
    url: str
    headers: Headers
    """Headers that only this request has."""
    body: bytes = b""
    message: str = ""
    """The `webhook-id` of its signature. It is the same when the same request is repeated, and has no dots."""
    lasting: str = ""
    """Header lines, with line ends, that many requests to a worker share. They are made once and cached."""

    def signed(self, worker: Worker, at_ms: int) -> "Request":
        """Return the request with a signature header for each secret of the worker. `at_ms`: the date that is
        signed."""
        signed = signature(worker.secrets, self.message.replace(".", "_"), at_ms // 1000, self.body)
        return self._replace(headers=[*self.headers, *signed])


class Judgement(enum.Enum):
    """What the HTTP status of an answer means for the jobs."""

    READ = enum.auto()
    """The body has an outcome for each job."""
    LATER = enum.auto()
    """The worker took the jobs and reports each later."""
    BACK_OFF = enum.auto()
    """The worker is overloaded or unavailable, and tried no job."""
    GONE = enum.auto()
    """The worker wants no more jobs, ever, and tried none."""
    NOT_TAKEN = enum.auto()
    """The worker does not know this jobtype, and tried no job."""
    FAILED = enum.auto()
    """The request failed and would fail again. Which of several jobs is to blame is unknown."""
    ERROR = enum.auto()
    """The request failed, but may succeed later. Which of several jobs is to blame is unknown."""
    MISPLACED = enum.auto()
    """Like ERROR, but somebody has to fix it: the URL leads elsewhere, or the worker is not of the kind that it
    registered as."""


class JobReport(msgspec.Struct, frozen=True, gc=False):
    """What a worker reports of one job."""

    job_id: str | None
    """The job's id. None: the worker gave none, so the only job of the request is meant. An empty id is an error."""
    report: Report


class Refused(NamedTuple):
    """An answer: the worker hands one job back. It did not begin the job, or (`interruption` says why) stopped it."""

    job_id: str | None
    retry_after_s: float | None = None
    """For how long the worker wants no further request; None: until it has ended other jobs."""
    interruption: str = ""
    """Why the worker stopped the job after it had begun it; empty: it did not begin it."""


class Started(NamedTuple):
    """An answer: the worker begins a job only now, after the job had to wait there."""

    job_id: str | None


class ItemFailures(NamedTuple):
    """An answer: the named jobs failed, and all others of the request succeeded. If an id is unknown, all fail."""

    job_ids: tuple[str, ...] = ()
    status: int = 200


class Pending(NamedTuple):
    """An answer: the worker has ended a job whose outcome the reader returns later. It only restarts the timeouts."""


class Unclear(NamedTuple):
    """An answer: a value in the body that cannot be assigned to a job, and what is wrong with it."""

    why: str


Answer = JobReport | Refused | Started | ItemFailures | Pending | Unclear


class Reader(Protocol):
    is_decided: bool
    """Whether the status alone decides how the job ended. Then the body is its result, and may be compressed or end
    when the connection closes."""

    @property
    def held(self) -> int:
        """Bytes of the last value that have come, while it is incomplete."""

    def is_costly(self, data: bytes) -> bool:
        """Return whether feeding `data` (empty: the end) would decode much JSON, so that it belongs in a thread: a
        number like 1e-300 takes 1 us."""

    def feed(self, data: bytes) -> Iterable[Answer]:
        """Return the answers that `data` completed.

        Raises AnswerGarbled if the body is invalid; answers returned before remain valid.
        """

    def end(self) -> Sequence[Answer]:
        """Return the answers that the end of the body completed. They count only if HTTP says that the body is whole.

        Raises AnswerGarbled if the body is incomplete.
        """


class WorkerProtocol(ABC):
    """The protocol of one kind of worker. By default, statuses have their HTTP meaning and cancels are not sent."""

    single = False
    """Whether each request has only one job, whatever `batch` the worker registered."""

    def batch(self, worker: Worker) -> int | None:
        """Return the limit of jobs in one request; None: as many as the worker runs at once."""
        return 1 if self.single else worker.batch

    def copies(self, worker: Worker) -> bool:
        """Return whether arguments are sent as they are stored. If not, they are converted, which takes long for large
        arguments."""
        return False

    @abstractmethod
    def request(self, sending: Sending) -> Request:
        """Return the request that sends these jobs to their worker."""

    def judge(self, status: int) -> Judgement:
        if status == 202:
            return Judgement.LATER
        if 200 <= status < 300:
            return Judgement.READ
        if status in (408, 425, 429, 503):
            return Judgement.BACK_OFF
        if status == 410:
            return Judgement.GONE
        return Judgement.FAILED if 400 <= status < 500 else Judgement.ERROR

    @abstractmethod
    def reader(self, sending: Sending, content_type: str, value_bytes_max: int, status: int = 200) -> Reader:
        """Return a reader for the body of an answer with this `status`, a 2xx.

        `content_type`: its header, or empty. `value_bytes_max`: limit for the outcome of one job.
        """

    def cancel(self, sending: Sending, job_id: str) -> Request | None:
        """Return the request that cancels a job at its worker; None: the protocol has no cancels."""
        return None


EITHER = f"{media.MSGPACK}, {media.JSON}"


def batch_request(
    sending: Sending,
    url: str,
    body: bytes,
    message: str,
    content_type: str,
    *,
    accept: str = EITHER,
    method: str = "POST",
    more: Headers = (),
) -> Request:
    """Return a request that sends jobs. `message`: its `webhook-id`. `content_type`: empty if there is no body. `more`:
    headers that the protocol adds."""
    first, batch_id, own = sending.held[0], sending.batch_id, sending.worker.headers
    headers = [
        (BATCH_ID, batch_id),
        ("JQD-Lease-Id", str(first.fence)),  # one claim gave them all
        ("traceparent", trace_of(first) if len(sending.held) == 1 else trace_of(None, batch_id)),
        *more,
    ]
    lasting = lasting_of(sending.daemon, sending.jobtype, content_type, accept, tuple(own.items()) if own else ())
    return Request(method, url, headers, body, message, lasting)


@lru_cache(maxsize=1_000)  # jobtypes
def lasting_of(
    daemon: str, jobtype: str = "", content_type: str = "", accept: str = EITHER, own: tuple[tuple[str, str], ...] = ()
) -> str:
    """Return the header lines that all requests to a worker with jobs of this type share.

    `jobtype`: percent-encoded as UTF-8 if not printable ASCII; empty: the request has no jobs. `own`: headers of the
    registration.
    """
    headers = [
        *([("Content-Type", content_type)] if content_type else ()),
        ("Accept", accept),
        ("Accept-Encoding", "identity"),  # a compressed answer is a bomb or a waste
        ("User-Agent", f"jqd/{__version__}"),
        ("JQD-Daemon", daemon),
    ]
    if jobtype:
        headers.append(("JQD-Job-Type", quote(bare(jobtype), safe="!#$&'()*+,-./:;<=>?@[]^_`{|}~ ").strip()))
        headers.append(("JQD-Tenant", tenant_of(jobtype)))
    return "".join(f"{name}: {value}\r\n" for name, value in merge(headers, own))


def trace_of(held: Held | None, batch_id: str = "") -> str:
    """Return a W3C traceparent for a request. With a job (`held`): the traceparent that it was pushed with; else one
    made from its id, with the same trace id and another span id for each attempt. Without a job: one made from
    `batch_id`."""
    if held is not None and held.job.traceparent:
        return held.job.traceparent
    text, span = (batch_id, 1) if held is None else (held.job.id, held.fence or 1)
    # Flag 01, sampled: receivers usually sample as their caller does, and would drop all traces otherwise.
    return f"00-{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}-{_span(span)}"


@lru_cache(maxsize=64)  # the jobs of a claim have one fence
def _span(number: int) -> str:
    return f"{number:016x}-01"
