"""Values in JSON that only MessagePack can say: written in maps of one key that begins with `$`, and read back.

    {"$bytes": base64}            bytes
    {"$ext": [code, base64]}      an extension value; a timestamp has the code -1
    {"$float": "nan"}             nan, inf, -inf
    {"$map": [[key, value], …]}   a map with keys that are no texts, or one that would itself look like one of these
    {"$msgpack": base64}          any other value as its MessagePack: text that is no UTF-8, a thousand levels

What is written is read back as what it was: every map whose only key begins with `$` is written as `$map`.
"""

import base64
import binascii
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgpack
import msgspec
from msgspec import Raw

MARK = "$"
UNTOLD = (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException)
"""A worker's value may be well-formed and yet more than Python can hold."""
TIMESTAMP = -1  # its extension code
FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

_encode = msgspec.msgpack.Encoder().encode
_skim = msgspec.msgpack.Decoder(Raw).decode  # checks the structure and builds nothing
FEW_BYTES = 4_096  # of JSON, in which numbers are read by msgspec: at most 700, in 10 ms at worst


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value


_decode = msgspec.json.Decoder().decode
_decode_many = msgspec.json.Decoder(float_hook=_float).decode
"""msgspec takes 20 us for a number like 1e300 or 1e-300, and 600,000 of them held all of Python for 7 to 17 s. This
takes 0.5 us, another number 0.1 us more than msgspec, and whoever reads in a thread lets others have their turn."""


class FormError(ValueError):
    """A map looks like one of the forms above and has a wrong value."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.steps: list[str | int] = []
        """From that map out to the whole value: keys and places."""

    @property
    def pointer(self) -> str:
        """Where that map is, as a JSON pointer."""
        return pointer_of(reversed(self.steps))


class _Pairs(list[tuple[Any, Any]]):
    """A map as it came: Python takes 1, 1.0 and True for one key, and lists for none."""


# ------------------------------------------------------------ written


def show(value: Any) -> Any:
    """A value as JSON can say it. `msgspec.Raw` in it is MessagePack."""
    match value:
        case str():
            return value if value.isascii() or _is_text(value) else whole(_pack_text(value))
        case Raw():
            return show_packed(bytes(value))
        case _Pairs():
            return _show_map(value)
        case dict():
            return _show_map(value.items())
        case msgspec.Struct():
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            given = ((name, getattr(value, field)) for name, field in names)
            return {name: show(field) for name, field in given if field is not msgspec.UNSET}
        case bytes() | bytearray() | memoryview():
            return {"$bytes": _base64(bytes(value))}
        case msgpack.ExtType() | msgspec.msgpack.Ext():
            return {"$ext": [value.code, _base64(bytes(value.data))]}
        case msgpack.Timestamp():
            return {"$ext": [TIMESTAMP, _base64(value.to_bytes())]}
        case list() | tuple():
            return [show(item) for item in value]
        case float() if not math.isfinite(value):
            return {"$float": repr(value)}
    return value


def show_packed(packed: bytes) -> Any:
    """The same of a value in MessagePack, or of bytes that should be one."""
    try:
        return shown(packed)
    except UNTOLD:
        return whole(packed)


def shown(packed: bytes) -> Any:
    """The same of a value that Python can hold. Raises UNTOLD."""
    return show(
        msgpack.unpackb(
            packed, strict_map_key=False, object_pairs_hook=_Pairs, raw=False, unicode_errors="surrogateescape"
        )
    )


def whole(packed: bytes) -> dict[str, Any]:
    """The same of any value, and of what is none."""
    return {"$msgpack": _base64(packed)}


def json_of(packed: bytes) -> bytes:
    """A value in MessagePack as JSON text."""
    return msgspec.json.encode(show_packed(packed))


def join(rows: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """A map of keys and values that JSON can say already."""
    told = {key: value for key, value in rows if isinstance(key, str)}
    if len(told) < len(rows) or (len(rows) == 1 and rows[0][0].startswith(MARK)):
        return {"$map": [list(row) for row in rows]}
    return told


def _show_map(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    return join([(show(key), show(value)) for key, value in pairs])


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pack_text(value: str) -> bytes:
    packed: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    return packed


# ------------------------------------------------------------ read


def decode(text: bytes | Raw, of_bytes: int = 0) -> Any:
    """JSON as values, `$` or not. `of_bytes`: so much is read beside it, piece by piece.

    Raises msgspec.MsgspecError, ValueError and RecursionError.
    """
    return (_decode if max(of_bytes, memoryview(text).nbytes) <= FEW_BYTES else _decode_many)(text)


def read(text: bytes | Raw, of_bytes: int = 0) -> Any:
    """JSON as values that MessagePack can say; those of `$map` and `$msgpack` are `msgspec.Raw`. As `decode`.

    Raises FormError and OverflowError, too.
    """
    value = decode(text, of_bytes)
    # Nearly no JSON has such a thing, and to walk through costs more than to decode.
    return meant(value) if b'"$' in bytes(text) or b"\\u0024" in bytes(text) else value


def pointer_of(steps: Iterable[str | int]) -> str:
    """Keys and places, from the whole value on, as a JSON pointer."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def wide_at(value: Any) -> str:
    """A JSON pointer to the first integer of more than 64 bits in decoded JSON; empty when there is none."""
    steps: list[str | int] = []
    within = [_parts_of([value])]
    while within:
        for step, part in within[-1]:
            if type(part) is int and not -(1 << 63) <= part < 1 << 64:
                return pointer_of([*steps, step][1:])
            if isinstance(part, list | dict):
                steps.append(step)
                within.append(_parts_of(part))
                break
        else:
            within.pop()
            del steps[-1:]
    return ""


def _parts_of(value: list[Any] | dict[str, Any]) -> Iterator[tuple[str | int, Any]]:
    return iter(value.items() if isinstance(value, dict) else enumerate(value))


def meant(value: Any) -> Any:
    """What decoded JSON means. Raises FormError; OverflowError for an integer of more than 64 bits within `$map`."""
    if isinstance(value, list):
        return _meant_of(enumerate(value))
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((form, told),) = value.items()
        if form in _FORMS:
            try:
                return _FORMS[form](told)
            except (ValueError, TypeError, binascii.Error, msgspec.MsgspecError) as error:
                if isinstance(error, FormError):
                    error.steps.append(form)
                    raise
                detail = (
                    f'a map of "{form}" alone means {_MEANING[form]}, and this is none;'
                    f' as a map of your own it is {{"$map": [["{form}", …]]}}'
                )
                raise FormError(detail) from error
    return dict(zip(value, _meant_of(value.items()), strict=True))


def _meant_of(parts: Iterable[tuple[str | int, Any]]) -> list[Any]:
    told = []
    for step, part in parts:
        try:
            told.append(meant(part))
        except FormError as error:
            error.steps.append(step)
            raise
    return told


def _bytes_of(told: Any) -> bytes:
    if not isinstance(told, str):
        raise TypeError(f"a text is needed, not {type(told).__name__}")
    return base64.b64decode(told, validate=True)


def _ext_of(told: Any) -> msgspec.msgpack.Ext:
    code, data = told
    if type(code) is not int or not -128 <= code <= 127:
        raise ValueError(f"{code!r} is no code of an extension")
    return msgspec.msgpack.Ext(code, _bytes_of(data))


def _float_of(told: Any) -> float:
    if not isinstance(told, str) or told not in FLOATS:
        raise ValueError(f"{told!r} is not {', '.join(FLOATS)}")
    return FLOATS[told]


def _map_of(told: Any) -> Raw:
    if not isinstance(told, list) or not all(isinstance(row, list) and len(row) == 2 for row in told):
        raise TypeError("a list of pairs is needed")
    packed: bytes = msgpack.Packer(autoreset=True).pack_map_header(len(told))
    return Raw(packed + b"".join(_encode(part) for row in _meant_of(enumerate(told)) for part in row))


def _raw_of(told: Any) -> Raw:
    packed = _bytes_of(told)
    _skim(packed)
    return Raw(packed)


_FORMS = {"$bytes": _bytes_of, "$ext": _ext_of, "$float": _float_of, "$map": _map_of, "$msgpack": _raw_of}
_MEANING = {
    "$bytes": "bytes, in base64",
    "$ext": "an extension value, [code, base64]",
    "$float": "nan, inf or -inf",
    "$map": "a map, [[key, value], …]",
    "$msgpack": "a value in MessagePack, in base64",
}
