"""Decodes the body and the query of a request as the types of its route."""

from functools import cache
from typing import Annotated, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Raw

from jqd.api.message import misread, not_read, read_value
from jqd.api.problems import Problem
from jqd.domain import fields
from jqd.domain.dates import instant_ms
from jqd.domain.errors import Invalid
from jqd.domain.fields import DECODE_ERRORS
from jqd.domain.job import NIL
from jqd.domain.media import MSGPACK_TYPES
from jqd.http import Request

QUERY_FIELDS_MAX = 32
T = TypeVar("T", bound=msgspec.Struct)

Flag = Literal["true", "false", "1", "0"]
YES: tuple[Flag, ...] = ("true", "1")
Seconds = Annotated[float, Meta(ge=-1e99, le=1e99, description="a number of seconds")]
"""The type of a wait in seconds, for `Request.wait_s`: a negative number counts as 0, one above the limit as the
limit."""


Revision = Annotated[int, Meta(ge=0)] | None
"""The type of a setting's revision, as an earlier answer gave it."""


def instant_in(value: Raw) -> int | None:
    """Decode a date that is only information from a client, as Unix ms; None if the value is no date."""
    if bytes(value) == NIL:
        return None
    try:
        return instant_ms(msgspec.msgpack.decode(value, type=str | float))
    except (*DECODE_ERRORS, ValueError):
        return None


def read_body(request: Request, kind: type[T]) -> T:
    """Decode a body as `kind`, in which a `msgspec.Raw` field gets MessagePack.

    Raises Invalid, which names the wrong fields; Unreadable if the body is not in its declared format; Problem 413 for
    too many values, 415 for an unsupported media type.
    """
    return unpack(pack(request), kind)


def pack(request: Request) -> bytes:
    """Return the body as MessagePack; JSON is converted. Raises Invalid, Unreadable, Problem 413, 415."""
    if request.packed is not None:
        return request.packed
    try:
        return request.body if request.media_type() in MSGPACK_TYPES else msgspec.msgpack.encode(read_value(request))
    except OverflowError as error:
        raise misread(request.body) from error


def unpack(packed: bytes, kind: type[T]) -> T:
    """Decode a body in MessagePack as `kind`. Raises Invalid, which names the wrong fields, and Unreadable if it is no
    MessagePack."""
    try:
        return fields.read(packed, kind)
    except DECODE_ERRORS as error:
        raise not_read("MessagePack", packed, error) from error


def query_of(request: Request) -> list[tuple[str, str]]:
    """Return the query parameters, in order. Raises Problem 400."""
    try:
        text = request.heading.query.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
    except ValueError as error:
        raise Problem(400, f"the query string cannot be read: {error}") from error


def read_query(request: Request, kind: type[T]) -> T:
    """Decode the query as `kind`. Raises Invalid, which names the parameter, and Problem 400 for an unreadable query.

    If a parameter is given twice, a `kind` that ignores unknown names takes the last value; any other `kind` refuses
    the query.
    """
    if not request.heading.query:
        empty: T = _empty(kind)
        return empty
    parameters = query_of(request)
    values = dict(parameters)
    if len(values) < len(parameters) and kind.__struct_config__.forbid_unknown_fields:
        twice = next(name for place, (name, _) in enumerate(parameters) if name in dict(parameters[:place]))
        raise Invalid(f"{twice[:64]!r} stands in the query more than once: say it once")
    try:
        value = fields.read(msgspec.msgpack.encode(values), kind, texts=True)
    except Invalid as error:
        raise Invalid(str(error)) from error  # without the pointers, which would point into a body
    for field in msgspec.structs.fields(kind):
        if field.encode_name in values and getattr(value, field.name) is None:  # in a query "null" is a text, not nil
            raise Invalid(
                f"{field.encode_name} must be {fields.allowed(field.type)}, not {values[field.encode_name]!r}"
            )
    return value


@cache
def _empty(kind: type[T]) -> T:
    return kind()
