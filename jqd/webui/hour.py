"""The last hour, minute by minute, as rows of a table: what is drawn on *Now* is read from there. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jqd.webui.values import instant, lasting, number

COLUMNS = ("Minute", "Pushed", "Started", "Succeeded", "Failed", "Wait, half", "Wait, 95 %", "Run, half", "Run, 95 %")


class Cell(NamedTuple):
    text: str
    number: str
    """What is drawn; empty: nothing."""


def rows(history: Mapping[str, Any]) -> list[list[Cell]]:
    """Return a row for each step, the oldest first."""
    return [_row(step, history) for step in history["steps"]]


def _row(step: Mapping[str, Any], history: Mapping[str, Any]) -> list[Cell]:
    at = instant(step["at"])
    counts = (step["pushed"], step["started"], step["succeeded"], step["failed"] + step["dead"])
    return [
        Cell(f"{at:%H:%M}", f"{at.timestamp():.0f}") if at else Cell("", ""),
        *(Cell(number(count), str(count)) for count in counts),
        *(
            _seconds(step[field], history[f"{field}_bounds"], share)
            for field in ("wait", "run")
            for share in (0.5, 0.95)
        ),
    ]


def _seconds(counts: Sequence[int], bounds: Sequence[float], share: float) -> Cell:
    """Return below what that share of all lies: the upper bound of its bucket, of the open one the last bound there
    is."""
    if not sum(counts):
        return Cell("–", "")
    met, due = 0, share * sum(counts)
    for bound, count in zip(bounds, counts, strict=False):
        met += count
        if met >= due:
            return Cell(f"≤ {_words(bound)}", f"{bound:g}")
    return Cell(f"> {_words(bounds[-1])}", f"{bounds[-1]:g}")


def _words(seconds: float) -> str:
    return lasting(seconds) if seconds >= 1 else f"{seconds * 1000:.0f} ms"
