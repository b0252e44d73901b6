"""Converts large bodies between JSON and MessagePack in threads, and answers with large results.

A result of 1 MiB with a million small values takes Python up to two seconds to convert to JSON. In the event loop that
would block all requests, and a few in a row would cost the daemon its lease. While a thread does it, the loop still
runs every few milliseconds.

A large result is in the store in pieces. As MessagePack it is sent piece by piece while it is read, so a slow client
keeps only one piece in memory. As JSON, or in LightJQ's format, the answer is made as a whole, and counts in the memory
for bodies until it is sent.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import trio
from msgspec import Raw, Struct, structs

from jqd.api.context import ApiContext
from jqd.api.decode import pack
from jqd.domain import media
from jqd.domain.errors import NotFound, StoreError
from jqd.domain.job import NIL
from jqd.domain.media import MSGPACK_TYPES, Language
from jqd.domain.results import LargeResult
from jqd.http import Refused, Request, Response, Write, answer
from jqd.service import Services
from jqd.service.find import drop_result, read_pieces

AT_ONCE_BYTES = 32 * 1024  # converted without a thread: most take below 1 ms, the worst 50 ms; a thread costs 0.7 ms


async def answer_any(parts: ApiContext, value: Any, language: Language, status: int = 200) -> Response:
    """Return the response with a value of any size, or with an empty body for None. Large JSON is made in a thread, one
    answer at a time, because each takes much memory."""
    if value is None:
        return Response(status)
    if language == "msgpack" or _packed_bytes(value) <= AT_ONCE_BYTES:
        return answer(status, value, language)
    return await trio.to_thread.run_sync(answer, status, value, language, limiter=parts.shown)


async def packed_body(parts: ApiContext, request: Request) -> bytes:
    """Return the body as MessagePack; large JSON is converted in a thread."""
    if request.media_type() in MSGPACK_TYPES or len(request.body) <= AT_ONCE_BYTES:
        return pack(request)
    return await trio.to_thread.run_sync(pack, request, limiter=parts.read)


def _packed_bytes(value: Any) -> int:
    """Return how many bytes of MessagePack a response contains in fields of type `Raw`."""
    match value:
        case Raw():
            return memoryview(value).nbytes
        case Struct():
            return sum(map(_packed_bytes, structs.astuple(value)))
        case str() | bytes():
            return 0
        case Sequence():
            return sum(map(_packed_bytes, value))
    return 0


HELD_TIMES = 4  # memory of a large result while it is converted, in times of its length: read, joined, as text
WRITE_BYTES = 256 << 10  # of a large body in one write; the write's time limit begins anew with each


async def send_result(
    parts: ApiContext, request: Request, large: LargeResult, made: Callable[[bytes], Struct], *, consume: bool
) -> Response:
    """Answer with a large result. `made` returns the answer's struct for a result, which must be the struct's last
    field.

    `consume`: whether to delete the result from the store once it is sent.
    """
    if request.answer_language() != "msgpack":
        response = await render(parts, request, large, made, request.answer_language())
        if consume:
            await drop_result(parts.services, large)
        return response
    before = msgspec.msgpack.encode(made(NIL))[: -len(NIL)]
    length = {"content-length": str(len(before) + large.bytes)}
    stream = None if request.method == "HEAD" else partial(_write, parts.services, large, before, consume)
    return Response(200, content_type=media.MSGPACK, headers=length, stream=stream)


async def _write(services: Services, large: LargeResult, before: bytes, consume: bool, write: Write) -> str | None:
    """Send `before` and then the result. Returns why the result could not be read completely; None if it was."""
    await write(before)
    wanted = False
    try:
        async for piece in read_pieces(services, large):
            wanted = await write(piece)
    except (NotFound, StoreError) as error:
        return f"the result of job {large.job_id} could not be read to its end: {error}"
    if consume and wanted:
        with suppress(StoreError):  # the client has it, and it expires anyway
            await drop_result(services, large)
    return None


async def render(
    parts: ApiContext, request: Request, large: LargeResult, made: Callable[[bytes], Struct], language: Language
) -> Response:
    """Answer with a large result that has to be converted as a whole. `made` returns the answer's struct for a result.

    Raises Refused 503 if there is no memory for it, StoreError.
    """
    bodies, size = parts.bodies, HELD_TIMES * large.bytes
    made_of = Request(request.heading, request.peer)
    try:
        bodies.take(made_of, size)
        packed = b"".join([piece async for piece in read_pieces(parts.services, large)])
        response = await answer_any(parts, made(packed), language)
    finally:
        bodies.release(made_of)
    body, response.body = response.body, b""
    response.headers = {"content-length": str(len(body))}

    async def stream(write: Write) -> str | None:
        sent = Request(request.heading, request.peer)
        try:
            with suppress(Refused):  # the body is in memory anyway
                bodies.take(sent, len(body))
            for at in range(0, len(body), WRITE_BYTES):
                await write(body[at : at + WRITE_BYTES])
                await trio.lowlevel.checkpoint()
        finally:
            bodies.release(sent)
        return None

    response.stream = stream
    return response
