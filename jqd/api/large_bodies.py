"""Converts large bodies between JSON and MessagePack in threads.

What is only bytes to us has to be looked into to be said in JSON: a million small values in one result of 1 MiB take
Python up to two seconds, in which the loop would turn for nobody, and a few such requests in a row cost the daemon its
lease. Beside a thread the loop gets its turn every few milliseconds.
"""

from collections.abc import Sequence
from typing import Any

import trio
from msgspec import Raw, Struct, structs

from jqd.api.context import ApiContext
from jqd.api.decode import pack
from jqd.domain.media import MSGPACK_TYPES, Language
from jqd.http import Request, Response, answer

AT_ONCE_BYTES = 32 * 1024  # some 50 ms at worst; most take less than a millisecond, a thread two thirds of one


async def answer_any(parts: ApiContext, value: Any, language: Language) -> Response:
    """Answer 200, of any size: a large one in JSON in a thread, one after another, for each takes much memory."""
    if language == "msgpack" or _packed_bytes(value) <= AT_ONCE_BYTES:
        return answer(200, value, language)
    return await trio.to_thread.run_sync(answer, 200, value, language, limiter=parts.shown)


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
