"""Plain web hooks: one job a request, its argument as the body, the answer's body as its result.

    job       POST <worker url>   the argument; headers JQD-Job-Id, -Job-Type, -Attempt, -Max-Retry, -Deadline
    answer    any 2xx             succeeded, a 202 too; the body, of whatever type, is the result
              404 405 415         the hook is not where or what it should be: tried again, and health warns
              else                as HTTP means it

The argument is JSON unless the registration says otherwise. Values that JSON lacks are written and read as in
`domain/json_ext.py`. Cancels are not sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from jqd.domain import json_ext, media
from jqd.domain.dates import iso
from jqd.domain.json_large import PIECE_BYTES, packed_of
from jqd.domain.tenant import bare
from jqd.runner.callbacks import message_id
from jqd.runner.endpoint import fill
from jqd.runner.outcome import Report
from jqd.runner.protocols.protocol import (
    READ_AT_ONCE_BYTES,
    Answer,
    JobReport,
    Judgement,
    Reader,
    Request,
    Sending,
    WorkerProtocol,
    batch_request,
)
from jqd.runner.ssrf import AddressPolicy
from jqd.runner.worker import Worker

MISPLACED = frozenset({404, 405, 415})  # during a deploy, or by a mistake in the URL: no job's fault
BODILESS = frozenset({"GET", "DELETE"})  # a body has no meaning there, and many servers refuse one

_encoder = msgspec.msgpack.Encoder()
_one_value = msgspec.msgpack.Decoder(msgspec.Raw).decode


class WebHook(WorkerProtocol):
    single = True

    def copies(self, worker: Worker) -> bool:
        return worker.language == "msgpack" or worker.method in BODILESS

    def request(self, sending: Sending) -> Request:
        (only,) = sending.held
        worker, job = sending.worker, only.job
        url = worker.url or ""
        if "{" in url:
            url = fill(url, bare(job.jobtype), job.id)
        language = worker.format or "json"
        bodiless = worker.method in BODILESS
        headers = [
            ("JQD-Job-Id", job.id),
            ("JQD-Attempt", str(only.attempt)),
            ("JQD-Max-Retry", str(job.max_retry)),
            ("JQD-Deadline", iso(sending.sent_at_ms + round(job.timeout * 1000))),
        ]
        body = b"" if bodiless else job.argument if language == "msgpack" else json_ext.json_of(job.argument)
        # The same for all attempts at the same content, but not for a job that was replaced under its id.
        message = f"{job.id}-{only.generation}" if only.generation else job.id
        if worker.standing is AddressPolicy.CALLBACK:
            message = message_id(url, job.argument)
        kind = "" if bodiless else media.NAMES[language]
        return batch_request(sending, url, body, message, kind, accept="*/*", method=worker.method, more=headers)

    def judge(self, status: int) -> Judgement:
        if 200 <= status < 300:
            return Judgement.READ
        return Judgement.MISPLACED if status in MISPLACED else super().judge(status)

    def reader(self, sending: Sending, content_type: str, value_bytes_max: int, status: int = 200) -> Reader:
        (only,) = sending.held
        if sending.worker.standing is AddressPolicy.CALLBACK:
            return _Unread()
        follows = only.job.flow is not None and bool(only.job.flow.then_text)
        return _Body(bool(only.job.keep_result) or follows, content_type, value_bytes_max, status)


@dataclass(slots=True)
class _Body:
    """Reads a body that is the job's result; a `Reader`. Keeps at most `bytes_max`, and nothing if the result is not
    wanted."""

    wanted: bool
    content_type: str
    bytes_max: int
    status: int
    body: bytearray = field(default_factory=bytearray)
    size: int = 0
    is_decided: bool = True

    @property
    def held(self) -> int:
        return len(self.body)

    def is_costly(self, data: bytes) -> bool:
        """Return whether feeding `data` would decode much JSON, so that it belongs in a thread. Only the end of the
        body (empty `data`) can, as the body is decoded as a whole."""
        return not data and len(self.body) > READ_AT_ONCE_BYTES and media.language_of(self.content_type) == "json"

    def feed(self, data: bytes) -> Sequence[Answer]:
        if self.wanted:
            self.body += data[: self.bytes_max - len(self.body)]
        self.size += len(data)
        return ()

    def end(self) -> Sequence[Answer]:
        """Return the report of the job. Its result is the body, decoded by its type; if that fails, as text or bytes.
        An empty body gives nil; of one that is too large, only the size is reported."""
        if not self.wanted or not self.body:
            return [JobReport(None, Report(status=self.status))]
        if self.size > len(self.body):  # a body that was cut cannot be decoded
            return [JobReport(None, Report(status=self.status, result_bytes=self.size))]
        body, language, result = bytes(self.body), media.language_of(self.content_type), b""
        try:
            if language == "msgpack":
                result = bytes(_one_value(body))
            elif language is not None and len(body) > PIECE_BYTES:
                result = packed_of(body)
            elif language is not None:
                result = _encoder.encode(json_ext.read(body))
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            result = b""  # not of the type it claims; the bytes are the result all the same
        if not result:
            try:
                result = _encoder.encode(body.decode())
            except UnicodeDecodeError:
                result = _encoder.encode(body)
        return [JobReport(None, Report(status=self.status, result=result))]


class _Unread:
    """A `Reader` that ignores the body of the answer to a callback, whose status alone decides."""

    is_decided = True
    held = 0

    def is_costly(self, data: bytes) -> bool:
        return False

    def feed(self, data: bytes) -> Sequence[Answer]:
        return ()

    def end(self) -> Sequence[Answer]:
        return ()
