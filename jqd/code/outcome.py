"""Jobs as a lease brings them, and what is said of each at its end, as POST /v1/outcomes takes it. Pure."""

from typing import Any

import msgspec
from msgspec import Raw

from jqd.domain import json_ext

MESSAGE_CHARS_MAX = 16_384  # of a message, its end: as much as a daemon keeps
CANCELLED = 499  # of a job that somebody cancelled
INVALID_RESPONSE = "INVALID_RESPONSE"
NO_RESPONSE = "NO_RESPONSE"
TIMEOUT = "TIMEOUT"

_encode = msgspec.msgpack.Encoder().encode


class LeasedJob(msgspec.Struct, frozen=True):
    """Fields that are not named here are passed over."""

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

    @property
    def line(self) -> bytes:
        """As miniq's line runners get it: a text of one line as it stands, anything else as JSON."""
        text = self.argument_json
        value = json_ext.decode(text) if text.startswith(b'"') else "\n"
        return (value.encode() if not {"\n", "\r"} & set(value) else text) + b"\n"


class Outcome(msgspec.Struct, omit_defaults=True, kw_only=True):
    job_id: str
    lease_id: str = ""
    type: str | None = None
    """`refused` of a job that goes back untried; else `status` says all."""
    status: int | None = None
    result: Any = None
    result_bytes: int = 0
    reason: str = ""
    retry_after: float | None = None
    interrupted: bool = False
    error: Any = None
    message: str = ""
    jobs: Any = ()
    log: str = ""


def refused(job: LeasedJob, why: str, *, begun: bool = False) -> Outcome:
    return Outcome(job_id=job.job_id, type="refused", interrupted=begun, message=why)


def cancelled(job: LeasedJob) -> Outcome:
    return Outcome(job_id=job.job_id, status=CANCELLED, message="cancelled", error="cancelled")


def failed(job: LeasedJob, message: str, log: str = "", *, status: int = 500) -> Outcome:
    return Outcome(job_id=job.job_id, status=status, message=message[-MESSAGE_CHARS_MAX:], log=log)


def timed_out(job: LeasedJob, log: str, of: str = "") -> Outcome:
    message = f"{TIMEOUT}: it did not end within {of or f'{job.timeout:g} s'}, and was killed with all it had started"
    return Outcome(job_id=job.job_id, status=504, reason="timeout", message=message, log=log)


def result_of(text: bytes) -> Raw:
    """A value in JSON as MessagePack. Raises ValueError."""
    return Raw(_encode(json_ext.decode(text)))
