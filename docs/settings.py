"""`python docs/settings.py`: writes the tables of operate/SETTINGS.md from the classes that hold the settings, and the
copy of that page in jqd/.

What a setting is for stands as text below its field; a last line "Allowed: …" there replaces what its type says. The
prose between the tables is written by hand, in the page.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

from jqd.api.meanings import texts_of
from jqd.config import Config, settings
from jqd.domain.fields import allowed
from jqd.domain.setting_text import text_of

DOCS = Path(__file__).parent
PAGE = DOCS / "operate" / "SETTINGS.md"
SHIPPED = DOCS.parent / "jqd" / "settings.md"  # the same: `jqd config show` reads it
HEAD = "setting| default| allowed| what it is for, and when to change it\n---|---|---|---\n"
_TABLE = re.compile(re.escape(HEAD) + r"(`([a-z_.]+)`\| .*\n)+")
_LINK = re.compile(r"\b([A-Z]+\.md)(#[\w-]+)?")


def render(page: str) -> str:
    """The page with its tables made again. A table has the section whose setting it begins with."""
    written: set[str] = set()

    def again(table: re.Match[str]) -> str:
        section = table[0].removeprefix(HEAD).partition("`")[2].partition("`")[0].rpartition(".")[0]
        written.add(section)
        return HEAD + "".join(f"{row}\n" for row in _rows(section))

    page = _TABLE.sub(again, page)
    if missing := {key.rpartition(".")[0] for key, _ in settings(Config)} - written:
        raise SystemExit(
            f"{PAGE.name} has no table of {', '.join(sorted(missing))}: begin one with one of its settings"
        )
    return page


def _rows(section: str) -> Iterator[str]:
    holder: Any = Config()
    for name in section.split(".") if section else ():
        holder = getattr(holder, name)
    kind: type = type(holder)
    hints = get_type_hints(kind, include_extras=True)
    for key, _ in settings(Config):
        above, _, name = key.rpartition(".")
        if above != section:
            continue
        why, _, may_be = texts_of(kind)[name].partition("\nAllowed: ")
        may_be = may_be or _allowed(hints[name])
        default = _default(getattr(holder, name), name)
        yield f"`{key}`| {default}| {' '.join(may_be.split())}| {_linked(' '.join(why.split()))}"


def _allowed(hint: Any) -> str:
    """By the type: without the limits that nobody reaches."""
    words = re.sub(r", and at most .*| to 1,000,000,000$", "", allowed(hint))
    if words.startswith("one of "):
        return ", ".join(f"`{word}`" for word in words.removeprefix("one of ").split(", "))
    words = {"something else": "a path", "0": "0 or more", "true or false": "flag"}.get(words, words)
    return re.sub(r"^above (\d+)$", r">\1", re.sub(r"^(\d+) or more$", r"≥\1", words))


def _default(value: Any, name: str) -> str:
    """As it would be written in the file, without quotes."""
    if type(value) is int and "_bytes" not in name and value >= 10_000:
        text = f"{value:_}"
    elif type(value) is float and name.endswith("_s") and 0 < value < 1:
        text = f"{value * 1000:g}ms"
    else:
        text = text_of(value, name)
    return f"`{text.removesuffix('s') if value == 0 else text}`" if text else "none"


def _linked(text: str) -> str:
    """With links in place of the names of pages."""

    def link(name: re.Match[str]) -> str:
        (page,) = DOCS.glob(f"*/{name[1]}")
        there = page.name if page.parent == PAGE.parent else f"../{page.parent.name}/{page.name}"
        return f"[{name[1]}]({there}{name[2] or ''})"

    return _LINK.sub(link, text)


if __name__ == "__main__":
    for path in (PAGE, SHIPPED):
        path.write_text(render(PAGE.read_text()))
