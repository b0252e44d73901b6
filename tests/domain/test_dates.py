"""Dates: what is read can be told, what is told can be read."""

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.dates import INSTANT_MS_MAX, date_of, instant_ms, iso, iso_of, ms_of, utc

INSTANTS = st.integers(0, INSTANT_MS_MAX)


@given(INSTANTS)
def test_an_instant_comes_back_from_every_form_of_it(at_ms: int) -> None:
    assert ms_of(date_of(at_ms)) == at_ms
    assert instant_ms(iso(at_ms)) == at_ms
    assert iso(at_ms).endswith("Z")


@given(INSTANTS, st.integers(-1439, 1439))
def test_the_zone_it_is_told_in_makes_no_difference(at_ms: int, offset: int) -> None:
    try:
        there = date_of(at_ms).astimezone(timezone(timedelta(minutes=offset)))
    except OverflowError:
        return  # its clock shows a year that no calendar has
    assert instant_ms(iso_of(there)) == at_ms


@given(st.integers(0, INSTANT_MS_MAX // 1000))
def test_unix_seconds_are_the_same_instant(at_s: int) -> None:
    assert instant_ms(at_s) == at_s * 1000
    assert instant_ms(float(at_s)) == at_s * 1000


@given(st.integers())
def test_an_instant_no_calendar_has_is_told_as_the_nearest(at_ms: int) -> None:
    assert instant_ms(iso(at_ms)) == min(max(0, at_ms), INSTANT_MS_MAX)


@given(st.text() | st.floats() | st.integers())
def test_whatever_is_told_is_a_date_or_refused(told: str | float) -> None:
    with contextlib.suppress(ValueError):  # any other error would be an internal error
        assert 0 <= instant_ms(told) <= INSTANT_MS_MAX


def test_a_date_without_a_zone_is_in_utc() -> None:
    plain = datetime(2030, 1, 31, 12)
    assert utc(plain) == datetime(2030, 1, 31, 12, tzinfo=UTC)
    assert ms_of(plain) == ms_of(utc(plain)) == 1_896_091_200_000
    with pytest.raises(ValueError, match="has no time zone; add Z"):
        instant_ms("2030-01-31T12:00:00")
