"""The body of a push → the jobs to take and the reasons against the others. Pure.

The good case costs one decode for the whole array and a few comparisons per job; the bytes then go to the journal as
they came. Only when something is wrong is the array looked at item by item, so that each bad job is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw

from jqd.api.config import ApiConfig
from jqd.api.items import json_items, json_lines, msgpack_items
from jqd.api.message import DECODE_ERRORS, Request, unsupported
from jqd.api.nesting import NESTING_MAX, nests_deeper
from jqd.api.problems import Problem
from jqd.api.schema import DETAIL_LENGTH_MAX, FIELDS, explain, faults, longest_if_good
from jqd.words import tagged
from jqd.words.media import JSON_TYPES, MSGPACK_TYPES, NDJSON_TYPES
from jqd.words.record import PushedJob

LEVELS_MAX = NESTING_MAX + 2  # the array and the job's map stand around an argument
TOO_DEEP = f"an argument nests deeper than {NESTING_MAX} levels; nothing was taken"

_jobs_decoder = msgspec.msgpack.Decoder(list[PushedJob])
_job_decoder = msgspec.msgpack.Decoder(PushedJob)
_items_decoder = msgspec.msgpack.Decoder(list[Raw])
_encoder = msgspec.msgpack.Encoder()


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
    """Read the body of a push. Raises Problem when it is not understood as a whole: 400, 413, 415."""
    kind, body = request.media_type(), request.body
    if kind in MSGPACK_TYPES:
        single = not _begins_array(body)
        return parse_array(b"\x91" + body if single else body, single, config)
    if kind in JSON_TYPES or kind in NDJSON_TYPES:
        return _parse_json(kind, body, config)
    raise unsupported(kind)


def parse_array(data: bytes, single: bool, config: ApiConfig) -> Batch:
    """Check a MessagePack array of jobs. `single`: its one job came alone. Raises Problem 400, 413."""
    if len(data) == single:
        raise Problem(400, "the body is empty; send one job (a map) or several (an array of maps)")
    _check_bytes(len(data) - single, single, config)
    size = msgpack_items(data)
    if size is not None and size > len(data):
        raise Problem(400, f"the body is no MessagePack: it announces {size} jobs, and ends before that")
    _check_size(size, config)
    try:
        jobs = _jobs_decoder.decode(data)
    except DECODE_ERRORS:
        # Something is wrong: find out what, and with which job.
        return _item_by_item(data, single, config)
    longest = longest_if_good(jobs, config.job_bytes_max)
    if longest is None:
        return _item_by_item(data, single, config)
    if longest > NESTING_MAX and nests_deeper(data, LEVELS_MAX):
        raise Problem(400, TOO_DEEP)
    return Batch(single, len(jobs), data, jobs)


def _begins_array(body: bytes) -> bool:
    return bool(body) and (0x90 <= body[0] <= 0x9F or body[0] in (0xDC, 0xDD))


def _check_bytes(size: int, single: bool, config: ApiConfig) -> None:
    limit = config.job_bytes_max if single else config.array_bytes_max
    if size > limit:
        what = "one job has" if single else "an array of jobs has"
        raise Problem(413, f"{what} at most {limit} bytes, this one {size}")


def _check_size(size: int | None, config: ApiConfig) -> None:
    """`size`: None when it is not known, for what comes is no array."""
    if size is None:
        return
    if size == 0:
        raise Problem(400, "the array is empty; send at least one job")
    if size > config.array_jobs_max:
        raise Problem(413, f"more than {config.array_jobs_max} jobs in one request; send them in several")


def _item_by_item(data: bytes, single: bool, config: ApiConfig) -> Batch:
    try:
        items = _items_decoder.decode(data)
    except RecursionError as error:
        raise Problem(400, TOO_DEEP) from error
    except DECODE_ERRORS as error:
        raise Problem(400, f"the body is no MessagePack: {str(error)[:DETAIL_LENGTH_MAX]}") from error
    if nests_deeper(data, LEVELS_MAX):
        raise Problem(400, TOO_DEEP)
    batch = Batch(single, len(items), b"", [])
    good: list[Raw] = []
    for index, item in enumerate(items):
        try:
            job = _job_decoder.decode(item)
        except DECODE_ERRORS as error:
            batch.refused.append(Refusal(index, *explain(str(error), FIELDS)))
            continue
        found = faults(job, config.job_bytes_max)
        batch.refused += [Refusal(index, *fault) for fault in found]
        if not found:
            batch.jobs.append(job)
            good.append(item)
    batch.array = _encoder.encode(good)
    return batch


def _parse_json(kind: str, body: bytes, config: ApiConfig) -> Batch:
    """Convert each job once, then go on as if MessagePack had come."""
    single = False
    try:
        if kind in NDJSON_TYPES:
            items: Sequence[bytes | Raw] = json_lines(body, config.array_jobs_max)
        elif body.lstrip()[:1] == b"[":
            items = json_items(body, config.array_jobs_max)
        else:
            items, single = [body], True
    except DECODE_ERRORS as error:
        raise _no_json(error) from error
    _check_size(len(items), config)
    converted: list[Raw] = []
    places: list[int] = []
    refused: list[Refusal] = []
    for index, item in enumerate(items):
        if len(item) > config.job_bytes_max:
            _check_bytes(len(item), single, config)
            refused.append(Refusal(index, "", f"one job has at most {config.job_bytes_max} bytes, this {len(item)}"))
            continue
        try:
            converted.append(Raw(_encoder.encode(tagged.read(item))))
        except DECODE_ERRORS as error:
            if single:
                raise _no_json(error) from error
            refused.append(Refusal(index, "", str(_no_json(error).detail)))
        else:
            places.append(index)
    if not converted:
        return Batch(single, len(items), b"", [], refused)
    batch = parse_array(_encoder.encode(converted), single, config)
    for refusal in batch.refused:
        refusal.index = places[refusal.index]
    batch.refused = sorted(refused + batch.refused, key=lambda refusal: refusal.index)
    batch.size = len(items)
    return batch


def _no_json(error: BaseException) -> Problem:
    return Problem(400, f"this is no JSON that can be taken: {str(error)[:DETAIL_LENGTH_MAX]}")
