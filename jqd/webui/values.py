"""Formats values of jobs, numbers and links for pages, and reads values from forms.

Values of pushers and workers are always shown as text: templates escape them, and none becomes a link.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from markupsafe import Markup, escape

from jqd.domain import json_ext
from jqd.domain.visible import CONTROLS, quoted

VALUE_CHARS_MAX = 16_384  # of one value on a page: some hundred lines
LOG_CHARS_MAX = 65_536  # of a log: the API's limit is 64 KiB
LINE_CHARS_MAX = 300  # of a message in a table
_COUNT = re.compile(r"[0-9]{1,15}")
_ESCAPE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)|\\.", re.DOTALL)
"""Escapes in JSON. The group matches one half of a UTF-16 surrogate pair without the other."""


class Shown(NamedTuple):
    """A text, perhaps cut."""

    text: str
    cut: int
    """Characters left out at the end."""

    @property
    def is_whole(self) -> bool:
        return not self.cut


def cut(text: str, chars_max: int = VALUE_CHARS_MAX) -> Shown:
    return Shown(text[:chars_max], max(0, len(text) - chars_max))


def visible(given: Any) -> Any:
    """Return text with control characters spelled out, also those that reverse the text beside them; other values
    unchanged."""
    return given.translate(CONTROLS) if type(given) is str and not given.isprintable() else given


def exact(given: Any) -> Markup:
    """Return the value of a form field, escaped but not changed by `visible`, as the form sends it back."""
    return escape(given)


def last_line(text: Any) -> str:
    """Return the last line of a message; of a traceback it says most."""
    lines = str(text or "").strip().splitlines()
    return lines[-1].strip()[:LINE_CHARS_MAX] if lines else ""


def value(given: Any, chars_max: int = VALUE_CHARS_MAX) -> Shown:
    """Return a value as indented JSON; values that JSON does not have are written as by `jqd get -o json`."""
    text = json_ext.json_of(bytes(given) if isinstance(given, msgspec.Raw) else msgspec.msgpack.encode(given))
    try:
        text = msgspec.json.format(text, indent=2)
    except RecursionError:
        return cut(text.decode(), chars_max)  # too deep to be indented: on one line
    return cut(text.decode(), chars_max)


def read_value(text: str) -> Any:
    """Return the value of JSON that a person typed. Raises ValueError, which says what is wrong, and where."""
    try:
        value = json_ext.read(text.encode())
        msgspec.msgpack.encode(value)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError) as error:
        half = _half(text)
        why = f"{half} is half of a character, and the other half is not beside it" if half else error
        raise ValueError(f"this is no JSON that MessagePack can carry: {why}") from error
    return value


def _half(text: str) -> str:
    """Return the first JSON escape that is an unpaired surrogate; empty: none is."""
    return next((found[1] for found in _ESCAPE.finditer(text) if found[1]), "")


def count_of(text: str) -> int:
    """Return the number of jobs in a form or an address. Raises ValueError if it is none."""
    if not _COUNT.fullmatch(text):
        raise ValueError(f"{text[:32]!r} is no number of jobs")
    return int(text)


def number(given: Any) -> str:
    """Return a count with thin spaces between thousands; a rate below ten with one decimal."""
    if isinstance(given, float) and given < 10 and given != int(given):
        return f"{given:.1f}"
    return f"{given:,.0f}".replace(",", "\u202f") if isinstance(given, int | float) else "–"


def word(given: Any) -> str:
    """Return an option of a jobtype or a handler as people write it."""
    match given:
        case bool():
            return "yes" if given else "no"
        case list():
            return ", ".join(map(word, given))
        case float():
            return f"{given:g}"
    return str(given)


def link(path: str, /, **query: Any) -> str:
    """Return a URL of this UI. Ids and names go into the query, which may hold any character.

    Empty values are left out, except an empty tenant: it means jobs without a tenant; a missing one means all tenants.
    """
    given = {name: str(each) for name, each in query.items() if each or each == 0 or (name, each) == ("tenant", "")}
    return f"{path}?{urlencode(given, quote_via=quote)}" if given else path


def command(*words: str, of: Sequence[str] = (), **flags: Any) -> str:
    """Return a command line for a shell: the UI's own words, flags that have a value, and `of`: names and ids.

    No name that begins with a hyphen may become an option: some options choose where a token is sent.
    """
    kept = list(words)
    for name, each in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if each is True:
            kept.append(flag)
        elif each not in (None, "", False):
            kept.append(f"{flag}={each}")
    if any(word.startswith("-") for word in of):
        kept.append("--")
    return " ".join(shlex.quote(word) if word == visible(word) else quoted(word) for word in (*kept, *of))
