"""What a pushed job may look like: parsing and limits, pure and quick.

The good case costs one decode for the whole array and a few comparisons per job; the bytes then go to the journal as
they came. Only when something is wrong is the array looked at item by item, so that each bad job is named.
"""

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from jqd.api.config import ApiConfig
from jqd.api.message import DECODE_ERRORS, JSON_TYPES, MSGPACK_TYPES, NDJSON_TYPES, Request, unsupported
from jqd.api.problems import Problem
from jqd.job import (
    MAX_RETRY_MAX,
    NAME_LENGTH_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    TAG_LENGTH_MAX,
    TAGS_MAX,
    TIMEOUT_S_MAX,
)
from jqd.record import PushedJob

FIELDS = tuple(PushedJob.__struct_fields__)
NOT_YET = {
    "job_id": "a pusher's own job id is not supported yet; leave it out and keep the id that is answered",
    "replace": "replacing a job is not supported yet; cancel the old one and push anew",
    "then": "chained jobs are not supported yet; push the next job from the worker",
}
DATE_S_MAX = 253_402_300_799.0  # the last second of the year 9999, where calendars end

_jobs_decoder = msgspec.msgpack.Decoder(list[PushedJob])
_job_decoder = msgspec.msgpack.Decoder(PushedJob)
_items_decoder = msgspec.msgpack.Decoder(list[Raw])
_encoder = msgspec.msgpack.Encoder()
_UNKNOWN = re.compile(r"unknown field `(.*)`")
_WHERE = re.compile(r" - at `\$(.*)`$")


@dataclass(slots=True)
class Refusal:
    """Why one job of a batch is not taken."""

    index: int
    pointer: str
    detail: str


@dataclass(slots=True)
class Batch:
    """What a request pushes: the good jobs, in order, and why the others are refused."""

    single: bool
    size: int
    """Jobs in the request, good or bad."""
    array: bytes
    """The good ones as one MessagePack array."""
    jobs: list[PushedJob]
    refused: list[Refusal] = field(default_factory=list)


def parse_push(request: Request, config: ApiConfig) -> Batch:
    """Read the body of a push. Raises Problem when it is not understood as a whole."""
    data, single = _as_msgpack(request, config)
    if single and len(data) > config.job_bytes_max:
        raise Problem(413, f"the job has {len(data)} bytes; one job may have {config.job_bytes_max}")
    try:
        jobs = _jobs_decoder.decode(data)
    except DECODE_ERRORS:
        # Something is wrong: find out what, and with which job.
        return _item_by_item(data, single, config)
    _check_size(len(jobs), config)
    if all(_is_good(job, config) for job in jobs):
        return Batch(single, len(jobs), data, jobs)
    return _item_by_item(data, single, config)


def eligible_at_ms(job: PushedJob, now_ms: int) -> int:
    """The date before which a checked job must not start; 0 when it may start at once."""
    if job.delay is not None:
        return now_ms + round(job.delay * 1000) if job.delay else 0
    if job.run_at is None:
        return 0
    at_s = job.run_at if isinstance(job.run_at, (int, float)) else datetime.fromisoformat(job.run_at).timestamp()
    return max(0, round(at_s * 1000))


def _as_msgpack(request: Request, config: ApiConfig) -> tuple[bytes, bool]:
    """The jobs as one MessagePack array, and whether the request was a single map."""
    kind, body = request.media_type(), request.body
    try:
        if kind in MSGPACK_TYPES:
            if not body:
                raise Problem(400, "the body is empty; send one job (a map) or several (an array of maps)")
            head = body[0]
            if 0x90 <= head <= 0x9F or head in (0xDC, 0xDD):
                return body, False
            return b"\x91" + body, True
        if kind in JSON_TYPES:
            value = msgspec.json.decode(body)
            if isinstance(value, list):
                return _encoder.encode(value), False
            return _encoder.encode([value]), True
        if kind in NDJSON_TYPES:
            lines = [line for line in body.splitlines() if line.strip()]
            return _encoder.encode([msgspec.json.decode(line) for line in lines]), False
    except DECODE_ERRORS as error:
        raise Problem(400, f"the body is no {kind.partition('/')[2]}: {error}") from error
    raise unsupported(kind)


def _check_size(size: int, config: ApiConfig) -> None:
    if not 1 <= size <= config.array_jobs_max:
        raise Problem(
            413 if size else 400, f"an array of {size} jobs; send 1 to {config.array_jobs_max} in one request"
        )


def _item_by_item(data: bytes, single: bool, config: ApiConfig) -> Batch:
    try:
        items = _items_decoder.decode(data)
    except DECODE_ERRORS as error:
        raise Problem(400, f"the body is no MessagePack: {error}") from error
    _check_size(len(items), config)
    good: list[Raw] = []
    batch = Batch(single, len(items), b"", [])
    for index, item in enumerate(items):
        try:
            job = _job_decoder.decode(item)
        except DECODE_ERRORS as error:
            batch.refused.append(_refusal(index, str(error)))
            continue
        reasons = list(_faults(job, config))
        if reasons:
            batch.refused += [Refusal(index, pointer, detail) for pointer, detail in reasons]
        else:
            batch.jobs.append(job)
            good.append(item)
    batch.array = _encoder.encode(good)
    return batch


def _refusal(index: int, error: str) -> Refusal:
    unknown = _UNKNOWN.search(error)
    if unknown:
        name = unknown.group(1)
        detail = NOT_YET.get(name) or f"there is no field {name!r}" + _suggestion(name)
        return Refusal(index, f"/{name}", detail)
    where = _WHERE.search(error)
    pointer = where.group(1).replace(".", "/").replace("[", "/").replace("]", "") if where else ""
    missing = re.search(r"missing required field `(.*?)`", error)
    return Refusal(index, f"/{missing.group(1)}" if missing else pointer, _WHERE.sub("", error))


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, FIELDS, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; a job has {', '.join(FIELDS)}"


def _is_good(job: PushedJob, config: ApiConfig) -> bool:
    """The quick look: whether `_faults` would find nothing."""
    return (
        0 < len(job.name) <= NAME_LENGTH_MAX
        and job.name.isprintable()
        and PRIORITY_MIN <= job.priority <= PRIORITY_MAX
        and 0 <= job.max_retry <= MAX_RETRY_MAX
        and 0 < job.timeout <= TIMEOUT_S_MAX
        and job.job_id is None
        and not job.replace
        and job.run_at is None
        and job.delay is None
        and not job.tags
        and len(memoryview(job.argument)) <= config.job_bytes_max
    )


def _faults(job: PushedJob, config: ApiConfig) -> Sequence[tuple[str, str]]:
    """All that is wrong with a job of the right shape: (pointer, what and why)."""
    found: list[tuple[str, str]] = []

    def need(holds: bool, pointer: str, detail: str) -> None:
        if not holds:
            found.append((pointer, detail))

    length = len(job.name)
    need(0 < length <= NAME_LENGTH_MAX, "/name", f"a name has 1 to {NAME_LENGTH_MAX} characters, this one {length}")
    need(job.name.isprintable(), "/name", "a name has printable characters only")
    need(
        PRIORITY_MIN <= job.priority <= PRIORITY_MAX,
        "/priority",
        f"a priority is a 32-bit integer, {PRIORITY_MIN} to {PRIORITY_MAX}; this is {job.priority}",
    )
    need(0 <= job.max_retry <= MAX_RETRY_MAX, "/max_retry", f"max_retry is 0 to {MAX_RETRY_MAX}, not {job.max_retry}")
    need(
        0 < job.timeout <= TIMEOUT_S_MAX,
        "/timeout",
        f"a timeout is above 0 and at most {TIMEOUT_S_MAX:.0f} seconds, not {job.timeout}",
    )
    need(job.job_id is None, "/job_id", NOT_YET["job_id"])
    need(not job.replace, "/replace", NOT_YET["replace"])
    need(job.run_at is None or job.delay is None, "/delay", "run_at and delay exclude each other; give one of them")
    need(
        job.delay is None or 0 <= job.delay <= DATE_S_MAX / 10,
        "/delay",
        f"a delay is 0 or more seconds, not {job.delay}",
    )
    if job.run_at is not None and (fault := _date_fault(job.run_at)):
        found.append(("/run_at", fault))
    need(len(job.tags) <= TAGS_MAX, "/tags", f"a job has at most {TAGS_MAX} tags, this one {len(job.tags)}")
    for index, tag in enumerate(job.tags):
        good = 0 < len(tag) <= TAG_LENGTH_MAX and tag.isprintable()
        need(good, f"/tags/{index}", f"a tag has 1 to {TAG_LENGTH_MAX} printable characters")
    size = len(memoryview(job.argument))
    need(size <= config.job_bytes_max, "/argument", f"{size} bytes; an argument may have {config.job_bytes_max}")
    return found


def _date_fault(run_at: Any) -> str | None:
    if isinstance(run_at, (int, float)):
        return None if math.isfinite(run_at) and 0 <= run_at <= DATE_S_MAX else f"{run_at} is no date in Unix seconds"
    try:
        date = datetime.fromisoformat(run_at)
    except ValueError:
        return f"{run_at[:64]!r} is no ISO 8601 date, for example 2030-01-31T08:00:00Z"
    return None if date.tzinfo else f"{run_at!r} has no time zone; add Z or an offset like +09:00"
