"""Decodes a map as a type, and says in plain words what is wrong with its fields.

`Meta.description` of a field's type says which values it may have. It completes a sentence: "priority must be …, not
'high'". A function `check` in `Meta.extra` raises ValueError for a wrong value of the right type. It is called only to
report such faults together with those of other fields. So code that uses a value has to check it, too.
"""

import enum
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Raw

from jqd.domain.errors import Fault, Invalid
from jqd.domain.suggest import suggestion

DECODE_ERRORS = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError, MemoryError, TypeError)
FAULTS_MAX = 12  # faults reported of one map, so that an answer about 10,000 bad ones is not too large
FIELDS_MAX = 256  # of a map: a field may take three bytes as MessagePack, but hundreds as an object
SHOWN_FIELDS_MAX = 4  # a map with more fields is described by their names only
QUOTE_LENGTH_MAX = 64  # characters of a client's text that an error repeats
QUOTED_BYTES_MAX = 4_096  # a larger value is not decoded to be shown
WORDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    bytes: "bytes",
    list: "an array",
    tuple: "an array",
    dict: "a map",
}
NOTHING: Mapping[str, str] = MappingProxyType({})

T = TypeVar("T", bound=msgspec.Struct)

_PLACE = re.compile(r"\[(\d+)\]")
_encode = msgspec.msgpack.Encoder().encode
_suggestion = lru_cache(maxsize=1_000)(suggestion)
_fields_decoder = msgspec.msgpack.Decoder(dict[str, Raw])


def read(data: bytes, kind: type[T], instead: Mapping[str, str] = NOTHING, *, texts: bool = False) -> T:
    """Decode MessagePack as `kind`. `instead`: name of an unknown field → the message to show for it. `texts`: whether
    numbers may be given as texts, as in a query.

    Raises Invalid with all faults; msgspec.DecodeError or RecursionError if the data is no MessagePack.
    """
    try:
        value: T = _decoder(kind, texts).decode(data)
        return value
    except msgspec.ValidationError as error:
        faults = faults_of(data, kind, instead, texts=texts)
        raise Invalid(faults[0].detail, faults) from error


def faults_of(
    data: bytes, kind: type[msgspec.Struct], instead: Mapping[str, str] = NOTHING, *, texts: bool = False
) -> list[Fault]:
    """Return up to FAULTS_MAX reasons, at least one, why MessagePack data could not be decoded as `kind`. `instead`:
    name of an unknown field → the message to show for it. `texts`: whether numbers may be given as texts."""
    if (size := _map_size(data)) > FIELDS_MAX:
        return [Fault("", f"a map of at most {FIELDS_MAX} fields is wanted, this one has {size}")]
    try:
        fields = _fields_decoder.decode(data)
    except msgspec.ValidationError as error:
        if "at `key`" in str(error):
            return [Fault("", "a map of fields is wanted: one of its keys is no text")]
        return [Fault("", f"a map is wanted, not {_quoted(Raw(data), [])}")]
    except UnicodeDecodeError as error:
        return [Fault("", f"a key of the map is no text: {error.reason}")]
    faults = list(islice(_each(fields, kind, instead, texts), FAULTS_MAX))
    return faults or [Fault("", "a map of other fields is wanted")]


def _map_size(data: bytes | Raw) -> int:
    """Return the number of fields of the map that `data` begins with, by its header; 0 if it begins with no map."""
    head = bytes(memoryview(data)[:5])
    if head[:1] in (b"\xde", b"\xdf"):
        return int.from_bytes(head[1 : 3 if head[0] == 0xDE else 5], "big")
    return head[0] & 0x0F if head and 0x80 <= head[0] <= 0x8F else 0


def _is_map(raw: Raw) -> bool:
    head = bytes(memoryview(raw)[:1])
    return head in (b"\xde", b"\xdf", b"\x80") or _map_size(raw) > 0


def _each(
    given: Mapping[str, Raw], kind: type[msgspec.Struct], instead: Mapping[str, str], texts: bool
) -> Iterator[Fault]:
    known = kind.__struct_encode_fields__
    if kind.__struct_config__.forbid_unknown_fields:
        for number, name in enumerate(name for name in given if name not in known):
            short = name[:QUOTE_LENGTH_MAX]
            what = "query parameter" if texts else "field"
            # Only for the first name: a suggestion takes 0.1 ms, and there may be 10,000 maps.
            close = "" if number else _suggestion(short, known) if known else "; this call has none"
            yield Fault(_pointer(short), instead.get(name) or f"there is no {what} {short!r}{close}")
    for name, required, hint, alone in _fields(kind, texts):
        if name not in given:
            if required:
                yield Fault(_pointer(name), f"{name} is required: {allowed(hint)}")
            continue
        try:
            value = alone.decode(_encode({name: given[name]})).value
        except (msgspec.ValidationError, UnicodeDecodeError) as error:
            if (inner := _struct_in(hint)) is not None and _is_map(given[name]):
                for fault in faults_of(bytes(given[name]), inner, texts=texts):
                    yield Fault(f"{_pointer(name)}{fault.pointer}", f"{name}: {fault.detail}")
                continue
            places = [int(place) for place in _PLACE.findall(str(error))]
            where = "/".join((name, *map(str, places)))
            text = "what was given" if _is_secret(hint) else _quoted(given[name], places)
            what = f"{where} must be {allowed(hint, len(places))}, not {text}"
            yield Fault(f"/{where}", what)
            continue
        if why := _failed_check(hint, value):
            yield Fault(_pointer(name), why)


def _failed_check(hint: Any, value: Any) -> str:
    """Return the message of the field's `check` function for this value; empty if the value is good or there is no
    check."""
    if value is None or isinstance(value, bool):
        return ""
    try:
        for meta in _metas(hint):
            if meta.extra and "check" in meta.extra:
                meta.extra["check"](value)
    except ValueError as error:
        return str(error)
    return ""


def _struct_in(hint: Any) -> type[msgspec.Struct] | None:
    kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    return kinds[0] if len(kinds) == 1 else None


@cache
def _decoder(kind: type[T], texts: bool) -> msgspec.msgpack.Decoder[T]:
    return msgspec.msgpack.Decoder(kind, strict=not texts)


@cache
def _fields(kind: type[msgspec.Struct], texts: bool) -> list[tuple[str, bool, Any, msgspec.msgpack.Decoder[Any]]]:
    """Return (name, whether required, type, decoder) of each field. Each decoder decodes one field alone, so that all
    faults are found and not just the first."""
    return [
        (
            field.encode_name,
            field.required,
            field.type,
            msgspec.msgpack.Decoder(
                msgspec.defstruct("Alone", [("value", field.type)], rename={"value": field.encode_name}),
                strict=not texts,
            ),
        )
        for field in msgspec.structs.fields(kind)
    ]


@cache
def allowed(hint: Any, depth: int = 0) -> str:
    """Return in words which values a type allows. `depth`: 0 for the type itself; 1 for the items of an array of this
    type, 2 for the items of arrays in it, and so on."""
    described = [meta.description for meta in getattr(hint, "__metadata__", ()) if meta.description]
    if described and not depth:
        return str(described[-1])  # the outermost: a type may be made of another described one
    if get_origin(hint) is Annotated:
        return allowed(get_args(hint)[0], depth)
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return f"one of {', '.join(str(each.value) for each in hint)}"
    if depth and get_origin(hint) in (list, tuple):
        return allowed(get_args(hint)[0], depth - 1)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _map_of(hint)
    each = [part for part in get_args(hint) if part not in (type(None), msgspec.UnsetType)]
    if each and get_origin(hint) not in (list, tuple, dict):
        inside = [part for part in each if _is_array(part)] if depth else each
        return " or ".join(dict.fromkeys(allowed(part, depth) for part in inside or each))
    return WORDS.get(get_origin(hint) or hint, "something else")


def _map_of(kind: type[msgspec.Struct]) -> str:
    fields = msgspec.structs.fields(kind)
    is_short = len(fields) <= SHOWN_FIELDS_MAX
    values = {field.encode_name: f" ({allowed(field.type)})" if is_short else "" for field in fields}
    needed = [field.encode_name for field in fields if field.required]
    others = [field.encode_name for field in fields if not field.required]
    rows = [f"{name}{values[name]}" for name in needed]
    rows += [f"perhaps {', '.join(f'{name}{values[name]}' for name in others)}"] if others else []
    return f"a map: {'; '.join(rows)}"


def _is_array(hint: Any) -> bool:
    """Return whether a type is an array, or a union with one."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    kind = get_origin(hint) or hint
    return kind in (list, tuple) or (kind in (Union, UnionType) and any(map(_is_array, get_args(hint))))


def _is_secret(hint: Any) -> bool:
    """Return whether a field's value must never be shown."""
    return any((meta.extra_json_schema or {}).get("writeOnly") for meta in _metas(hint))


def _metas(hint: Any) -> list[msgspec.Meta]:
    """Return all `Meta` annotations of a field's type, including those of the members of a union."""
    hints = (hint, *(() if get_origin(hint) in (list, tuple, dict) else get_args(hint)))
    return [meta for each in hints for meta in getattr(each, "__metadata__", ())]


def _quoted(raw: Raw, places: list[int]) -> str:
    if len(raw) > QUOTED_BYTES_MAX:
        return f"{len(raw)} bytes"
    try:
        value = msgspec.msgpack.decode(raw)
        for place in places:
            value = value[place]
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return "something that cannot be shown"
    match value:
        case None | True | False:
            return msgspec.json.encode(value).decode()
        case list():
            return f"an array of {len(value)}"
        case str() if len(value) > QUOTE_LENGTH_MAX:
            return f"{value[:QUOTE_LENGTH_MAX]!r}… of {len(value)} characters"
        case str() | int() | float():
            return repr(value)
    return WORDS.get(type(value), "something else")


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")
