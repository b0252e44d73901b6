"""Recurring dates: by a cron expression in a time zone, or every so many seconds. The package cronsim computes the
dates of cron expressions.

When clocks are set forward or back, this does what Debian's cron does (SCHEDULING.md). A time of day that does not
exist that night is replaced by the end of the gap; one that exists twice counts once, the first time. If the field of
the minute or the hour begins with `*`, the elapsed time counts: every ten minutes stays every ten minutes in that
night.
"""

import difflib
import pkgutil
import re
from collections.abc import Iterator
from datetime import UTC as UTC_ZONE
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from msgspec import Struct

from jqd.domain.dates import date_of, ms_of
from jqd.domain.errors import Fault

UTC = "UTC"
OF_THIS_MACHINE = frozenset({"localtime", "posixrules", "Factory"})  # these may differ from one daemon to another
FIELDS = (
    ("second", "0 to 59"),
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31, L for the last, LW for the last weekday"),
    ("month", "1 to 12, or JAN to DEC"),
    ("day of the week", "0 to 7, or SUN to SAT, 5L for the last Friday, FRI#2 for the second"),
)
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_WORD = re.compile(r"\S+")


class Recurrence(Struct, frozen=True, omit_defaults=True):
    """The dates of a schedule, from a cron expression or a period."""

    cron: str = ""
    every_ms: int = 0
    """The time between two dates, used if `cron` is empty. It is counted from `anchor_ms`, so the dates never drift."""
    tz: str = UTC
    """The time zone of `cron`."""
    anchor_ms: int = 0
    until_ms: int = 0
    """No date comes after this one; 0: there is no end."""

    def after(self, at_ms: int) -> int | None:
        """Return the first date after an instant, both in Unix ms; None if there is none.

        Raises ValueError if there is no such time zone.
        """
        found = self._next(at_ms)
        return None if found is None or 0 < self.until_ms < found else found

    def dates(self, at_ms: int) -> Iterator[int]:
        found = self.after(at_ms)
        while found is not None:
            yield found
            found = self.after(found)

    def _next(self, at_ms: int) -> int | None:
        if self.every_ms:
            return self.anchor_ms + max(1, (at_ms - self.anchor_ms) // self.every_ms + 1) * self.every_ms
        begin = date_of(at_ms).astimezone(zone(self.tz))
        found = self._first(begin, at_ms)
        # `begin` may be in the same hour as a change of the clocks, after it.
        began = {begin.utcoffset(), begin.replace(minute=0).utcoffset()}
        if found is not None and began != {found.utcoffset()}:
            # cronsim goes in whole hours, so after a change by half an hour it is in the middle of an hour, or leaves
            # one out. So search again from the beginning of that hour, and from the first hour after the change.
            hour = found.replace(minute=0, second=0).astimezone(UTC_ZONE)
            begins = (hour, _hour_after_shift(begin, found))
            later = (self._first((each - timedelta(seconds=1)).astimezone(begin.tzinfo), at_ms) for each in begins)
            found = min((date for date in later if date is not None), key=ms_of, default=None)
        return None if found is None else ms_of(found)

    def _first(self, begin: datetime, at_ms: int) -> datetime | None:
        # When an hour comes twice, cronsim returns its first occurrence, which may be before the instant.
        cron = MACROS.get(self.cron.strip().lower(), self.cron)
        return next((date for date in CronSim(cron, begin) if ms_of(date) > at_ms), None)


def _hour_after_shift(begin: datetime, found: datetime) -> datetime:
    """Return the first full hour, in local time, after the change of the clocks that lies between `begin` and
    `found`."""
    before, behind, there = ms_of(begin.replace(minute=0)) // 1000, ms_of(found) // 1000, begin.tzinfo
    while behind - before > 1:
        between = (before + behind) // 2
        if date_of(between * 1000).astimezone(there).utcoffset() == found.utcoffset():
            behind = between
        else:
            before = between
    shifted = date_of(behind * 1000).astimezone(there)
    return (shifted.replace(minute=0, second=0, fold=0) + timedelta(hours=1)).astimezone(UTC_ZONE)


@cache
def zone(name: str) -> ZoneInfo:
    """Return a time zone by its name. Raises ValueError if there is none of that name."""
    if name not in _zones():
        raise ValueError(f"{name[:64]!r} is no time zone{_near(name)}")
    return ZoneInfo(name)


def cron_fault(text: str) -> str | None:
    """Return what is wrong with a cron expression, and where. None if it can be parsed, even if none of its dates ever
    comes."""
    if text.strip().lower() in MACROS:
        return None
    words = [*_WORD.finditer(text)]
    if len(words) not in (5, 6):
        return (
            f"{text!r} has {len(words)} fields, and a cron expression has 5: minute, hour, day of the month, month, "
            "day of the week; or 6, with the second before them"
        )
    for place, word_found in enumerate(words, 6 - len(words)):
        at = word_found.start()
        for term in word_found[0].split(","):
            if not _is_term(place, term):
                name, may_be = FIELDS[place]
                return (
                    f"character {at + 1} of {text!r}: {term!r} is no {name}: write {may_be}, "
                    "a range like 2-5, a list like 1,3 or a step like */2"
                )
            at += len(term) + 1
    return None


def expect_cron(text: str) -> None:
    """Raise ValueError if a cron expression cannot be parsed; its text says what is wrong."""
    if why := cron_fault(text):
        raise ValueError(why)


def faults(recurrence: Recurrence, now_ms: int) -> Iterator[Fault]:
    """Yield what is wrong with the recurring dates that a client asks for, such as that no date comes after
    `now_ms`."""
    why = cron_fault(recurrence.cron) if recurrence.cron else None
    if why is not None:
        yield Fault("/cron", why)
    try:
        zone(recurrence.tz)
    except ValueError as error:
        yield Fault("/tz", str(error))
        return
    if why is not None:
        return
    if recurrence.cron and _never_comes(recurrence, now_ms):
        yield Fault("/cron", f"no such date comes in the next 50 years: {recurrence.cron!r}; look at day and month")
    elif recurrence.after(now_ms) is None:
        yield Fault("/until", "no date comes before until")


def _never_comes(recurrence: Recurrence, now_ms: int) -> bool:
    try:
        return Recurrence(recurrence.cron, tz=recurrence.tz).after(now_ms) is None
    except CronSimError:
        return True  # for example for the 30th of February


def _is_term(place: int, term: str) -> bool:
    parts = ["*"] * 6
    parts[place] = term
    try:
        CronSim(" ".join(parts), date_of(0))
    except (CronSimError, ValueError):  # Python raises the latter for a number with thousands of digits
        return False
    return bool(term)


@cache
def _zones() -> frozenset[str]:
    """Return the names of all time zones. They are those of the package tzdata, as the standard library would open all
    files of this machine's time zones to find their names."""
    names = pkgutil.get_data("tzdata", "zones")
    assert names is not None, "an ordinary package has data"
    return frozenset(names.decode().split()) - OF_THIS_MACHINE


def _near(name: str) -> str:
    lower = {each.lower(): each for each in _zones()}
    city = name.rpartition("/")[2].replace(" ", "_").lower()
    same = sorted(each for each in lower if city and each.rpartition("/")[2] == city)
    close = same or difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.8)
    return f"; did you mean {lower[close[0]]!r}?" if close else "; write one like 'Europe/Berlin', or 'UTC'"
