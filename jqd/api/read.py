"""The body of a request as the type that the call takes."""

from typing import TypeVar

import msgspec

from jqd.api.message import DECODE_ERRORS, Request, read_value
from jqd.words import fields
from jqd.words.errors import Fault, Invalid, Unreadable
from jqd.words.media import MSGPACK_TYPES

T = TypeVar("T", bound=msgspec.Struct)


def read_body(request: Request, kind: type[T]) -> T:
    """A field of `msgspec.Raw` stays as it came, and is not looked into.

    Raises Invalid, naming the fields; Unreadable; Problem 400, 413, 415.
    """
    try:
        packed = request.body
        if request.media_type() not in MSGPACK_TYPES:
            packed = msgspec.msgpack.encode(read_value(request))
        return fields.read(packed, kind)
    except OverflowError as error:
        detail = "there is an integer of more than 64 bits, which no job can hold"
        raise Invalid(detail, [Fault("", detail)]) from error
    except DECODE_ERRORS as error:
        raise Unreadable(f"the body is no MessagePack: {error}") from error
