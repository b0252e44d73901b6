"""Jobs as a lease brings them, and their outcomes as POST /v1/outcomes takes them. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from jqd.code.output import NO_LOG, Log
from jqd.domain import json_ext
from jqd.worker.lease import Outcome

MESSAGE_CHARS_MAX = 16_384  # of a message, its end: as much as a daemon keeps
CANCELLED = 499  # of a job that somebody cancelled
NO_RESPONSE = "NO_RESPONSE"
TIMEOUT = "TIMEOUT"

_encode = msgspec.msgpack.Encoder().encode


class LeasedJob(msgspec.Struct, frozen=True):
    """A job of a lease. Other fields are ignored."""

    job_id: str
    name: str
    argument: Raw
    """MessagePack."""
    attempt: int
    max_retry: int
    timeout: float
    created_at: str = ""
    deadline: str = ""

    @property
    def argument_json(self) -> bytes:
        return json_ext.json_of(bytes(self.argument))


def refused(job: LeasedJob, why: str, *, begun: bool = False) -> Outcome:
    return Outcome(job_id=job.job_id, type="refused", interrupted=begun, message=why)


def cancelled(job: LeasedJob) -> Outcome:
    return Outcome(job_id=job.job_id, status=CANCELLED, message="cancelled", error="cancelled")


def failed(job: LeasedJob, message: str, log: Log = NO_LOG, *, status: int = 500) -> Outcome:
    message = message[-MESSAGE_CHARS_MAX:]
    return Outcome(job_id=job.job_id, status=status, message=message, log=log.text, log_from=log.start)


def timed_out(job: LeasedJob, log: Log, of: str = "") -> Outcome:
    """`of`: what its time was, where that is not its own."""
    message = f"{TIMEOUT}: it did not end within {of or f'{job.timeout:g} s'}, and was killed with all it had started"
    outcome = failed(job, message, log, status=504)
    outcome.reason = "timeout"
    return outcome


def succeeded(job: LeasedJob, result: Any, follows: Sequence[dict[str, str]], log: Log, status: int = 200) -> Outcome:
    return Outcome(job_id=job.job_id, status=status, result=result, jobs=follows, log=log.text, log_from=log.start)


def result_of(text: bytes) -> Raw:
    """Return a JSON value as MessagePack. Raises ValueError."""
    return Raw(_encode(json_ext.decode(text)))
