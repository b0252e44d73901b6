"""How values of jobs, dates and durations are written on a page, and read from its forms. Pure.

What a pusher or a worker made is text here, always: templates escape it, and nothing of it becomes a link.
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
LOG_CHARS_MAX = 65_536  # the API bounds a log to 64 KiB
LINE_CHARS_MAX = 300  # of a message in a table
_COUNT = re.compile(r"[0-9]{1,15}")
_ESCAPE = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)|\\.", re.DOTALL)
"""Of JSON. A half of a character, as UTF-16 has them, without its other half is the group."""


class Shown(NamedTuple):
    text: str
    cut: int
    """Characters left out at the end."""

    @property
    def is_whole(self) -> bool:
        return not self.cut


def cut(text: str, chars_max: int = VALUE_CHARS_MAX) -> Shown:
    return Shown(text[:chars_max], max(0, len(text) - chars_max))


def visible(given: Any) -> Any:
    """Return what a page prints, with characters spelled out that turn the order of the text beside them, or that no
    page may have."""
    return given.translate(CONTROLS) if type(given) is str and not given.isprintable() else given


def exact(given: Any) -> Markup:
    """Return what a field of a form holds, which is sent back as it is: `visible` leaves it alone."""
    return escape(given)


def last_line(text: Any) -> str:
    """Return the telling line of a message: of a traceback the last."""
    lines = str(text or "").strip().splitlines()
    return lines[-1].strip()[:LINE_CHARS_MAX] if lines else ""


def value(given: Any, chars_max: int = VALUE_CHARS_MAX) -> Shown:
    """Return a value as indented JSON; what JSON has not is written as `jqd get -o json` does."""
    text = json_ext.json_of(bytes(given) if isinstance(given, msgspec.Raw) else msgspec.msgpack.encode(given))
    try:
        text = msgspec.json.format(text, indent=2)
    except RecursionError:
        return cut(text.decode(), chars_max)  # too deep to be indented: on one line
    return cut(text.decode(), chars_max)


def read_value(text: str) -> Any:
    """Return the value of JSON that a person typed. Raises ValueError that says what is wrong, and where."""
    try:
        value = json_ext.read(text.encode())
        msgspec.msgpack.encode(value)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError) as error:
        half = _half(text)
        why = f"{half} is half of a character, and the other half is not beside it" if half else error
        raise ValueError(f"this is no JSON that MessagePack can carry: {why}") from error
    return value


def _half(text: str) -> str:
    """Return an escape of JSON that stands for half of a character, where the other half is missing."""
    return next((found[1] for found in _ESCAPE.finditer(text) if found[1]), "")


def count_of(text: str) -> int:
    """Return a number of jobs that a form or an address carries. Raises ValueError for what is none."""
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
    """Return a URL of this UI. Ids and names stand in its query alone, where any character may be.

    An empty tenant stands there, too: it means the jobs of no tenant alone, and none all tenants.
    """
    given = {name: str(each) for name, each in query.items() if each or each == 0 or (name, each) == ("tenant", "")}
    return f"{path}?{urlencode(given, quote_via=quote)}" if given else path


def command(*words: str, of: Sequence[str] = (), **flags: Any) -> str:
    """Return a line for a shell: words of ours, flags that have a value, and what the command is about.

    Names and ids may begin with a hyphen: none must become an option, of which some say to whom a token is sent.
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
