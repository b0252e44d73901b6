"""Prints results of commands: aligned lines for people, JSON or JSON lines for programs.

Values that JSON does not have are written in the same way as by the daemon (jqd/domain/json_ext.py).
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.text import Text

from jqd.domain import json_ext
from jqd.domain.dates import iso_of
from jqd.domain.error_summary import error_line, readable
from jqd.domain.visible import CONTROLS, IN_JSON

GAP = "  "
Table = tuple[Sequence[str], Sequence[Sequence[Any]]]
"""Headings and rows."""
COLOURS = {"succeeded": "green", "running": "cyan", "retrying": "yellow", "failed": "red", "cancelled": "bright_black"}


def console() -> Console:
    """Return a console for stdout that neither highlights text nor wraps lines."""
    return Console(highlight=False, soft_wrap=True)


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    styles: Mapping[int, str] | None = None,
    *,
    right: Sequence[str] = (),
) -> Text:
    """Format a table with one line for each row. `styles`: row number → style. `right`: headings of the columns that
    are aligned right."""
    cells = [[_cell(value) for value in row] for row in rows]
    lines = [[_cell(heading) for heading in headings], *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    aligned = [str.rjust if heading in right else str.ljust for heading in headings]
    text = Text(style="")
    for number, line in enumerate(lines):
        words = GAP.join(align(cell, width) for align, cell, width in zip(aligned, line, widths, strict=True)).rstrip()
        style = "bold" if number == 0 else (styles or {}).get(number - 1, "")
        text.append(words, style=style)
        text.append("\n")
    return text


def whose(headings: Sequence[str], rows: Sequence[Sequence[Any]], tenants: Sequence[str], at: int) -> Table:
    """Return headings and rows with a column TENANT added at index `at`; unchanged if no row has a tenant. `tenants`:
    the tenant of each row, or an empty text."""
    if not any(tenants):
        return headings, rows
    wider = [(*row[:at], tenant, *row[at:]) for row, tenant in zip(rows, tenants, strict=True)]
    return (*headings[:at], "TENANT", *headings[at:]), wider


def tenants_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row.get("tenant") or "" for row in rows]


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text.strip().rpartition("\n")[2].translate(CONTROLS)


Output = Literal["table", "json", "jsonl"]

USERS = ("argument", "result", "error")  # fields with users' values: shown unchanged, as JSON
VALUE_LENGTH_MAX = 2_000  # characters shown to people of such a value: half a screen


def show(value: Any, output: Output) -> None:
    value = plain(value)
    if output == "table":
        _table(value)
    elif output == "jsonl" and isinstance(value, list):
        for item in value:
            _json(item)
    else:
        _json(value, indent=1 if output == "json" else None)


def show_as(text: str, value: Any, output: Output) -> None:
    """Print `text` for people, or `value` if the output format is for programs."""
    if output == "table":
        _line(text.translate(CONTROLS))
    else:
        show(value, output)


def plain(value: Any) -> Any:
    """Convert an answer of the client to values that JSON has."""
    match value:
        case msgspec.Struct():
            return plain(msgspec.structs.asdict(value))
        case Mapping() if json_ext.is_plain(value):
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case datetime():
            return iso_of(value)  # as the daemon writes them
        case str() | int() | None:
            return value
    return json_ext.show_packed(msgspec.msgpack.encode(value))


def _json(value: Any, indent: int | None = None) -> None:
    _line(json.dumps(value, ensure_ascii=False, indent=indent).translate(IN_JSON))


def _line(text: str) -> None:
    sys.stdout.write(text + "\n")


def _table(value: Any) -> None:
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for index, item in enumerate(value):
            if index:
                _line("")
            _table(item)
    elif isinstance(value, list):
        for item in value:
            _line(_inline(item))
    elif isinstance(value, dict):
        _rows(value)
    else:
        _line(_inline(value))


def _rows(value: dict[str, Any]) -> None:
    """Print each field on a line: name, then value. Further lines of a value are indented below its first."""
    console = Console(highlight=False, soft_wrap=True)
    fields = {name: item for name, item in value.items() if _worth(name, item)}
    width = max((len(name) for name in fields), default=0) + 2
    for name, item in fields.items():
        first, *more = [line.translate(CONTROLS) for line in _lines(name, item)] or [""]
        console.print(Text.assemble((name.translate(CONTROLS).ljust(width), "bold"), first))
        for line in more:
            _line(" " * width + line)


def _worth(name: str, item: Any) -> bool:
    """Return whether to print a field: not if it is None; if it is empty, only if it holds a user's value (USERS)."""
    return item is not None and (name in USERS or item not in ("", [], {}))


def _lines(name: str, item: Any) -> Iterator[str]:
    if name in USERS:
        text = item.rstrip("\n") if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
        more = f" … ({len(text)} characters; -o json has all)" if len(text) > VALUE_LENGTH_MAX else ""
        yield from (text[:VALUE_LENGTH_MAX] + more).split("\n")
    elif isinstance(item, str):
        yield from readable(item).rstrip("\n").split("\n")
    elif isinstance(item, list) and any(isinstance(part, dict) for part in item):
        for part in item:
            yield _inline(part)
    elif isinstance(item, dict):
        inner = {key: part for key, part in item.items() if isinstance(part, (dict, list)) and _worth(key, part)}
        if len(inner) < len(item):
            yield _inline({key: part for key, part in item.items() if key not in inner})
        for key, part in inner.items():
            for line in _lines(key, part):
                yield f"{key}: {line}"
    else:
        yield _inline(item)


def _inline(item: Any, name: str = "") -> str:
    """Format a value on one line. Of a text with several lines, such as a traceback, only the line with the error is
    shown."""
    if isinstance(item, dict) and name not in USERS:
        return "  ".join(f"{key} {_inline(part, key)}" for key, part in item.items() if _worth(key, part))
    if isinstance(item, str):
        return error_line(item).translate(CONTROLS)
    if isinstance(item, float):
        return f"{item:.6g}"
    return json.dumps(item, ensure_ascii=False).translate(CONTROLS)
