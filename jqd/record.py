"""The bodies of journal frames: what was acknowledged, as bytes. docs/JOURNAL.md draws the frame around them.

One frame carries one request's whole batch. Pushed jobs go to disk as they came in: the envelope is decoded once, to
refuse what is wrong, and an argument is never decoded nor encoded again.

    jobs      [ {first, at, tenant}, [ {name, argument, …}, … ] ]     one map per job, as pushed
    outcomes  [ [job_id, fence, fate, …], … ]                         see job.Outcome
    cancels   [ job_id, … ]
"""

import enum
import itertools
from collections.abc import Collection, Iterator, Sequence

import msgspec
from msgspec import Raw

from jqd.errors import JournalDamaged
from jqd.job import NIL, Job, Outcome
from jqd.jobid import IdRange


class Lane(enum.IntEnum):
    """What a frame holds. Each lane has its own read point, so an outcome never waits behind a million new jobs."""

    JOBS = 1
    OUTCOMES = 2
    CANCELS = 3


class PushedJob(msgspec.Struct, forbid_unknown_fields=True, gc=False, omit_defaults=True):
    """A job as its pusher wrote it (`interfaces.md` 2). Limits are checked at the edge, before the journal sees it."""

    name: str
    argument: Raw = Raw(NIL)
    priority: int = 0
    max_retry: int = 5
    keep_result: bool = False
    timeout: float = 30.0
    job_id: str | None = None
    run_at: str | float | None = None
    delay: float | None = None
    replace: bool = False
    tags: tuple[str, ...] = ()


class Head(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the daemon adds to a pushed batch."""

    first: str
    """Id of the first job; the others follow in sequence."""
    at: int
    """When the batch was taken, ms since 1970: `delay` counts from here."""
    eligible: dict[int, int] = {}
    """Index in the batch → ms since 1970, for jobs with `run_at` or `delay`, resolved once at the edge."""


class _JobsBody(msgspec.Struct, frozen=True, array_like=True, gc=False):
    head: Head
    jobs: Raw


class _JobsRaw(msgspec.Struct, frozen=True, array_like=True, gc=False):
    head: Head
    jobs: list[Raw]


class _JobsRead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    head: Head
    jobs: list[PushedJob]


_encoder = msgspec.msgpack.Encoder()
_jobs_decoder = msgspec.msgpack.Decoder(_JobsRead)
_jobs_raw_decoder = msgspec.msgpack.Decoder(_JobsRaw)
_outcomes_decoder = msgspec.msgpack.Decoder(list[Outcome])
_cancels_decoder = msgspec.msgpack.Decoder(list[str])


def encode_jobs(head: Head, jobs: bytes) -> bytes:
    """The body of a `jobs` frame. `jobs` is a MessagePack array of job maps, copied as it stands."""
    return _encoder.encode(_JobsBody(head, Raw(jobs)))


def decode_jobs(body: bytes) -> list[Job]:
    """All jobs of a `jobs` frame, in order.

    Raises JournalDamaged when the checksum held but the content is not ours to read.
    """
    try:
        read = _jobs_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise JournalDamaged(f"a jobs frame with a good checksum cannot be decoded: {error}") from error
    head = read.head
    ids = _ids(head, len(read.jobs))
    eligible = head.eligible
    return [
        Job(
            job_id,
            job.name,
            bytes(job.argument),
            job.priority,
            job.max_retry,
            job.timeout,
            job.keep_result,
            head.at,
            eligible.get(index, 0) if eligible else 0,
            job.job_id or "",
            job.tags,
        )
        for index, (job_id, job) in enumerate(zip(ids, read.jobs, strict=True))
    ]


def job_ids(body: bytes) -> list[str]:
    """The ids of a `jobs` frame, in order. Raises JournalDamaged as `decode_jobs` does."""
    read = _read_raw(body)
    return _ids(read.head, len(read.jobs))


def carry_jobs(body: bytes, keep: Collection[str]) -> Iterator[tuple[int, bytes]]:
    """The jobs of a frame whose ids are in `keep`, as (records, body) of new frames, byte for byte as they were pushed.

    One frame for each run of neighbours, because a frame names its first id only. Raises JournalDamaged.
    """
    read = _read_raw(body)
    head = read.head
    ids = _ids(head, len(read.jobs))
    kept = (index for index, job_id in enumerate(ids) if job_id in keep)
    # Neighbours have the same distance between their place in the frame and their place among the kept.
    for _, run in itertools.groupby(enumerate(kept), key=lambda pair: pair[1] - pair[0]):
        indexes = [index for _, index in run]
        first = indexes[0]
        eligible = {index - first: head.eligible[index] for index in indexes if index in head.eligible}
        jobs = _encoder.encode(read.jobs[first : indexes[-1] + 1])
        yield len(indexes), encode_jobs(Head(ids[first], head.at, eligible), jobs)


def _read_raw(body: bytes) -> _JobsRaw:
    try:
        return _jobs_raw_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise JournalDamaged(f"a jobs frame with a good checksum cannot be decoded: {error}") from error


def _ids(head: Head, size: int) -> list[str]:
    ids = IdRange(head.first, size)
    if not ids.fits():
        raise JournalDamaged(f"a jobs frame with a good checksum gives ids that cannot be: {head.first[:32]!r}")
    return ids.ids()


def encode_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    """The body of an `outcomes` frame."""
    return _encoder.encode(outcomes)


def decode_outcomes(body: bytes) -> list[Outcome]:
    """The outcomes of a frame. Raises JournalDamaged as `decode_jobs` does."""
    try:
        return _outcomes_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise JournalDamaged(f"an outcomes frame with a good checksum cannot be decoded: {error}") from error


def encode_cancels(job_ids: Sequence[str]) -> bytes:
    """The body of a `cancels` frame."""
    return _encoder.encode(job_ids)


def decode_cancels(body: bytes) -> list[str]:
    """The ids of a frame. Raises JournalDamaged as `decode_jobs` does."""
    try:
        return _cancels_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise JournalDamaged(f"a cancels frame with a good checksum cannot be decoded: {error}") from error
