"""What schemathesis has to be told of MessagePack; it imports this file by SCHEMATHESIS_HOOKS."""

from typing import Any

import msgpack
import msgspec
import schemathesis

from jqd.domain.media import MSGPACK


def read(ctx: Any, response: Any) -> Any:
    """What an answer says; a worker's may say several things, one behind the other."""
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(response.content)
    values = [*unpacker]
    return values[0] if len(values) == 1 else values


def write(ctx: Any, value: Any) -> Any:
    """A body that says this; bytes stand for themselves, for they may be no MessagePack at all."""
    try:
        return value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    except OverflowError:
        return b"\xc1"  # of an integer of more than 64 bits MessagePack has no form, and this is none either


schemathesis.deserializer(MSGPACK)(read)
schemathesis.serializer(MSGPACK)(write)
