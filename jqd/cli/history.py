"""Draws counts over time as lines of bars, for `jqd history` and `jqd top`."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from rich.text import Text

from jqd.cli.common import Common, Flag, age
from jqd.cli.exits import Exit, Usage
from jqd.cli.render import console, show, table, tenants_of, whose
from jqd.domain.visible import CONTROLS

COLUMNS = 60  # bars of a line: an hour of minutes; a terminal of 80 columns has room for the numbers beside
TYPES_SHOWN = 30  # jobtypes: a screen
BARS = "▁▂▃▄▅▆▇█"
NONE = "·"
FAILED = ("failed", "dead")
LINES: Mapping[str, tuple[str, ...]] = {
    "pushed": ("pushed",),
    "started": ("started",),
    "succeeded": ("succeeded",),
    "retried": ("retried",),
    "failed": FAILED,
    "cancelled": ("cancelled",),
}
TOP_LINES = ("pushed", "succeeded", "failed")
STYLES = {"failed": "red", "retried": "yellow"}
SHARES = (0.5, 0.95)


def history(
    name: str | None = None,
    /,
    *,
    last: str = "1h",
    types: Flag = False,
    common: Common = Common(),
) -> int:
    """Show minute by minute how many jobs were pushed, started and ended, and how long they waited and ran.

    Parameters
    ----------
    name
        A jobtype. Default: all jobtypes together.
    last
        How far back: 30m, 8h, 7d. Up to 8 h in steps of a minute, up to 8 d in steps of ten minutes.
    types
        Show a line for each jobtype, the busiest first.
    """
    with common.client() as client:
        answer = client.history(name, minutes=_minutes(last), types=types)
    if common.output != "table":
        show(answer["steps"] if common.output == "jsonl" else answer, common.output)
    else:
        console().print(_by_type(answer) if types else _all(answer), end="")
    return Exit.DONE


def _minutes(last: Any) -> int:
    found = age(last, "--last") / 60
    if found < 1:
        raise Usage(f"--last {last}: a minute is the least")
    return round(found)


def spark(numbers: Sequence[float]) -> str:
    """Return a line of characters, a bar for each number: the highest for the largest number, a dot for 0."""
    most = max(numbers, default=0)
    last = len(BARS) - 1
    return "".join(BARS[round(number / most * last)] if number else NONE for number in numbers)


def squeezed(numbers: Sequence[int]) -> list[int]:
    """Return the sums of neighbouring numbers, so many in each sum that there are at most COLUMNS sums."""
    width = -(-len(numbers) // COLUMNS) or 1
    return [sum(numbers[at : at + width]) for at in range(0, len(numbers), width)]


def lines_of(answer: Mapping[str, Any], names: Sequence[str]) -> Text:
    """Return a line of text for each of `names` (keys of LINES): the name, the sum, and bars of the counts over time.
    `answer`: a history, as the daemon returns it."""
    series = {name: [sum(step[part] for part in LINES[name]) for step in answer["steps"]] for name in names}
    sums = {name: f"{sum(numbers):,}" for name, numbers in series.items()}
    width = max(map(len, sums.values()))
    text = Text()
    for name, numbers in series.items():
        style = STYLES.get(name, "") if any(numbers) else ""
        text.append(f"{name:<9} {sums[name]:>{width}}  {spark(squeezed(numbers))}\n", style=style)
    return text


def _all(answer: Mapping[str, Any]) -> Text:
    text = _heading(answer)
    text.append_text(lines_of(answer, tuple(LINES)))
    for what, about in (("wait", "first attempts waited"), ("run", "attempts ran")):
        counts = [sum(column) for column in zip(*(step[what] for step in answer["steps"]), strict=True)]
        if any(counts):
            shares = ", ".join(f"{share:.0%} {_within(counts, answer[f'{what}_bounds'], share)}" for share in SHARES)
            text.append(f"{sum(counts):,} {about}: {shares}\n")
    return text


def _heading(answer: Mapping[str, Any]) -> Text:
    steps, since = answer["steps"], answer["since"]
    each = -(-len(steps) // COLUMNS) * answer["step_minutes"]
    when = f"since {_at(steps[0]['at'])} UTC, {each} min a bar"
    known = f"; nothing is known from before {_at(since)}" if since and steps and since > steps[0]["at"] else ""
    unread = f"; {answer['unread']} rows of a later release are left out" if answer.get("unread") else ""
    return Text(f"{when}{known}{unread}\n", style="bold")


def _at(date: str | None) -> str:
    return str(date or "")[:16].replace("T", " ")


def _within(counts: Sequence[int], bounds: Sequence[float], share: float) -> str:
    """Return, as text, the upper bound of the histogram bucket in which `share` of all counts is reached."""
    wanted = share * sum(counts)
    place = next(place for place, so_far in enumerate(accumulate(counts)) if so_far >= wanted)
    return f"within {bounds[place]:g} s" if place < len(bounds) else f"above {bounds[-1]:g} s"


def _by_type(answer: Mapping[str, Any]) -> Text:
    rows = answer["types"][:TYPES_SHOWN]
    cells = [
        (
            str(row["name"] or "(others)").translate(CONTROLS),
            *(f"{sum(row[what]):,}" for what in ("pushed", "ended", "failed")),
            spark(squeezed(row["ended"])),
        )
        for row in rows
    ]
    styles = {place: "red" for place, row in enumerate(rows) if any(row["failed"])}
    text = _heading(answer)
    text.append_text(table(*whose(("NAME", "PUSHED", "ENDED", "FAILED", "ENDED"), cells, tenants_of(rows), 1), styles))
    if more := len(answer["types"]) - len(rows):
        text.append(f"and {more} more, of which there were fewer: -o json has them\n")
    return text
