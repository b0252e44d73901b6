"""A job as its pusher wrote it, as frames of the journal have it, and what tells one content from another."""

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import Raw, structs

from jqd.domain.job import NIL, Keep


class JobRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False, omit_defaults=True):
    """A job of a `jobs` frame, with the defaults that stand there for what its pusher left out. A format (JOURNAL.md).

    Its limits are checked before it is journaled (`service/job.py`); `run_at` and `delay` are resolved in the head.
    """

    name: str
    argument: Raw = Raw(NIL)
    priority: int = 0
    max_retry: int = 5
    keep_result: Keep = False
    timeout: float = 30.0
    job_id: str | None = None
    run_at: str | float | None = None
    delay: float | None = None
    replace: bool = False
    tags: tuple[str, ...] = ()
    backoff: float | tuple[float, ...] = ()
    expires_in: float | None = None


_encoder = msgspec.msgpack.Encoder()
_record_decoder = msgspec.msgpack.Decoder(JobRecord)
_records_decoder = msgspec.msgpack.Decoder(list[JobRecord])


def content_digest(job: JobRecord) -> str:
    """32 hexadecimal digits that tell what was pushed under a chosen id from anything else that may be.

    An option that is left out is one that says its default. Whether the result is kept is not of the content: a
    function that declares it is pushed by others without.
    """
    content = _encoder.encode(structs.astuple(structs.replace(job, replace=False, keep_result=False)))
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def date_digest(job_id: str) -> str:
    """In its place for the job of a schedule's date: the same whatever was said of the schedule meanwhile, for of two
    daemons that fire the date one may not have heard of that yet, and it is one job."""
    return hashlib.blake2b(job_id.encode(), digest_size=16, person=b"date").hexdigest()


def keyed_digest(job_id: str, request: str) -> str:
    """In its place for a job under an Idempotency-Key: the same as long as all of its request is."""
    return hashlib.blake2b(f"{job_id} {request}".encode(), digest_size=16, person=b"request").hexdigest()


def request_digest(jobs: bytes, shape: Sequence[int]) -> str:
    """32 hexadecimal digits that tell a whole request from any other. `jobs`: a MessagePack array, as pushed; `shape`:
    numbers that say how they came."""
    content = _encoder.encode([shape, [structs.astuple(job) for job in _records_decoder.decode(jobs)]])
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def digest_of(job: Raw) -> str:
    """The same of a job as it will stand in a frame: what is pushed again is compared with what the journal told."""
    return content_digest(_record_decoder.decode(job))
