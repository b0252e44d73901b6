"""LightJQ workers: one job a request, taken with a 2xx and reported later by `POST /done`; docs/use/WORKERS.md.

    job       POST <worker url>/worker-job   {id, job_id, name, argument, timeout}

Both ids are the daemon's id of the job, because the original schema names one and requires the other. Cancels are not
sent.
"""

import math

import msgspec
from msgspec import Raw

from jqd.domain import media
from jqd.domain.job import Held
from jqd.domain.tenant import bare
from jqd.runner.protocols.protocol import Judgement, Reader, Request, Sending, WorkerProtocol, batch_request
from jqd.runner.protocols.stream import AnswerReader
from jqd.runner.worker import Worker

_encoder = msgspec.msgpack.Encoder()


class _Job(msgspec.Struct, gc=False):
    id: str
    job_id: str
    name: str
    argument: Raw
    timeout: int


class LightJQ(WorkerProtocol):
    single = True

    def copies(self, worker: Worker) -> bool:
        return True

    def request(self, sending: Sending) -> Request:
        (only,) = sending.held
        url = sending.url.rstrip("/") + "/worker-job"
        return batch_request(sending, url, encode_job(only), only.job.id, media.MSGPACK)

    def judge(self, status: int) -> Judgement:
        """Return what an HTTP status means for the job; a 404 means that the worker does not know the jobtype."""
        if status == 404:
            return Judgement.NOT_TAKEN
        return Judgement.LATER if 200 <= status < 300 else super().judge(status)

    def reader(self, sending: Sending, content_type: str, value_bytes_max: int, status: int = 200) -> Reader:
        return AnswerReader(content_type, value_bytes_max=value_bytes_max, values_max=1)


def encode_job(held: Held) -> bytes:
    """Return the body of one request. The timeout is rounded up to whole seconds, so that the worker's ends after the
    daemon's."""
    job = held.job
    return _encoder.encode(_Job(job.id, job.id, bare(job.jobtype), Raw(job.argument), math.ceil(job.timeout)))
