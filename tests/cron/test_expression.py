"""Dates that come again: right in both nights of daylight saving, the same from wherever one begins to count."""

import sys
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice

import pytest
from cronsim import CronSim
from hypothesis import assume, example, given
from hypothesis import strategies as st

from jqd.cron.expression import MACROS, Recurrence, _zones, cron_fault, faults, zone
from jqd.domain.dates import iso, ms_of

SPRING, AUTUMN = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "tz", "day", "dates"),
    [
        # 2:30 does not come that night: it comes when the gap ends. In the other night it comes once, the first time.
        ("30 2 * * *", "Europe/Berlin", SPRING, ["29T01:00", "30T00:30", "31T00:30"]),
        ("30 2 * * *", "Europe/Berlin", AUTUMN, ["25T00:30", "26T01:30", "27T01:30"]),
        ("0,30 2 * * *", "Europe/Berlin", SPRING, ["29T01:00", "30T00:00", "30T00:30"]),
        ("0 3 * * *", "Europe/Berlin", SPRING, ["29T01:00", "30T01:00"]),
        ("0 2-4 * * *", "Europe/Berlin", AUTUMN, ["25T00:00", "25T02:00", "25T03:00", "26T01:00"]),
        # What comes each hour or each few minutes goes on in real time.
        ("30 * * * *", "Europe/Berlin", AUTUMN.replace(day=25, hour=0), ["25T00:30", "25T01:30", "25T02:30"]),
        ("*/20 2 * * *", "Europe/Berlin", AUTUMN, ["25T00:00", "25T00:20", "25T00:40", "25T01:00", "25T01:20"]),
        ("*/20 2 * * *", "Europe/Berlin", SPRING, ["30T00:00"]),
        # Half an hour, and the southern half: the clock goes back on 2026-04-05 there.
        ("15 2 * * *", "Australia/Lord_Howe", datetime(2026, 10, 3, tzinfo=UTC), ["03T15:30", "04T15:15"]),
        ("45 1 * * *", "Australia/Lord_Howe", datetime(2026, 4, 4, tzinfo=UTC), ["04T14:45", "05T15:15"]),
        # Past such a shift an hour is had from its first minute on.
        ("* 0 * * *", "Australia/Lord_Howe", datetime(2026, 4, 4, 13, 59, tzinfo=UTC), ["05T13:30", "05T13:31"]),
        ("*/10 3 * * *", "Australia/Lord_Howe", datetime(2026, 10, 3, 14, tzinfo=UTC), ["03T16:00", "03T16:10"]),
        # A day that an island left out.
        ("0 12 * * *", "Pacific/Apia", datetime(2011, 12, 29, 0, tzinfo=UTC), ["29T22:00", "30T10:00", "30T22:00"]),
        ("59 23 L 2 *", "UTC", datetime(2027, 1, 1, tzinfo=UTC), ["28T23:59", "29T23:59"]),
    ],
)
def test_daylight_saving(cron: str, tz: str, day: datetime, dates: list[str]) -> None:
    found = islice(Recurrence(cron, tz=tz).dates(ms_of(day)), len(dates))
    assert [iso(date_ms)[8:16] for date_ms in found] == dates


FIELD = st.sampled_from(["*", "*/7", "0", "30", "1,2", "0-3", "2"])
HOURS = st.sampled_from(["*", "*/2", "0", "1", "2", "3", "1,2,3", "0-5", "23"])


@given(
    minute=FIELD,
    hour=HOURS,
    tz=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "UTC"]),
    night=st.sampled_from(["2026-03-28", "2026-10-24", "2026-03-07", "2026-10-31", "2026-04-04", "2026-10-03"]),
    from_s=st.integers(0, 2 * 86_400),
)
# As Lord Howe's clock is put back by half an hour, and the first full hour after that.
@example(minute="*", hour="0", tz="Australia/Lord_Howe", night="2026-04-04", from_s=15 * 3_600)
@example(minute="2", hour="*/2", tz="Australia/Lord_Howe", night="2026-04-04", from_s=15 * 3_600 + 1_800)
def test_the_same_dates_from_wherever_one_begins(minute: str, hour: str, tz: str, night: str, from_s: int) -> None:
    recurrence = Recurrence(f"{minute} {hour} * * *", tz=tz)
    begin_ms = ms_of(datetime.fromisoformat(night))
    whole = [*islice(recurrence.dates(begin_ms), 300)]
    assert whole == sorted(set(whole)), "each is later than the one before"
    at_ms = begin_ms + from_s * 1000
    assume(at_ms < whole[-1])
    assert recurrence.after(at_ms) == next(date_ms for date_ms in whole if date_ms > at_ms)


@given(st.text("0123456789*/,-L#W MONJAN²", max_size=60) | st.text(max_size=30))
def test_whatever_is_written_is_a_cron_expression_or_told_why_not(text: str) -> None:
    if cron_fault(text) is None and not [*faults(Recurrence(text), 0)]:
        assert next(CronSim(text, datetime(1970, 1, 1, tzinfo=UTC)))


@given(st.integers(1, 10**9), st.integers(0, 10**12), st.integers(0, 10**12))
def test_every_so_often_never_drifts(every_ms: int, anchor_ms: int, at_ms: int) -> None:
    found = Recurrence(every_ms=every_ms, anchor_ms=anchor_ms).after(at_ms)
    assert found is not None
    assert found > max(at_ms, anchor_ms)
    assert (found - anchor_ms) % every_ms == 0
    assert found - every_ms <= max(at_ms, anchor_ms)


def test_it_ends() -> None:
    day = ms_of(SPRING)
    recurrence = Recurrence("0 * * * *", until_ms=day + 2 * 3_600_000)
    assert [iso(date_ms)[8:16] for date_ms in recurrence.dates(day)] == ["28T13:00", "28T14:00"]


@pytest.mark.parametrize("name", ["", "Berlin/", "..", "a\0b", "x" * 3_000, "EUROPE/BERLIN"])
def test_an_unknown_zone(name: str) -> None:
    with pytest.raises(ValueError, match="is no time zone"):
        zone(name)


@pytest.mark.parametrize("name", ["Europe/Berlin", "Berlin", "Europe/Berlln", "x" * 64])
def test_no_zone_takes_long_also_the_first_and_an_unknown_one(name: str) -> None:
    """For the first one all files of time zones were opened, in up to 90 ms."""
    zone.cache_clear()
    _zones.cache_clear()
    calls = 0

    def count(frame: object, event: str, _: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        with suppress(ValueError):
            zone(name)
    finally:
        sys.setprofile(None)
    assert calls < 20_000


@pytest.mark.parametrize(("word", "fields"), MACROS.items())
def test_a_word_stands_for_its_fields(word: str, fields: str) -> None:
    assert cron_fault(word.upper()) is None
    begin = ms_of(SPRING)
    found = [Recurrence(text, tz="Europe/Berlin").after(begin) for text in (f" {word} ", fields)]
    assert found[0] == found[1] is not None
