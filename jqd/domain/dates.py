"""Converts dates. jqd uses Unix milliseconds inside, and ISO 8601 in UTC in its interfaces."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

INSTANT_MS_MAX = 253_402_300_799_999  # the last millisecond of the year 9999 in UTC: `datetime` has no later one
QUOTE_LENGTH_MAX = 64  # characters of a client's wrong date that an error repeats
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def date_of(at_ms: int) -> datetime:
    """Return Unix milliseconds as a date. A value outside the years 1970 to 9999 becomes the nearest date within
    them."""
    return _EPOCH + min(max(0, at_ms), INSTANT_MS_MAX) * _MILLISECOND


def ms_of(date: datetime) -> int:
    """Return a date as Unix milliseconds, rounded down. A date without a time zone counts as UTC."""
    return (utc(date) - _EPOCH) // _MILLISECOND


def utc(date: datetime) -> datetime:
    """Return a date with a time zone: UTC if it has none."""
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def iso(at_ms: int) -> str:
    """Return Unix milliseconds as `2026-01-31T12:00:00.123Z`."""
    second, ms = divmod(min(max(0, at_ms), INSTANT_MS_MAX), 1000)
    return f"{_second(second)}.{ms:03}Z"


@lru_cache(maxsize=64)  # most dates are of the present second, or of jobs that were pushed together
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat().removesuffix("+00:00")


def iso_of(date: datetime) -> str:
    """Return a date with a time zone as `2026-01-31T12:00:00.123Z`, or with its offset if it is not in UTC."""
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant_ms(instant: str | float) -> int:
    """Return a date that a client sent as Unix milliseconds. The date is ISO 8601 with a time zone, or Unix seconds.
    Raises ValueError for dates before 1970 or after 9999 in UTC, as these could not be shown."""
    quoted = repr(instant[:QUOTE_LENGTH_MAX] if isinstance(instant, str) else instant)
    if isinstance(instant, str):
        try:
            date = datetime.fromisoformat(instant)
        except ValueError:
            raise ValueError(f"{quoted} is no ISO 8601 date; write it like 2030-01-31T08:00:00Z") from None
        if date.tzinfo is None:
            raise ValueError(f"{quoted} has no time zone; add Z or an offset like +09:00")
        at_ms = ms_of(date)
    else:
        # Compared before it is rounded: NaN and infinity cannot be rounded.
        at_ms = round(instant * 1000) if 0 <= instant <= INSTANT_MS_MAX / 1000 else -1
    if not 0 <= at_ms <= INSTANT_MS_MAX:
        seconds = "; Unix seconds are meant, not milliseconds" if not isinstance(instant, str) and instant > 0 else ""
        raise ValueError(f"{quoted} is no date of the years 1970 to 9999 in UTC{seconds}")
    return at_ms


def date_in(value: Any) -> datetime | None:
    """Return a value of an API answer as a date; None if the value is no date."""
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value) if value else None
    except (TypeError, ValueError):
        return None


def lasting(seconds: float) -> str:
    """Return a duration in its two largest units: 4.5 s, 3 min 20 s, 2 d 4 h."""
    left = max(0.0, seconds)
    if left < 10:
        return f"{round(left, 1):g} s"
    parts = list[str]()
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count and len(parts) < 2:
            parts.append(f"{count:.0f} {unit}")
    return " ".join(parts)


def ago(value: Any, now: datetime | None = None) -> str:
    """Return how far a date is from `now` (default: the present), such as "5 s ago" or "in 2 d"; empty if the value is
    no date."""
    at = date_in(value)
    if at is None:
        return ""
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    return f"{lasting(seconds)} ago" if seconds >= 0 else f"in {lasting(-seconds)}"
