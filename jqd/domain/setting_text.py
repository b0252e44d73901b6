"""Converts settings from text and back, by their types. Pure."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from jqd.domain.fields import allowed
from jqd.domain.units import BYTES, SECONDS, amount, as_text

# How messages call the types a setting may have.
KINDS = {bool: "truth value", int: "whole number", float: "number", str: "text", Path: "path", tuple: "list of texts"}
PASSWORD = re.compile(r"://.*@", re.DOTALL)  # where one may stand: in a URL before its host
# A field with this mark may hold a password: it is never shown whole, and may come from a file of its own.
SECRET = "secret"  # noqa: S105 - a mark, not a password
# A field with this mark is set by code only: nobody can say it in a file, the environment or a flag.
INTERNAL = "internal"
WHOLE = "whole"  # with that mark: nothing of it is shown; else what may be a password in it is not
_IN_QUERY = re.compile(r"(?<=password=)[^&#\s]+", re.IGNORECASE)


def read(hint: Any, value: Any, name: str) -> Any:
    """Return a value of a file, a variable or a flag as the type `hint`. The unit of a number is in `name`.

    Raises ValueError, to be put behind the setting's name.
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
    """Return the text that reads as this value: 25s, 64MiB, true. The unit of a number is in `name`."""
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
    """Return a secret with passwords hidden. `mark`: that of its field."""
    if mark == WHOLE:
        return "…" if value else value
    if isinstance(value, tuple):
        return tuple(map(masked, value))
    return _IN_QUERY.sub("…", PASSWORD.sub("://…@", value)) if isinstance(value, str) else value


def unit(hint: Any, name: str) -> str:
    """Return the unit of a number; empty: a plain count, a share, or no number."""
    if _kind(hint) not in (int, float):
        return ""
    units = _units(name)
    return "bytes" if units is BYTES else "s" if units is SECONDS else "ms" if name.endswith("_ms") else ""


def _units(name: str) -> Mapping[str, float]:
    return BYTES if "_bytes" in name else SECONDS if re.search(r"_s(_|$)", name) else {}


def _quoted(value: Any) -> str:
    """Return a value for a message, hidden if it may hold a password: messages end up in logs."""
    return "…" if PASSWORD.search(str(value)) or _IN_QUERY.search(str(value)) else repr(value)


def _kind(hint: Any) -> Any:
    """Return the plain type, without range and None; text for a choice of words."""
    if get_origin(hint) is Literal:
        return str
    kind = get_origin(hint) or hint
    return kind if kind in KINDS else _kind(get_args(hint)[0])


def _converted(kind: Any, value: Any, name: str) -> Any:
    """Return the value of a file, a variable or a flag. Raises ValueError."""
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
    """Return a list of texts, given as such, as one text with blanks, or as JSON."""
    if isinstance(value, str):
        if not value.lstrip().startswith("["):
            return tuple(value.split())
        try:
            value = msgspec.json.decode(value)
        except msgspec.MsgspecError as error:
            raise ValueError(f"it begins like JSON but is not JSON ({error})") from error
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
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
    """Return a number, a duration like 5m for `*_s`, or a size like 64MiB for `*_bytes`."""
    if isinstance(value, bool):
        raise ValueError("a truth value is no number")
    if isinstance(value, (int, float)):
        return value
    return amount(str(value), _units(name))
