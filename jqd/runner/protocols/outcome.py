"""Decodes one outcome of a native worker into an `Answer`. Pure; docs/use/WORKERS.md.

{job_id, type: "success", result, jobs, log, log_from}                        result_bytes for one too large to send
{job_id, type: "failure", reason, should_retry, error, message, retry_after, log, log_from}
{job_id, status: 1xx … 5xx, …}
{job_id, type: "snooze", retry_after, message}                               put off: no attempt is spent
{job_id, type: "refused", retry_after}                                       not begun: handed back untried
{job_id, type: "refused", retry_after, interrupted: true, message}           begun: handed back, no attempt is spent
{job_id, type: "started"}                                                    its time runs from now
{batchItemFailures: [{itemIdentifier}]}                                      the others succeeded
"""

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Raw

from jqd.domain import decode_errors, json_ext, media
from jqd.domain.errors import AnswerGarbled
from jqd.domain.fields import faults_of
from jqd.domain.job import NIL
from jqd.domain.json_large import packed_of
from jqd.runner.outcome import INVALID_RESPONSE, MESSAGE_LENGTH_MAX, Printed, Report, Size, status_of
from jqd.runner.protocols.protocol import MEND, Answer, ItemFailures, JobReport, Refused, Started, Unclear

Encoding = media.Language

_BRACKETS = (b"{", b"[")  # as MessagePack: whole numbers
_SEQUENCE = "application/json-seq"  # a text each after a record separator (RFC 7464)


class NamelessError(ValueError):
    """An outcome has neither a type nor a status, so it does not say how the job ended."""


class _Item(msgspec.Struct, rename="camel"):
    item_identifier: str = ""


class _Outcome(msgspec.Struct, gc=False):
    job_id: str | None = None
    id: str | None = None
    type: Literal["success", "failure", "snooze", "refused", "started"] | None = None
    status: int | None = None
    result: Raw = Raw()
    result_bytes: Size = 0
    reason: str | None = None
    should_retry: bool | None = None
    retry_after: float | None = None
    interrupted: bool = False
    error: Raw = Raw()
    message: str | None = None
    jobs: Raw = Raw()
    log: str | None = None
    log_from: Printed = 0
    batchItemFailures: list[_Item] | msgspec.UnsetType | None = msgspec.UNSET


class _Named(msgspec.Struct, gc=False):
    job_id: str | None = None
    id: str | None = None


_decode_outcome: dict[Encoding, Callable[[bytes], _Outcome]] = {
    "msgpack": msgspec.msgpack.Decoder(_Outcome).decode,
    "json": msgspec.json.Decoder(_Outcome).decode,
}
_decode_named: dict[Encoding, Callable[[bytes], _Named]] = {
    "msgpack": msgspec.msgpack.Decoder(_Named).decode,
    "json": msgspec.json.Decoder(_Named).decode,
}
_NAMES: dict[Encoding, str] = {"msgpack": "MessagePack", "json": "JSON"}
_UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


def encoding_of(content_type: str) -> Encoding:
    """Return the encoding of a body with this Content-Type header; no header means MessagePack.

    Raises AnswerGarbled for any other type: the page of a proxy in between must not count as a worker's answer.
    """
    kind = media.bare(content_type)
    encoding: Encoding | None = "msgpack" if not kind else "json" if kind == _SEQUENCE else media.language_of(kind)
    if encoding is None or kind == media.PROBLEM:
        raise AnswerGarbled(f"the answer is {kind[:100]!r}; answer in {media.BOTH}, or with no body at all")
    return encoding


def decode_answer(data: bytes, encoding: Encoding) -> Answer:
    """Decode one value of a worker's answer. Never raises: an invalid value becomes a failure of the job that it names,
    or Unclear."""
    try:
        outcome = _decode_outcome[encoding](data)
        if outcome.batchItemFailures is not msgspec.UNSET:
            return ItemFailures(tuple(item.item_identifier for item in outcome.batchItemFailures or ()))
        job_id = outcome.id if outcome.job_id is None else outcome.job_id
        if outcome.type == "refused":
            why = (outcome.message or "handed back") if outcome.interrupted else ""
            return Refused(job_id, outcome.retry_after, why[-MESSAGE_LENGTH_MAX:])
        if outcome.type == "started":
            return Started(job_id)
        return JobReport(job_id, _report(outcome, encoding))
    except _UNREADABLE as error:
        return _charge_job(
            data, encoding, f"the worker answered what is no outcome: {_wrong(data, encoding, error)}; {MEND}"
        )


def _report(outcome: _Outcome, encoding: Encoding) -> Report:
    """Convert an outcome to a report. Raises NamelessError if it has neither type nor status."""
    status = outcome.status
    follows = _value(outcome.jobs, encoding) if _any_of(outcome.jobs) else b""
    if status is None and outcome.type == "success":  # nearly all do, and no other field counts
        return Report(
            result=_value(outcome.result, encoding),
            result_bytes=outcome.result_bytes,
            log=outcome.log or "",
            log_from=outcome.log_from,
            follows=follows,
        )
    if status is None and outcome.type is None:
        raise NamelessError("neither `type` nor `status` is given")
    status_here, reason = status_of(outcome.type or "", outcome.reason, outcome.should_retry)
    return Report(
        status=status_here if status is None else status,
        should_retry=outcome.should_retry,
        retry_after_s=outcome.retry_after,
        reason=reason,
        message=outcome.message or "",
        error=_value(outcome.error, encoding),
        result=_value(outcome.result, encoding),
        result_bytes=outcome.result_bytes,
        log=outcome.log or "",
        log_from=outcome.log_from,
        follows=follows,
    )


def _value(raw: Raw, encoding: Encoding) -> bytes:
    """Return a result or error value as MessagePack; nil if there is none."""
    data = bytes(raw)
    if not data:
        return NIL
    if encoding == "msgpack":
        return data
    return packed_of(data, json_ext.decode)


def _any_of(raw: Raw) -> bool:
    return bytes(raw) not in (b"", NIL, b"\x90", b"null", b"[]")


def _wrong(data: bytes, encoding: Encoding, error: Exception) -> str:
    if isinstance(error, NamelessError):
        return str(error)
    if encoding == "msgpack" and data in _BRACKETS:
        return "it looks like JSON, and is not called so; answer JSON with Content-Type: application/json"
    if not isinstance(error, msgspec.ValidationError):
        return f"it is no {_NAMES[encoding]}: {decode_errors.why(error, text=data if encoding == 'json' else b'')}"
    try:
        return faults_of(data if encoding == "msgpack" else packed_of(data, json_ext.decode), _Outcome)[0].detail
    except _UNREADABLE as unread:
        return decode_errors.why(unread)


def _charge_job(data: bytes, encoding: Encoding, why: str) -> Answer:
    """Return a failure of the job that an invalid value names; Unclear if it names none."""
    try:
        named = _decode_named[encoding](data)
    except _UNREADABLE:
        return Unclear(why)
    job_id = named.id if named.job_id is None else named.job_id
    if job_id is None:
        return Unclear(why)
    return JobReport(job_id, Report(status=500, reason="other", message=f"{INVALID_RESPONSE}: {why}"))
