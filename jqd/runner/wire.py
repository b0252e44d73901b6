"""The worker protocol as bytes: the batch that goes out, one outcome that comes back. Pure; docs/WORKERS.md.

    batch     {batch_id, jobs: [{job_id, id, name, argument, attempt, max_retry, timeout, created_at, deadline}, …]}
    LightJQ   {id, job_id, name, argument, timeout}                                        one job a request
    outcome   {job_id, type: "success", result}
              {job_id, type: "failure", reason, should_retry, error, message, retry_after}
              {job_id, status: 1xx … 5xx, …}
              {job_id, type: "refused", retry_after}                                       not begun: back untried
              {job_id, type: "started"}                                                    its time runs from now
              {batchItemFailures: [{itemIdentifier}]}                                      the others succeeded

Arguments are copied as they stand, never decoded. Both ids of a job are the daemon's: the original LightJQ schema
names one and requires the other.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Raw

from jqd import __version__
from jqd.runner.verdict import Report
from jqd.words import media
from jqd.words.dates import iso
from jqd.words.errors import AnswerGarbled
from jqd.words.job import NIL, Held

INVALID_RESPONSE = "INVALID_RESPONSE"  # begins the message of an attempt whose answer could not be read
NO_RESPONSE = "NO_RESPONSE"  # begins the message of an attempt that a complete answer does not speak of

Encoding = media.Language

_SEQUENCE = "application/json-seq"  # a text each after a record separator (RFC 7464)


class _Job(msgspec.Struct, gc=False):
    job_id: str
    id: str
    name: str
    argument: Raw
    attempt: int
    max_retry: int
    timeout: float
    created_at: str
    deadline: str


class _Batch(msgspec.Struct, gc=False):
    batch_id: str
    jobs: list[_Job]


class _LightJob(msgspec.Struct, gc=False):
    id: str
    job_id: str
    name: str
    argument: Raw
    timeout: int


class _Item(msgspec.Struct, rename="camel"):
    item_identifier: str = ""


class _Outcome(msgspec.Struct, gc=False):
    job_id: str | None = None
    id: str | None = None
    type: Literal["success", "failure", "refused", "started"] | None = None
    status: int | None = None
    result: Raw = Raw()
    reason: str | None = None
    should_retry: bool | None = None
    retry_after: float | None = None
    error: Raw = Raw()
    message: str | None = None
    jobs: Raw = Raw()
    batchItemFailures: list[_Item] | msgspec.UnsetType | None = msgspec.UNSET


class _Named(msgspec.Struct, gc=False):
    job_id: str | None = None
    id: str | None = None


class Said(NamedTuple):
    """What a worker says of one job."""

    job_id: str
    """Empty when it names none: then it can only mean the one job of a request of one."""
    report: Report
    chained: bool = False
    """It brought new jobs along."""


class Refused(NamedTuple):
    """The worker has not begun this job, and hands it back."""

    job_id: str
    retry_after_s: float | None = None
    """Seconds that it wants to be left alone; None: as long as it has other jobs to end."""


class Started(NamedTuple):
    """The job had to wait at the worker, and begins now."""

    job_id: str


class ItemFailures(NamedTuple):
    """These failed, all others of the batch succeeded. An id that is not of the batch spoils the whole."""

    job_ids: tuple[str, ...]


class Unclear(NamedTuple):
    """A value that speaks of no job we can name."""

    why: str


Answer = Said | Refused | Started | ItemFailures | Unclear

_encoder = msgspec.msgpack.Encoder()
_decode_outcome: dict[Encoding, Callable[[bytes], _Outcome]] = {
    "msgpack": msgspec.msgpack.Decoder(_Outcome).decode,
    "json": msgspec.json.Decoder(_Outcome).decode,
}
_decode_named: dict[Encoding, Callable[[bytes], _Named]] = {
    "msgpack": msgspec.msgpack.Decoder(_Named).decode,
    "json": msgspec.json.Decoder(_Named).decode,
}
_UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


def encode_batch(batch_id: str, held: Sequence[Held], sent_at_ms: int) -> bytes:
    """The body of one POST to a native worker."""
    dates: dict[int, str] = {}  # jobs of a batch were often pushed together

    def date(at_ms: int) -> str:
        text = dates.get(at_ms)
        if text is None:
            text = dates[at_ms] = iso(at_ms)
        return text

    jobs = [
        _Job(
            h.job.id,
            h.job.id,
            h.job.jobtype,
            Raw(h.job.argument),
            h.attempt,
            h.job.max_retry,
            h.job.timeout_s,
            date(h.job.created_at_ms),
            date(sent_at_ms + round(h.job.timeout_s * 1000)),
        )
        for h in held
    ]
    return _encoder.encode(_Batch(batch_id, jobs))


def encode_light_job(held: Held) -> bytes:
    """The body of one POST to a LightJQ worker. Its timeout is whole seconds, rounded up: ours ends first otherwise."""
    job = held.job
    return _encoder.encode(_LightJob(job.id, job.id, job.jobtype, Raw(job.argument), math.ceil(job.timeout_s)))


def request_headers(batch_id: str, jobtype: str, daemon: str) -> list[tuple[str, str]]:
    """Headers of one POST. A jobtype outside printable ASCII is percent-encoded as UTF-8."""
    return [
        ("Content-Type", media.MSGPACK),
        ("Accept", f"{media.MSGPACK}, {media.JSON}"),
        ("Accept-Encoding", "identity"),  # a compressed answer is a bomb or a waste
        ("User-Agent", f"jqd/{__version__}"),
        ("JQD-Batch-Id", batch_id),
        ("JQD-Job-Type", quote(jobtype, safe="!#$&'()*+,-./:;<=>?@[]^_`{|}~ ").strip()),
        ("JQD-Daemon", daemon),
    ]


def cancel_headers(daemon: str) -> list[tuple[str, str]]:
    """Headers of a request that tells of a cancel."""
    return [
        ("Accept", f"{media.MSGPACK}, {media.JSON}"),
        ("Accept-Encoding", "identity"),
        ("User-Agent", f"jqd/{__version__}"),
        ("JQD-Daemon", daemon),
    ]


def encoding_of(content_type: str) -> Encoding:
    """How a body with this Content-Type header is encoded; no header means MessagePack.

    Raises AnswerGarbled for any other type: a page of some proxy in between must not pass for a worker's answer.
    """
    kind = media.bare(content_type)
    encoding: Encoding | None = "msgpack" if not kind else "json" if kind == _SEQUENCE else media.language_of(kind)
    if encoding is None or kind == media.PROBLEM:
        raise AnswerGarbled(f"the answer is {kind[:100]!r}; answer in {media.BOTH}, or with no body at all")
    return encoding


def decode_answer(data: bytes, encoding: Encoding) -> Answer:
    """One value of a worker's answer. Never raises: a value that is wrong is blamed on its job where it names one."""
    try:
        outcome = _decode_outcome[encoding](data)
        if outcome.batchItemFailures is not msgspec.UNSET:
            return ItemFailures(tuple(item.item_identifier for item in outcome.batchItemFailures or ()))
        job_id = outcome.job_id or outcome.id or ""
        if outcome.type == "refused":
            return Refused(job_id, outcome.retry_after)
        if outcome.type == "started":
            return Started(job_id)
        return Said(job_id, _report(outcome, encoding), chained=_any_of(outcome.jobs))
    except _UNREADABLE as error:
        return _blame(data, encoding, str(error))


def _report(outcome: _Outcome, encoding: Encoding) -> Report:
    """Raises ValueError when the outcome says neither type nor status."""
    status = outcome.status
    if status is None:
        if outcome.type is None:
            raise ValueError("neither `type` nor `status` is given")
        if outcome.type == "success":
            status = 200
        elif outcome.should_retry is False:
            status = 400
        else:
            status = 504 if outcome.reason == "timeout" else 500
    return Report(
        status=status,
        should_retry=outcome.should_retry,
        retry_after_s=outcome.retry_after,
        reason="timeout" if outcome.reason == "timeout" else "",
        message=outcome.message or "",
        error=_value(outcome.error, encoding),
        result=_value(outcome.result, encoding),
    )


def _value(raw: Raw, encoding: Encoding) -> bytes:
    """The MessagePack bytes of a worker's value; nil when it gave none."""
    data = bytes(raw)
    if not data:
        return NIL
    return data if encoding == "msgpack" else _encoder.encode(msgspec.json.decode(data))


def _any_of(raw: Raw) -> bool:
    """Whether a list of jobs is there and not empty."""
    return bytes(raw) not in (b"", NIL, b"\x90", b"null", b"[]")


def _blame(data: bytes, encoding: Encoding, why: str) -> Answer:
    try:
        named = _decode_named[encoding](data)
    except _UNREADABLE:
        return Unclear(why)
    job_id = named.job_id or named.id
    if not job_id:
        return Unclear(why)
    return Said(job_id, Report(status=500, reason="other", message=f"{INVALID_RESPONSE}: {why}"))
