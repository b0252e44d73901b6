"""Formats the values of jobs, numbers and links for pages, and reads values from forms.

Values that come from pushers and workers are always shown as text: templates escape them, and none becomes a link.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from markupsafe import Markup, escape

from jqd.domain import json_ext
from jqd.domain.error_summary import error_line
from jqd.domain.visible import CONTROLS, quoted

VALUE_CHARS_MAX = 16_384  # of one value on a page: some hundred lines
LOG_CHARS_MAX = 65_536  # of a log: the API's limit is 64 KiB
LINE_CHARS_MAX = 300  # of a message in a table
_COUNT = re.compile(r"[0-9]{1,15}")


class Shown(NamedTuple):
    """A text, perhaps shortened."""

    text: str
    cut: int
    """How many characters were left out at the end."""

    @property
    def is_whole(self) -> bool:
        return not self.cut


def cut(text: str, chars_max: int = VALUE_CHARS_MAX) -> Shown:
    return Shown(text[:chars_max], max(0, len(text) - chars_max))


def visible(given: Any) -> Any:
    """Replace control characters in a text by visible symbols, also those that reverse the direction of text. Values
    that are not text are returned unchanged."""
    return given.translate(CONTROLS) if type(given) is str and not given.isprintable() else given


def exact(given: Any) -> Markup:
    """Escape the value of a form field, but do not apply `visible` to it: the form sends the value back."""
    return escape(given)


def cause(text: Any) -> str:
    """Return the line of a message that says what went wrong."""
    return error_line(str(text or ""))[:LINE_CHARS_MAX]


def value(given: Any, chars_max: int = VALUE_CHARS_MAX) -> Shown:
    """Return a value as indented JSON. Values that JSON does not have are written as by `jqd get -o json`."""
    text = json_ext.json_of(bytes(given) if isinstance(given, msgspec.Raw) else msgspec.msgpack.encode(given))
    try:
        text = msgspec.json.format(text, indent=2)
    except RecursionError:
        return cut(text.decode(), chars_max)  # too deep to be indented: on one line
    return cut(text.decode(), chars_max)


def read_value(text: str) -> Any:
    """Decode JSON that a person typed. Raises ValueError, whose message says what is wrong, and where."""
    try:
        value = json_ext.read(text.encode())
        msgspec.msgpack.encode(value)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError(f"this is no JSON that MessagePack can carry: {error}") from error
    return value


def count_of(text: str) -> int:
    """Read a number of jobs from a form or a URL. Raises ValueError if it is none."""
    if not _COUNT.fullmatch(text):
        raise ValueError(f"{text[:32]!r} is no number of jobs")
    return int(text)


def number(given: Any) -> str:
    """Format a number: a count with thin spaces between thousands, a rate below ten with one decimal."""
    if isinstance(given, float) and given < 10 and given != int(given):
        return f"{given:.1f}"
    return f"{given:,.0f}".replace(",", "\u202f") if isinstance(given, int | float) else "–"


def word(given: Any) -> str:
    """Format the value of an option for people: yes or no, numbers, lists with commas."""
    match given:
        case bool():
            return "yes" if given else "no"
        case list():
            return ", ".join(map(word, given))
        case float():
            return f"{given:g}"
    return str(given)


def link(path: str, /, **query: Any) -> str:
    """Return a URL of this UI: `path` with the query. Ids and names go into the query, where any character may stand.

    Empty values are left out, except an empty tenant: `tenant=` means jobs without a tenant, and no `tenant` means all
    jobs.
    """
    given = {name: str(each) for name, each in query.items() if each or each == 0 or (name, each) == ("tenant", "")}
    return f"{path}?{urlencode(given, quote_via=quote)}" if given else path


def command(*words: str, of: Sequence[str] = (), **flags: Any) -> str:
    """Return a command line, quoted for a shell: `words`, the flags that have a value, and `of` (names and ids).

    If a name or id in `of` begins with a hyphen, `--` comes before them. Otherwise it could be read as an option, and
    some options decide where a token is sent.
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
