"""Encodes and decodes the bodies of journal frames. docs/build/JOURNAL.md draws the frame around them.

A frame has the whole batch of one request. Pushed jobs are written as they came. They are decoded once to check them;
their arguments are never decoded or encoded.

    jobs      [ {first, at, …}, [ {name, argument, …}, … ] ]     one map per job, as pushed; see Head
    outcomes  [ [job_id, fence, fate, …], … ]                    see job.Outcome: ends of attempts, and hand-overs;
              jobs that follow a success are part of it: followers.py
    cancels   [ "job_id" or "job_id@generation", … ]             see cancel_of
    changes   like jobs; each of them is in the head's `changes`
    rules     [ [kind, name, revision, at_ms, body], … ]         see settings.Setting
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from jqd.domain.array_split import MALFORMED, Steps, array_of, cut, skipped
from jqd.domain.errors import JournalDamaged
from jqd.domain.flow import BLOCKED_MS, Flow, as_array, as_text, unique_key
from jqd.domain.job import Change, ChangeKind, Job, Outcome
from jqd.domain.job_spec import (
    FOLLOWER_DIGEST,
    NOTHING,
    JobOptions,
    JobRecord,
    content_digest,
    date_digest,
    keyed_digest,
)
from jqd.domain.jobid import IdRange, is_id, is_made, made_id
from jqd.domain.settings import Setting
from jqd.domain.tenant import Tenant, annotate, bare

T = TypeVar("T")


class Lane(enum.IntEnum):
    """The kinds of journal frames; the frames of one kind form a lane. The store applies each lane separately, so an
    outcome never waits until a million new jobs are applied."""

    JOBS = 1
    OUTCOMES = 2
    CANCELS = 3
    CHANGES = 4
    """Whole jobs with a revision from the store: pushes under pushers' own ids, replacements, edits, retries. They have
    a lane of their own, so that an older content does not start before a newer one is applied (docs/adr/0010)."""
    RULES = 5
    """Settings, such as registrations (docs/adr/0028). All partitions get all settings."""


CARRIED = frozenset({Lane.JOBS, Lane.CHANGES})  # lanes of whole jobs, which retention copies to the journal's end
WITH_JOBS = (Lane.JOBS, Lane.CHANGES, Lane.OUTCOMES)  # lanes whose frames may contain jobs: outcomes have followers
ENDINGS = (Lane.CANCELS, Lane.OUTCOMES)


_PAIR = b"\x92"  # MessagePack: the first byte of an array of two


class Head(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The head of a frame of jobs: what the daemon adds to a pushed batch."""

    first: str
    """Id of the first job; the other jobs have the ids after it. Empty: all jobs are followers, whose ids are made from
    their names."""
    at: int
    """When the batch was taken (Unix ms): `delay` counts from here."""
    eligible: dict[int, int] = {}
    """Index in the batch → date (Unix ms) before which the job must not start, for jobs with `run_at` or `delay`."""
    changes: dict[int, tuple[str, int, int, ChangeKind]] = {}
    """Index in the batch → (id, revision, generation, kind of change), for jobs with a revision from the store. For
    these jobs this id counts, not the one by sequence."""
    homes: str = ""
    """The last character of each id by sequence; empty if all end like the first one (jobid.py)."""
    life: str = ""
    """Id of a store's life (from one loss of its data to the next). For an edit or a retry: the life in which the job
    was there. For pushes by a schedule: the life in which the jobs' names were reserved. Empty for other pushes."""
    options: list[tuple[JobOptions, list[int]]] = []
    """Default options in force when the batch was taken, each with the indexes of the jobs that it is for (none: all
    jobs). They are not written into the jobs, whose digests must not depend on them."""
    copied: tuple[int, int] | None = None
    """Only if retention copied these jobs: (original position of the first job, position from which it was copied).
    Each further job has both numbers larger by one."""
    request: str = ""
    """For jobs under an Idempotency-Key: the digest of the whole request, from which the jobs' digests are made."""
    tenant: Tenant = ""
    """The tenant of the jobs. Jobtypes and own ids in the frame do not contain it."""
    released: dict[int, str] = {}
    """Index in the batch → "" or why the job is to fail (`Flow.failed`), for jobs that no longer wait for parents."""


class _Jobs(msgspec.Struct, Generic[T], frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    head: Head
    jobs: list[T]


class _Named(msgspec.Struct, frozen=True, gc=False):
    job_id: str = ""


_encoder = msgspec.msgpack.Encoder()
_named_decoder = msgspec.msgpack.Decoder(_Named)
_records_decoder = msgspec.msgpack.Decoder(list[JobRecord])
_head_decoder = msgspec.msgpack.Decoder(Head)
_jobs_decoder = msgspec.msgpack.Decoder(_Jobs[JobRecord])
_jobs_raw_decoder = msgspec.msgpack.Decoder(_Jobs[Raw])
_outcomes_decoder = msgspec.msgpack.Decoder(list[Outcome])
_cancels_decoder = msgspec.msgpack.Decoder(list[str])
_rules_decoder = msgspec.msgpack.Decoder(list[Setting])


def encode_jobs(head: Head, jobs: bytes) -> bytes:
    """Return the body of a frame of jobs. `jobs`: a MessagePack array of job maps, which is copied as it is."""
    return _encoder.encode((head, Raw(jobs)))


def decode_jobs(body: bytes) -> list[Job]:
    """Decode the jobs of a frame, in order.

    Raises JournalDamaged if the frame cannot be decoded although its checksum is good.
    """
    read = _decode(_jobs_decoder, body, "a jobs")
    head, records = read.head, read.jobs
    if len(records) == 1 and head == Head(head.first, head.at) and is_id(head.first):
        # A quick way for a job that was pushed alone: a journal may have a million such frames.
        return _jobs(head, [head.first], records, [])
    ids = _ids(head, records)
    # Before the options are filled in: digests are of the content as it was pushed.
    changes = _changes(head, records)
    _annotate(records, head.tenant)
    for options, places in head.options:
        _give(records, places or range(len(records)), options)
    return _jobs(head, ids, records, changes)


def decode_in_pieces(body: bytes) -> Steps[list[Job]]:
    """Decode the jobs of a large frame, in order, in short steps between which other tasks may run. Raises
    JournalDamaged if the frame cannot be decoded although its checksum is good."""
    try:
        head, begin = _open(body)
        pieces = yield from cut(body, begin)
    except (*MALFORMED, JournalDamaged):
        return decode_jobs(body)  # raises the error for it
    records, changes, jobs = list[JobRecord](), list[Change | None](), list[Job]()
    for piece in pieces:
        some = _decode(_records_decoder, array_of(body, piece), "a jobs")
        changes += _changes(head, some, len(records))
        _annotate(some, head.tenant)
        records += some
        yield
    ids = _ids(head, records)
    for options, places in head.options:
        _give(records, places or range(len(records)), options)
        yield
    for piece in pieces:
        first = len(jobs)
        part = slice(first, first + piece.items)
        jobs += _jobs(head, ids[part], records[part], changes[part], first)
        yield
    return jobs


def _open(body: bytes) -> tuple[Head, int]:
    """Decode the head of a frame. Returns the head, and the byte at which the array of jobs begins. Raises MALFORMED,
    JournalDamaged."""
    if not body.startswith(_PAIR):
        raise JournalDamaged("it begins as no jobs frame does")
    (begin,) = skipped(body, 1, 1)
    return _decode(_head_decoder, body[1:begin], "a jobs"), begin


def _jobs(
    head: Head, ids: Sequence[str], records: Sequence[JobRecord], changes: Sequence[Change | None], first: int = 0
) -> list[Job]:
    """Make the `Job` objects of a frame, or of a part of it. `first`: the index in the frame of the part's first
    job."""
    eligible, copied = head.eligible, head.copied
    flows = [_flow(head, index, job) if _is_linked(job) else None for index, job in enumerate(records, first)]
    return [
        Job(
            job_id,
            job.name,
            bytes(job.argument),
            created_at_ms=head.at,
            eligible_at_ms=BLOCKED_MS
            if flow is not None and flow.is_blocked
            else eligible.get(index, 0)
            if eligible
            else 0,
            name=job.job_id or "",
            tags=job.tags,
            change=changes[index - first] if changes else None,
            copied=(copied[0] + index, copied[1] + index) if copied else None,
            expires_at_ms=0
            if job.expires_in is None
            else expires_at_ms(job.expires_in, max(head.at, eligible.get(index, 0))),
            priority=job.priority,
            max_retry=job.max_retry,
            keep_result=job.keep_result,
            timeout=job.timeout,
            backoff=job.backoff,
            flow=flow,
            traceparent=job.traceparent or "",
        )
        for index, (job_id, job, flow) in enumerate(zip(ids, records, flows, strict=True), first)
    ]


def _is_linked(job: JobRecord) -> bool:
    has_then = job.then is not NOTHING and len(job.then) > 1
    return bool(has_then or job.after or job.group or job.unique or job.parent or job.callback)


def _flow(head: Head, index: int, job: JobRecord) -> Flow:
    names = partial(annotate, head.tenant) if head.tenant else str
    return Flow(
        as_text(as_array(bytes(job.then))),
        job.result_into or "",
        tuple(parent if is_id(parent) else names(parent) for parent in job.after) if job.after else (),
        job.on_parent_failure,
        names(job.group) if job.group else "",
        unique_key(names(job.name), job.unique) if job.unique else "",
        job.while_,
        job.parent or "",
        job.callback or "",
        head.eligible.get(index, 0) if job.after else 0,
        index in head.released,
        head.released.get(index, ""),
        job.one_result,
    )


def job_ids(body: bytes) -> list[str]:
    """Return the ids of a frame of jobs, in order. Raises JournalDamaged."""
    return read_jobs(body)[2]


def read_jobs(body: bytes) -> tuple[Head, list[Raw], list[str]]:
    """Return the head of a frame, its jobs as they were pushed, and their ids. Raises JournalDamaged."""
    read = _decode(_jobs_raw_decoder, body, "a jobs")
    return read.head, read.jobs, _ids(read.head, read.jobs)


def _decode(decoder: "msgspec.msgpack.Decoder[T]", body: bytes, what: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        raise JournalDamaged(f"{what} frame with a good checksum cannot be decoded: {error}") from error


def expires_at_ms(expires_in_s: float | None, begins_ms: int) -> int:
    """Return when a job expires (Unix ms): `expires_in_s` seconds after `begins_ms`, its earliest start. 0 (never) if
    `expires_in_s` is None."""
    return 0 if expires_in_s is None else begins_ms + max(1, round(expires_in_s * 1000))


def _give(records: Sequence[JobRecord], places: Iterable[int], options: JobOptions) -> None:
    given = list(options.given())
    for index in places:
        if not 0 <= index < len(records):
            raise JournalDamaged("a jobs frame with a good checksum has options of a job that it has not")
        for field, value in given:
            setattr(records[index], field, value)


def _annotate(records: Iterable[JobRecord], tenant: str) -> None:
    if not tenant:
        return
    for record in records:
        record.name = annotate(tenant, record.name)
        record.job_id = annotate(tenant, record.job_id) if record.job_id else None


def _ids(head: Head, records: Sequence[Any]) -> list[str]:
    size = len(records)
    if not head.first:
        return _made_ids(records)
    ids = IdRange(head.first, size, head.homes)
    if not ids.fits():
        raise JournalDamaged(f"a jobs frame with a good checksum gives ids that cannot be: {head.first[:32]!r}")
    names = ids.ids()
    for index, (job_id, *_) in head.changes.items():
        if not 0 <= index < size or not is_id(job_id):
            raise JournalDamaged(f"a jobs frame with a good checksum changes a job that cannot be: {job_id[:32]!r}")
        names[index] = job_id
    return names


def _made_ids(records: Sequence[Any]) -> list[str]:
    jobs = (_decode(_named_decoder, each, "a jobs") if isinstance(each, Raw) else each for each in records)
    names = [bare(job.job_id or "") for job in jobs]
    if odd := [name for name in names if not is_made(name)]:
        raise JournalDamaged(f"a jobs frame with a good checksum has no id for a job that is named {odd[0][:32]!r}")
    return [made_id(name) for name in names]


def _changes(head: Head, records: Iterable[JobRecord], first: int = 0) -> list[Change | None]:
    return [_change(head, index, job) for index, job in enumerate(records, first)] if head.changes else []


def _change(head: Head, index: int, job: JobRecord) -> Change | None:
    if index not in head.changes:
        return None
    _, revision, generation, kind = head.changes[index]
    pushed = kind in (ChangeKind.NEW, ChangeKind.REPLACE)
    if pushed and head.life:  # by a schedule
        return Change(revision, generation, kind, date_digest(job.job_id or ""), head.life)
    if pushed and head.request:
        return Change(revision, generation, kind, keyed_digest(job.job_id or "", head.request))
    if pushed and job.parent is not None and is_made(job.job_id or ""):
        return Change(revision, generation, kind, FOLLOWER_DIGEST, head.life)
    return Change(revision, generation, kind, content_digest(job) if pushed else "", head.life)


def cancel_of(job_id: str, generation: int) -> str:
    """Return the record of a cancel. It applies to contents of the job up to `generation`; with 0, only to the content
    that was pushed first."""
    return f"{job_id}@{generation}" if generation else job_id


def only_generation(generation: int) -> int:
    """Return the number to write into a cancel that must not cancel a later version of the job, such as a cancel
    because a parent failed. `generation`: the number of the version to cancel, 0 for the job as it was pushed first;
    a replacement has a greater one.

    That is the version's own number, or 1 for 0, as no version has the number 1. Other cancels have 0, or a number
    above the version's, so readers can tell them apart.
    """
    return max(generation, 1)


def split_cancel(record: str) -> tuple[str, int]:
    """Split the record of a cancel into job id and generation. Raises ValueError if it is malformed."""
    job_id, _, generation = record.partition("@")
    return job_id, int(generation or 0)


def encode_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    return _encoder.encode(outcomes)


def decode_outcomes(body: bytes) -> list[Outcome]:
    return _decode(_outcomes_decoder, body, "an outcomes")


def encode_cancels(job_ids: Sequence[str]) -> bytes:
    """Encode records of cancels, which `cancel_of` made."""
    return _encoder.encode(job_ids)


def decode_cancels(body: bytes) -> list[str]:
    return _decode(_cancels_decoder, body, "a cancels")


def encode_rules(settings: Sequence[Setting]) -> bytes:
    return _encoder.encode(settings)


def decode_rules(body: bytes) -> list[Setting]:
    """Decode the settings of a frame. Raises JournalDamaged."""
    return _decode(_rules_decoder, body, "a rules")


DECODERS: Mapping[Lane, Callable[[bytes], Sequence[Any]]] = {
    Lane.CANCELS: decode_cancels,
    Lane.OUTCOMES: decode_outcomes,
    Lane.CHANGES: decode_jobs,
    Lane.JOBS: decode_jobs,
    Lane.RULES: decode_rules,
}
"""Lane → the function that decodes its frames."""
