"""Rows under headings for people, coloured where stdout is a terminal (`NO_COLOR` turns that off)."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from jqd.cli.render import CONTROLS

GAP = "  "
Table = tuple[Sequence[str], Sequence[Sequence[Any]]]
"""Headings and rows."""
COLOURS = {"succeeded": "green", "running": "cyan", "retrying": "yellow", "failed": "red", "cancelled": "bright_black"}


def console() -> Console:
    """Stdout, with nothing highlighted that we did not colour, and no line cut where it goes to a file."""
    return Console(highlight=False, soft_wrap=True)


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]], styles: Mapping[int, str] | None = None) -> Text:
    """One line for each row; the last column is as long as it is. `styles`: of rows, by their number."""
    cells = [[_cell(value) for value in row] for row in rows]
    lines = [[_cell(heading) for heading in headings], *cells]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    text = Text(style="")
    for number, line in enumerate(lines):
        told = GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        style = "bold" if number == 0 else (styles or {}).get(number - 1, "")
        text.append(told, style=style)
        text.append("\n")
    return text


def whose(headings: Sequence[str], rows: Sequence[Sequence[Any]], tenants: Sequence[str], at: int) -> Table:
    """The same with a column that says the tenant, where one is not the tenant ""."""
    if not any(tenants):
        return headings, rows
    wider = [(*row[:at], tenant, *row[at:]) for row, tenant in zip(rows, tenants, strict=True)]
    return (*headings[:at], "TENANT", *headings[at:]), wider


def tenants_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row.get("tenant") or "" for row in rows]


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """How long ago that was, or in what time it comes."""
    if at is None:
        return ""
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    return f"{lasting(seconds)} ago" if seconds >= 0 else f"in {lasting(-seconds)}"


def lasting(seconds: float) -> str:
    """One number and its unit: what it is about."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text.strip().rpartition("\n")[2].translate(CONTROLS)
