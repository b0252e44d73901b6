"""The body of a request as the type that the call takes."""

from typing import Any, TypeVar

import msgspec

from jqd.api.message import DECODE_ERRORS, Request, read_value
from jqd.desk.limits import explain
from jqd.words.errors import Invalid

T = TypeVar("T", bound=msgspec.Struct)


def read_map(request: Request, kind: type[T]) -> T:
    """Raises Problem 400, 415; Invalid, naming the field."""
    value: Any = read_value(request)
    if not isinstance(value, dict):
        raise Invalid(f"a map is needed, with some of {', '.join(kind.__struct_fields__)}")
    try:
        return msgspec.convert(value, kind)
    except DECODE_ERRORS as error:
        fault = explain(str(error), kind.__struct_fields__)
        raise Invalid(fault.detail, [fault]) from error
