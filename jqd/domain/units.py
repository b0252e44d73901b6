"""Parses amounts as people write them: 90, 30s, 5m, 2h, 1d; 64MiB."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated

from msgspec import Meta

SECONDS: Mapping[str, float] = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
BYTES: Mapping[str, float] = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}
SECONDS_MAX = 10 * 365 * 86_400.0  # ten years: as milliseconds, added to a date, a float is still exact
BYTES_MAX = 1 << 50  # a pebibyte
COUNT_MAX = 1_000_000_000
# Types of settings.
Span = Annotated[float, Meta(ge=0, le=SECONDS_MAX, description="0 to 315,360,000")]
Seconds = Annotated[float, Meta(gt=0, le=SECONDS_MAX, description="above 0, and at most ten years")]
Bytes = Annotated[int, Meta(gt=0, le=BYTES_MAX, description="above 0, and at most 2^50")]
Count = Annotated[int, Meta(gt=0, le=COUNT_MAX, description="1 or more, and at most 1,000,000,000")]
Times = Annotated[int, Meta(ge=0, le=COUNT_MAX, description="0 to 1,000,000,000")]

Duration = float | str | timedelta
"""Seconds, a text like "20s" or "5m", or a timedelta."""
Durations = Duration | Sequence[Duration]
"""One duration, or a list of them."""

_AMOUNT = re.compile(r"\s*([+-]?[0-9][0-9_]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")


def amount(text: str, units: Mapping[str, float]) -> float:
    """Parse a number with an optional unit, and return their product. Raises ValueError, whose text says what may be
    written."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"write one like {', '.join(('90', '1.5', *(f'30{unit}' for unit in units)))}")
    number, unit = float(match[1].replace("_", "")), match[2]
    if unit and unit not in units:
        raise ValueError(f"unknown unit {unit!r}" + (f"; there are {', '.join(units)}" if units else ""))
    return number * units[unit] if unit else number


def as_text(number: float, units: Mapping[str, float]) -> str:
    """Return a number as text in the largest unit of which it is a multiple, such as 25s or 64MiB."""
    size, unit = max(
        ((size, unit) for unit, size in units.items() if size == 1 or (number and number % size == 0)), default=(1, "")
    )
    value = number / size
    return f"{int(value) if value == int(value) else value}{unit}"


def seconds(text: str) -> float:
    """Parse a duration of 0 or more, and return it in seconds; a number without a unit is in seconds. Raises
    ValueError."""
    found = amount(text, SECONDS)
    if not 0 <= found < math.inf:
        raise ValueError("it is 0 or more, and finite")
    return found


def has_unit(text: str) -> bool:
    return text.strip()[-1:].isalpha()


def duration_s(given: Duration) -> float:
    """Return a duration, which may be a text, a number or a timedelta, in seconds, as a plain number: one of numpy's
    cannot be encoded. Raises TypeError, ValueError."""
    if isinstance(given, timedelta):
        return given.total_seconds()
    if not isinstance(given, str):
        return given if isinstance(given, int) else float(given)
    try:
        return seconds(given)
    except ValueError as error:
        raise ValueError(f"{given!r} is no duration: {error}") from None


def durations_s(given: Durations) -> float | list[float]:
    """Return one duration in seconds, or a list of durations as a list of seconds. Raises ValueError."""
    if isinstance(given, float | int | str | timedelta):
        return duration_s(given)
    return [duration_s(each) for each in given]
