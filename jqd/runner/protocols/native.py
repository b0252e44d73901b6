"""Native workers: a batch of jobs in one request, a stream of outcomes in its answer; docs/use/WORKERS.md.

    batch     {batch_id, jobs: [{job_id, id, name, argument, attempt, max_retry, timeout, keep_result, …}, …]}
    outcome   see `outcome.py`
    cancel    DELETE <worker url>?job_id=…, with the header JQD-Batch-Id of the batch that it came in

In MessagePack, arguments are copied without decoding. In JSON, values that JSON lacks are written as in
`domain/json_ext.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw

from jqd.domain import json_ext, media
from jqd.domain.dates import iso
from jqd.domain.job import Held
from jqd.domain.tenant import bare
from jqd.runner.protocols.protocol import (
    BATCH_ID,
    Reader,
    Request,
    Sending,
    WorkerProtocol,
    batch_request,
    lasting_of,
    trace_of,
)
from jqd.runner.protocols.stream import AnswerReader
from jqd.runner.worker import Format, Worker

VALUES_PER_JOB = 4  # in an answer: a `started` and an outcome, each twice
VALUES_MORE = 64  # beside these: about unknown jobs, and arrays around all

_encode: dict[Format, Callable[[Any], bytes]] = {
    "msgpack": msgspec.msgpack.Encoder().encode,
    "json": msgspec.json.Encoder().encode,
}


class BatchJob(msgspec.Struct, gc=False):
    """One job as it is sent to a worker."""

    job_id: str
    id: str
    name: str
    argument: Raw
    attempt: int
    max_retry: int
    timeout: float
    keep_result: bool
    created_at: str
    deadline: str
    trace: str


class _Batch(msgspec.Struct, gc=False):
    batch_id: str
    jobs: list[BatchJob]


class Native(WorkerProtocol):
    def copies(self, worker: Worker) -> bool:
        return worker.language != "json"

    def request(self, sending: Sending) -> Request:
        language = sending.worker.language or "msgpack"
        body = encode_batch(sending.batch_id, sending.held, sending.sent_at_ms, language)
        return batch_request(sending, sending.url, body, sending.batch_id, media.NAMES[language])

    def reader(self, sending: Sending, content_type: str, value_bytes_max: int, status: int = 200) -> Reader:
        values_max = VALUES_PER_JOB * len(sending.held) + VALUES_MORE
        return AnswerReader(content_type, value_bytes_max=value_bytes_max, values_max=values_max, status=status)

    def cancel(self, sending: Sending, job_id: str) -> Request | None:
        url = f"{sending.url}?job_id={quote(job_id, safe='')}"
        headers, own = [(BATCH_ID, sending.batch_id)], tuple(sending.worker.headers.items())
        return Request("DELETE", url, headers, message=f"{job_id}-cancel", lasting=lasting_of(sending.daemon, own=own))


class _Dates(dict[int, str]):
    """Converts milliseconds to ISO text and remembers it: jobs of a batch were often pushed at the same time."""

    def __missing__(self, at_ms: int) -> str:
        self[at_ms] = text = iso(at_ms)
        return text


def encode_batch(batch_id: str, held: Sequence[Held], sent_at_ms: int, language: Format = "msgpack") -> bytes:
    return _encode[language](_Batch(batch_id, batch_jobs(held, sent_at_ms, language)))


def batch_jobs(held: Sequence[Held], sent_at_ms: int, language: Format = "msgpack") -> list[BatchJob]:
    """Return jobs in the form in which they are sent to a worker. `language`: the format of their arguments."""
    dates = _Dates()
    names = {jobtype: bare(jobtype) for jobtype in {h.job.jobtype for h in held}}
    return [
        BatchJob(
            h.job.id,
            h.job.id,
            names[h.job.jobtype],
            Raw(h.job.argument if language == "msgpack" else json_ext.json_of(h.job.argument)),
            h.attempt,
            h.job.max_retry,
            h.job.timeout,
            bool(h.job.keep_result) or h.job.flow is not None,
            dates[h.job.created_at_ms],
            dates[sent_at_ms + round(h.job.timeout * 1000)],
            trace_of(h),
        )
        for h in held
    ]
