"""Converts MessagePack to JSON and back. Values that JSON lacks are maps of one key ("$ forms"):

{"$bytes": base64}      bytes
{"$msgpack": base64}    a whole value in MessagePack, if JSON lacks some part of it: an extension type, a key that is no
                        text or occurs twice, nan, text that is no UTF-8, a thousand levels, a map that looks like one
                        of these two forms
"""

import base64
import binascii
import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgpack
import msgspec
from msgspec import Raw

from jqd.domain.decode_errors import WIDE_HERE

NOT_HELD = (ValueError, TypeError, RecursionError, OverflowError, IndexError, msgpack.UnpackException)
"""Errors that well-formed MessagePack may raise, because JSON or Python cannot represent it."""

_json = msgspec.json.Encoder().encode
_skim = msgspec.msgpack.Decoder(Raw).decode  # checks the structure and builds nothing
READ_BYTES = 4_096  # initial buffer of an Unpacker: the default of 1 MiB would be mapped and unmapped each time
FEW_BYTES = 4_096  # in JSON up to this size msgspec reads the numbers: at most 700, which take 10 ms at worst


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


_decode = msgspec.json.Decoder().decode
_decode_many = msgspec.json.Decoder(float_hook=_float).decode
"""A JSON decoder for long texts. msgspec's own takes 20 µs for a number like 1e300, so 600,000 of them stopped all
threads for 7 to 17 s. This decoder takes 0.5 µs for those, and 0.1 µs more than msgspec for other numbers. In a thread,
it lets other threads run."""


class FormError(ValueError):
    """A map looks like a $ form, but its value is invalid. `fault_of` finds out where."""


# ------------------------------------------------------------ written


def show(value: Any) -> Any:
    """Return a response in which each `msgspec.Raw`, which is MessagePack, is replaced by JSON."""
    match value:
        case Raw():
            return Raw(json_of(bytes(value)))
        case dict():
            return {key: show(item) for key, item in value.items()}
        case msgspec.Struct():
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            given = ((name, getattr(value, field)) for name, field in names)
            return {name: show(field) for name, field in given if field is not msgspec.UNSET}
        case list() | tuple():
            return [show(item) for item in value]
    return value


def show_packed(packed: bytes) -> Any:
    """Return the Python values of a MessagePack value's JSON form, in which $ forms are maps."""
    return decode(json_of(packed))


def json_of(packed: bytes) -> bytes:
    """Convert MessagePack to JSON text. It converts value by value: to make or free a million small objects at once
    would stop all threads for a second."""
    text = bytearray()
    try:
        unpacker = msgpack.Unpacker(max_buffer_size=0, read_size=READ_BYTES)
        unpacker.feed(packed)
        _write(unpacker, packed, text)
        end = unpacker.tell()
    except NOT_HELD:
        end = -1
    if end == len(packed):
        return bytes(text)
    return _json({"$msgpack": base64.b64encode(packed).decode("ascii")})


def _write(unpacker: msgpack.Unpacker, packed: bytes, text: bytearray) -> None:
    """Append the next value of `unpacker` to `text`, as JSON. Raises NOT_HELD if plain JSON cannot express it."""
    head = packed[unpacker.tell()]
    if 0x90 <= head <= 0x9F or head in (0xDC, 0xDD):
        sign = b"["
        for _ in range(unpacker.read_array_header()):
            text += sign
            sign = b","
            _write(unpacker, packed, text)
        text += b"]" if sign == b"," else b"[]"
    elif 0x80 <= head <= 0x8F or head in (0xDE, 0xDF):
        size, keys, sign = unpacker.read_map_header(), set[str](), b"{"
        for _ in range(size):
            key = unpacker.unpack()
            if not isinstance(key, str) or key in keys or (size == 1 and key in _FORMS):
                raise ValueError("a map that JSON has not")
            keys.add(key)
            text += sign + _json(key) + b":"
            sign = b","
            _write(unpacker, packed, text)
        text += b"}" if sign == b"," else b"{}"
    else:
        value = unpacker.unpack()
        if isinstance(value, bytes):
            value = {"$bytes": base64.b64encode(value).decode("ascii")}
        elif not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError("a value that JSON has not")
        text += _json(value)


def is_plain(value: Mapping[Any, Any]) -> bool:
    """Return whether a map can be written as plain JSON: all keys are texts, and it does not look like a $ form."""
    return all(isinstance(key, str) for key in value) and (len(value) != 1 or value.keys().isdisjoint(_FORMS))


# ------------------------------------------------------------ read


def decode(text: bytes | Raw, of_bytes: int = 0) -> Any:
    """Decode JSON, without converting $ forms. `of_bytes`: the size of the whole body, if `text` is only a part of it.

    Raises msgspec.MsgspecError, ValueError and RecursionError.
    """
    return (_decode if max(of_bytes, memoryview(text).nbytes) <= FEW_BYTES else _decode_many)(text)


def read(text: bytes | Raw, of_bytes: int = 0) -> Any:
    """Decode JSON to values that can be encoded as MessagePack. $ forms are converted: `$bytes` to bytes, `$msgpack` to
    a `msgspec.Raw`. `of_bytes`: the size of the whole body, if `text` is only a part of it.

    Raises FormError for an invalid $ form; msgspec.MsgspecError, ValueError or RecursionError if `text` cannot be
    decoded.
    """
    value = decode(text, of_bytes)
    # A quick check first: nearly no JSON has $ forms, and walking through it costs more than decoding.
    return _plain_form(value) if b'"$' in bytes(text) or b"\\u0024" in bytes(text) else value


def fault_of(text: bytes | Raw, of_bytes: int = 0) -> tuple[str, str]:
    """Find the first value in a JSON text that `read` or MessagePack refuses; return a JSON pointer to it and what is
    wrong."""
    steps: list[str | int] = []
    within = [_parts_of([decode(text, of_bytes)])]
    while within:
        for step, part in within[-1]:
            if why := _wrong(part):
                return "".join(
                    f"/{str(each).replace('~', '~0').replace('/', '~1')}" for each in [*steps, step][1:]
                ), why
            if isinstance(part, list | dict):
                steps.append(step)
                within.append(_parts_of(part))
                break
        else:
            within.pop()
            del steps[-1:]
    return "", WIDE_HERE


def _parts_of(value: list[Any] | dict[str, Any]) -> Iterator[tuple[str | int, Any]]:
    return iter(value.items() if isinstance(value, dict) else enumerate(value))


def _wrong(value: Any) -> str:
    """Return what is wrong with a value, without looking at the values within it; empty if nothing is."""
    if type(value) is int:
        return "" if -(1 << 63) <= value < 1 << 64 else WIDE_HERE
    try:
        if isinstance(value, dict) and len(value) == 1:
            _formed(value)
    except FormError as error:
        return str(error)
    return ""


def _plain_form(value: Any) -> Any:
    """Convert the $ forms in a decoded JSON value. Raises FormError."""
    if isinstance(value, list):
        return [_plain_form(part) for part in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (formed := _formed(value)) is not None:
        return formed
    return {key: _plain_form(part) for key, part in value.items()}


def _formed(value: dict[str, Any]) -> Any:
    """Return the value for which a $ form stands; None if the map is no $ form. Raises FormError."""
    ((form, text),) = value.items()
    if form not in _FORMS:
        return None
    try:
        data = base64.b64decode(text, validate=True)
        if form == "$bytes":
            return data
        _skim(data)
    except (ValueError, TypeError, binascii.Error, msgspec.MsgspecError) as error:
        why = f'a map of "{form}" alone means {_FORMS[form]}, and this is none; push one of your own as MessagePack'
        raise FormError(why) from error
    return Raw(data)


_FORMS = {"$bytes": "bytes, in base64", "$msgpack": "a value in MessagePack, in base64"}
