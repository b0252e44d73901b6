"""Large bodies: converted between JSON and MessagePack in threads; and answers with a large result.

What is only bytes to us has to be looked into to be said in JSON: a million small values in one result of 1 MiB take
Python up to two seconds, in which the loop would turn for nobody, and a few such requests in a row cost the daemon its
lease. Beside a thread the loop gets its turn every few milliseconds.

A large result lies in the store in pieces. In MessagePack it is written as it is read, a piece at a time: a client that
reads slowly keeps no more than that here. What has to be rendered around it, or as JSON, is made whole, and counted
among the bodies of requests until it is sent.
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

AT_ONCE_BYTES = 32 * 1024  # some 50 ms at worst; most take less than a millisecond, a thread two thirds of one


async def answer_any(parts: ApiContext, value: Any, language: Language, status: int = 200) -> Response:
    """Answer, at any size: a large one in JSON in a thread, one after another, for each takes much memory. None: there
    is nothing to say."""
    if value is None:
        return Response(status)
    if language == "msgpack" or _packed_bytes(value) <= AT_ONCE_BYTES:
        return answer(status, value, language)
    return await trio.to_thread.run_sync(answer, status, value, language, limiter=parts.shown)


async def packed_body(parts: ApiContext, request: Request) -> bytes:
    """The body as MessagePack: large JSON is read in a thread."""
    if request.media_type() in MSGPACK_TYPES or len(request.body) <= AT_ONCE_BYTES:
        return pack(request)
    return await trio.to_thread.run_sync(pack, request, limiter=parts.read)


def _packed_bytes(value: Any) -> int:
    """Return how many bytes of MessagePack a response holds."""
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


HELD_TIMES = 4  # its length, while it is rendered: as it was read, as text, and as it is joined
WRITE_BYTES = 256 << 10  # of a whole body at once; a client that reads has time for each


async def send_result(
    parts: ApiContext, request: Request, large: LargeResult, made: Callable[[bytes], Struct], *, consume: bool
) -> Response:
    """A large result, in an answer of which it is the last field. `consume`: it is dropped once it was written."""
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
    await write(before)
    wanted = False
    try:
        async for piece in read_pieces(services, large):
            wanted = await write(piece)
    except (NotFound, StoreError) as error:
        return f"the result of job {large.job_id} could not be read to its end: {error}"
    if consume and wanted:
        with suppress(StoreError):  # it was told; it goes with its time
            await drop_result(services, large)
    return None


async def render(
    parts: ApiContext, request: Request, large: LargeResult, made: Callable[[bytes], Struct], language: Language
) -> Response:
    """An answer with the whole result in it, as `made` has it. Raises Refused 503 when there is no room, StoreError."""
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
            with suppress(Refused):  # it is here all the same
                bodies.take(sent, len(body))
            for at in range(0, len(body), WRITE_BYTES):
                await write(body[at : at + WRITE_BYTES])
                await trio.lowlevel.checkpoint()
        finally:
            bodies.release(sent)
        return None

    response.stream = stream
    return response
