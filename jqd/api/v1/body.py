"""The body of a push, in whatever language → a batch of jobs. JSON is converted to MessagePack here, each job once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import msgspec
import trio
from msgspec import Raw

from jqd.api.context import ApiContext
from jqd.api.json_stream import json_items, json_lines
from jqd.api.message import ApiRequest, unsupported
from jqd.domain import decode_errors, json_ext
from jqd.domain.array_split import finish, in_steps
from jqd.domain.clock import processor_s
from jqd.domain.errors import Fault, Unreadable
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.media import JSON_TYPES, MSGPACK_TYPES, NDJSON_TYPES
from jqd.http import SOME_BYTES
from jqd.service.batch import EMPTY, TOO_DEEP, Batch, expect_bytes, expect_size, in_order, read_array, read_in_pieces
from jqd.service.config import ServiceConfig

AT_ONCE_BYTES = 256 * 1024  # of JSON some 8 ms, of MessagePack with small values 0.8 ms

FREE = nullcontext()
_encoder = msgspec.msgpack.Encoder()


async def read_push(request: ApiRequest, parts: ApiContext) -> Batch:
    """Read the body of a push: large MessagePack a piece at a time; large JSON in a thread, for it takes half a second.

    Raises Unreadable, TooLarge when it is not understood as a whole; Problem 415.
    """
    kind, body, config = request.media_type(), request.body, parts.services.config
    if kind in MSGPACK_TYPES:
        single = not _begins_array(body)
        if not single and len(body) > AT_ONCE_BYTES:
            return await in_steps(read_in_pieces(body, config), request.breathe)
        with _holding(request) if len(body) > SOME_BYTES else FREE:
            return read_array(b"\x91" + body if single else body, single, config)
    if kind in JSON_TYPES or kind in NDJSON_TYPES:
        if len(body) <= AT_ONCE_BYTES:
            with _holding(request) if len(body) > SOME_BYTES else FREE:
                return _read_json(kind, body, config)
        return await trio.to_thread.run_sync(_read_json, kind, body, config, limiter=parts.read)
    raise unsupported(kind)


@contextmanager
def _holding(request: ApiRequest) -> Iterator[None]:
    """Note in the request for how long the loop does nothing else."""
    began_s = processor_s()
    try:
        yield
    finally:
        request.held_s += processor_s() - began_s


def _begins_array(body: bytes) -> bool:
    return bool(body) and (0x90 <= body[0] <= 0x9F or body[0] in (0xDC, 0xDD))


def _read_json(kind: str, body: bytes, config: ServiceConfig) -> Batch:
    """Convert each job once, then go on as if MessagePack had come."""
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
    for index, item in enumerate(items):
        if len(item) > config.job_bytes_max:
            expect_bytes(len(item), single, config)
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
    # In a thread, too, a decoder that is at work keeps the interpreter to itself.
    batch = read_array(array, True, config) if single else finish(read_in_pieces(array, config))
    batch.refused = in_order([*refused, *(fault._replace(place=places[fault.place or 0]) for fault in batch.refused)])
    batch.size = len(items)
    return batch


def _no_json(error: BaseException, text: bytes | Raw = b"") -> Unreadable:
    if isinstance(error, RecursionError):
        return Unreadable(TOO_DEEP)
    return Unreadable(f"this is no JSON that can be taken: {decode_errors.why(error, text=bytes(text))}")
