"""Converts the values of settings from text and back, by their types."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from jqd.domain.fields import allowed
from jqd.domain.units import BYTES, SECONDS, amount, as_text

# Type of a setting → its name in messages.
KINDS = {bool: "truth value", int: "whole number", float: "number", str: "text", Path: "path", tuple: "list of texts"}
PASSWORD = re.compile(r"://.*@", re.DOTALL)  # the part of a URL that may contain a password: before the host
# The key in a field's `metadata` of a setting that may contain a password: it is masked, and may come from a file.
SECRET = "secret"  # noqa: S105 - a key, not a password
# The key in a field's `metadata` of a setting that only code sets: no file, environment variable or flag.
INTERNAL = "internal"
WHOLE = "whole"  # as the value of SECRET: the whole value is masked, not only what may be a password in it
_IN_QUERY = re.compile(r"(?<=password=)[^&#\s]+", re.IGNORECASE)


def read(hint: Any, value: Any, name: str) -> Any:
    """Convert the value of a setting from a file, an environment variable or a flag to the type `hint`. `name`: the
    setting's name, whose ending tells the unit of a number (`_s`, `_bytes`).

    Raises ValueError with a text that continues a sentence which begins with the setting's name.
    """
    kind = _kind(hint)
    if type(None) in get_args(hint) and value in (None, ""):
        return None
    try:
        read = _converted(kind, value, name)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"= {_quoted(value)} is no {KINDS[kind]}: {error}") from error
    try:
        as_text = read if kind is Path else msgspec.convert(read, hint)
        if isinstance(as_text, int | float) and as_text < 0:
            raise ValueError(f"must be 0 or more, not {_quoted(value)}")
        return as_text
    except msgspec.ValidationError as error:
        raise ValueError(f"must be {allowed(hint)}, not {_quoted(value)}") from error


def text_of(value: Any, name: str) -> str:
    """Return a value as text that `read` converts back: 25s, 64MiB, true. `name`: the setting's name, whose ending
    tells the unit of a number."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return as_text(value, _units(name))
        case tuple():
            return " ".join(value)
    return str(value)


def masked(value: Any, mark: object = True) -> Any:
    """Return the value of a setting with passwords in it replaced by "…". `mark`: the value of SECRET in the setting's
    metadata; if it is WHOLE, the whole value is replaced."""
    if mark == WHOLE:
        return "…" if value else value
    if isinstance(value, tuple):
        return tuple(map(masked, value))
    return _IN_QUERY.sub("…", PASSWORD.sub("://…@", value)) if isinstance(value, str) else value


def unit(hint: Any, name: str) -> str:
    """Return the unit of a setting: bytes, s or ms; empty for a count, a ratio, and for a value that is no number."""
    if _kind(hint) not in (int, float):
        return ""
    units = _units(name)
    return "bytes" if units is BYTES else "s" if units is SECONDS else "ms" if name.endswith("_ms") else ""


def _units(name: str) -> Mapping[str, float]:
    return BYTES if "_bytes" in name else SECONDS if re.search(r"_s(_|$)", name) else {}


def _quoted(value: Any) -> str:
    """Return a value in quotes for a message; only "…" if the value may contain a password, because messages end up in
    logs."""
    return "…" if PASSWORD.search(str(value)) or _IN_QUERY.search(str(value)) else repr(value)


def _kind(hint: Any) -> Any:
    """Return the plain type behind a type hint, without range and None; str for a Literal."""
    if get_origin(hint) is Literal:
        return str
    kind = get_origin(hint) or hint
    return kind if kind in KINDS else _kind(get_args(hint)[0])


def _converted(kind: Any, value: Any, name: str) -> Any:
    """Convert a value to a plain type. Raises ValueError if it does not fit the type."""
    if kind is bool:
        return _bool(value)
    if kind is Path:
        try:
            return Path(str(value)).expanduser()
        except RuntimeError:
            raise ValueError("nobody here has that home directory; write the whole path") from None
    if kind in (int, float):
        number = _number(value, name)
        if not math.isfinite(number):
            raise ValueError("it is finite")
        if kind is int and number != int(number):
            raise ValueError("it has a fraction")
        return kind(number)
    if kind is tuple:
        return _texts(value)
    if not isinstance(value, str):
        raise ValueError("write it in quotes")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    """Convert a list of texts. It may also be given as one text, separated by blanks, or as JSON."""
    if isinstance(value, str):
        if not value.lstrip().startswith("["):
            return tuple(value.split())
        try:
            value = msgspec.json.decode(value)
        except msgspec.MsgspecError as error:
            raise ValueError(f"it begins like JSON but is not JSON ({error})") from error
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise ValueError('write one like ["a", "b"]')
    return tuple(value)


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("1", "true", "yes", "on"):
        return True
    if str(value).lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("say true or false")


def _number(value: Any, name: str) -> float:
    """Convert a number. Settings `*_s` may also be durations like 5m, and `*_bytes` sizes like 64MiB."""
    if isinstance(value, bool):
        raise ValueError("a truth value is no number")
    if isinstance(value, (int, float)):
        return value
    return amount(str(value), _units(name))
