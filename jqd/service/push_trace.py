"""The trace of a request goes on with its jobs: who pushes by an instrumented HTTP client sends it as a header."""

import re

import msgspec
from msgspec import Raw, structs

from jqd.service.batch import Batch

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_items_decoder = msgspec.msgpack.Decoder(list[dict[str, Raw]])
_encoder = msgspec.msgpack.Encoder()


def with_trace(batch: Batch, given: str) -> Batch:
    """Give a header's trace to the jobs that name none. What is no traceparent is passed over, as the specification
    has it: it must not fail a request."""
    if _TRACEPARENT.fullmatch(given) is None or not any(job.traceparent is None for job in batch.jobs):
        return batch
    packed = Raw(_encoder.encode(given))
    items = [{"traceparent": packed, **item} for item in _items_decoder.decode(batch.array)]
    jobs = [job if job.traceparent else structs.replace(job, traceparent=given) for job in batch.jobs]
    return structs.replace(batch, array=_encoder.encode(items), jobs=jobs)
