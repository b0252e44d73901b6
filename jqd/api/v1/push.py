"""POST /v1/jobs: decodes the body into a batch of jobs, pushes the batch, and answers with the ids. Jobs in JSON are
converted to MessagePack here, once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import quote

import msgspec
import trio
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from jqd.api.context import ApiContext
from jqd.api.decode import YES, Flag, read_query
from jqd.api.json_stream import json_items, json_lines
from jqd.api.message import unsupported
from jqd.api.problems import errors_of
from jqd.api.v1.responses import PushedJob, PushedJobs
from jqd.domain import decode_errors, json_ext
from jqd.domain.array_split import Steps, finish, in_steps
from jqd.domain.clock import thread_s
from jqd.domain.errors import Fault, Invalid, Unreadable
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.media import JSON_TYPES, MSGPACK_TYPES, NDJSON_TYPES
from jqd.http import SOME_BYTES, Request, Response, answer
from jqd.service.batch import (
    EMPTY,
    TOO_DEEP,
    Batch,
    expect_alone,
    expect_bytes,
    expect_size,
    in_order,
    read_array,
    read_in_pieces,
    with_trace,
)
from jqd.service.config import ServiceConfig
from jqd.service.idempotency import KEY_LENGTH_MAX, under_key
from jqd.service.push import FSYNC, Ack, Level, expect_open
from jqd.service.push import push as push_batch

LOOP_BYTES = 256 * 1024  # of JSON that is converted in the event loop, job by job: one such job alone takes some 8 ms
CONVERTED_BYTES = 4_096  # of JSON that are converted in one step: it takes some 0.2 ms
JOB_BYTES = 200  # a job in JSON counts as so many bytes more: short ones take 5 µs each
ARRAYS = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))  # first bytes of MessagePack arrays
MAPS = frozenset((b"{"[0], *range(0x80, 0x90), 0xDE, 0xDF))  # first bytes of a body that is one job
KEY_HEADER, TRACE_HEADER = "idempotency-key", "traceparent"
NAMED_AT_ONCE = 1_000  # jobs whose fields are rewritten at once, in 4 ms; more are in a thread
REPLICAS_MAX = 100  # a larger number is a mistake

_encoder = msgspec.msgpack.Encoder()


class PushQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a push."""

    ack: Level | UnsetType = UNSET
    replicas: Annotated[int, Meta(ge=0, le=REPLICAS_MAX, description=f"a whole number from 0 to {REPLICAS_MAX}")] = 0
    atomic: Flag = "0"


async def push(parts: ApiContext, request: Request) -> Response:
    """Push one job or many. 201: on this daemon's disk, synced (or as `ack` asked). 200: pushed before.
    207: some are refused. Raises Invalid, Problem 415, and the errors of `service.push`."""
    wanted, atomic = FSYNC, False
    if request.heading.query:
        query = read_query(request, PushQuery)
        wanted, atomic = _ack_wanted(query), query.atomic in YES
    expect_open(parts.services)
    kind = request.media_type()
    if request.body and request.body[0] in MAPS and len(request.body) <= SOME_BYTES and kind not in NDJSON_TYPES:
        batch = _read_one(kind, request.body, parts.services.config)  # nearly all bodies
    else:
        batch = await _read(kind, request, parts)
    if (trace := request.headers.get(TRACE_HEADER)) is not None:
        batch = await _rewritten(parts, batch, with_trace, trace)
    key = None if (given := request.headers.get(KEY_HEADER)) is None else _key(given)
    if key is not None and batch.jobs:
        batch = await _rewritten(parts, batch, under_key, key)
    pushed = await push_batch(parts.services, batch, wanted, atomic=atomic)
    language, ids = request.answer_language(), pushed.job_ids
    ack = pushed.ack.level if pushed.ack else UNSET
    replicas = (pushed.ack.replicas if pushed.ack else 0) or UNSET
    if batch.single:
        job_id = str(ids[0])
        quoted = job_id if job_id.isascii() and job_id.isalnum() else quote(job_id, safe="")  # quick for jqd's own ids
        location = {"location": f"/v1/jobs/{quoted}"}
        taken = PushedJob(job_id, ack, replicas, True if pushed.duplicates else UNSET)
        return answer(200 if pushed.duplicates else 201, taken, language, location)
    many = PushedJobs(ids, ack, replicas, pushed.duplicates or UNSET, errors_of(pushed.refused) or UNSET)
    return answer(207 if pushed.refused else 201 if pushed.ack else 200, many, language)


async def _rewritten(parts: ApiContext, batch: Batch, write: Callable[[Batch, str], Batch], text: str) -> Batch:
    """Return `write(batch, text)`, called in a thread if the batch is large."""
    if len(batch.jobs) <= NAMED_AT_ONCE:
        return write(batch, text)
    return await trio.to_thread.run_sync(write, batch, text, limiter=parts.read)


def _key(given: str) -> str:
    """Return the key in an Idempotency-Key header, without quotes. Raises Invalid."""
    key = given.strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not key.isprintable() or not 1 <= len(key) <= KEY_LENGTH_MAX:
        raise Invalid(f"an Idempotency-Key has 1 to {KEY_LENGTH_MAX} printable characters, in quotes or without")
    return key


def _ack_wanted(query: PushQuery) -> Ack:
    """Return the level of safety before the answer that the query asks for. Raises Invalid."""
    if not query.replicas:
        return Ack(query.ack) if query.ack else FSYNC
    if query.ack not in (UNSET, "store"):
        raise Invalid(f"replicas={query.replicas} is about the store: ask for ack=store, not ack={query.ack}")
    return Ack("store", query.replicas)


async def _read(kind: str, request: Request, parts: ApiContext) -> Batch:
    """Decode an array, or a larger body, in steps between which other tasks run: however short a body is, it may have
    very many jobs. Large JSON is decoded in a thread, as one of its jobs may take half a second.

    Raises Unreadable, TooLarge, Problem 415.
    """
    body, config = request.body, parts.services.config
    if kind in MSGPACK_TYPES and body and body[0] in ARRAYS:
        expect_alone(body, config)
        steps = read_in_pieces(body, config)
    elif kind in JSON_TYPES or kind in NDJSON_TYPES:
        steps = _read_json(kind, body, config)
        if len(body) > LOOP_BYTES:
            return await trio.to_thread.run_sync(finish, steps, limiter=parts.read)
    else:
        with _timed(request):
            return _read_one(kind, body, config)
    return await in_steps(_each_timed(steps, request), request.breathe)


def _read_one(kind: str, body: bytes, config: ServiceConfig) -> Batch:
    """Decode a body that is one job. Raises Unreadable, TooLarge, Problem 415."""
    if kind in MSGPACK_TYPES:
        return read_array(b"\x91" + body, True, config)
    if kind in JSON_TYPES:
        return finish(_read_json(kind, body, config))
    raise unsupported(kind)


def _each_timed(steps: Steps[Batch], request: Request) -> Steps[Batch]:
    """Run `steps`, each `_timed`: other tasks may run in between."""
    while True:
        with _timed(request):
            try:
                next(steps)
            except StopIteration as done:
                batch: Batch = done.value
                return batch
        yield


@contextmanager
def _timed(request: Request) -> Iterator[None]:
    """Raise `request.held_s` to the processor time of the `with` block, in which no other task runs."""
    began_s = thread_s()
    try:
        yield
    finally:
        request.held_s = max(request.held_s, thread_s() - began_s)


def _read_json(kind: str, body: bytes, config: ServiceConfig) -> Steps[Batch]:
    """Convert the jobs of a JSON body to MessagePack, and check them like those of a MessagePack body."""
    single = False
    if not body.strip():
        raise Unreadable(EMPTY)
    try:
        if kind in NDJSON_TYPES:
            items: Sequence[bytes | Raw] = json_lines(body, config.array_jobs_max)
        elif body.lstrip()[:1] == b"[":
            items = json_items(body, config.array_jobs_max)
        else:
            items, single = [body], True
    except DECODE_ERRORS as error:
        raise _no_json(error) from error
    expect_size(len(items), config)
    converted: list[Raw] = []
    places: list[int] = []
    refused: list[Fault] = []
    done_bytes = 0
    for index, item in enumerate(items):
        done_bytes += JOB_BYTES + len(item)
        if done_bytes >= CONVERTED_BYTES:
            done_bytes = 0
            yield
        if len(item) > config.job_bytes_max:
            expect_bytes(len(item), len(items) == 1, config)
            refused.append(Fault("", f"one job has at most {config.job_bytes_max} bytes, this {len(item)}", index))
            continue
        try:
            converted.append(Raw(_encoder.encode(json_ext.read(item, len(body)))))
        except (json_ext.FormError, OverflowError):
            refused.append(Fault(*json_ext.fault_of(item, len(body)), index))
        except DECODE_ERRORS as error:
            if single:
                raise _no_json(error, item) from error
            refused.append(Fault("", str(_no_json(error, item)), index))
        else:
            places.append(index)
    if not converted:
        return Batch(single, len(items), b"", [], refused)
    array = _encoder.encode(converted)
    if len(items) == 1:
        expect_alone(array, config)
    # In pieces also in a thread, as a decoder holds the interpreter's lock.
    batch = read_array(array, True, config) if single else (yield from read_in_pieces(array, config, places))
    batch.refused = in_order([*refused, *batch.refused])
    batch.size = len(items)
    return batch


def _no_json(error: BaseException, text: bytes | Raw = b"") -> Unreadable:
    if isinstance(error, RecursionError):
        return Unreadable(TOO_DEEP)
    return Unreadable(f"this is no JSON that can be taken: {decode_errors.why(error, text=bytes(text))}")
