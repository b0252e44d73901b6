"""Durations and sizes with their units."""

import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.units import BYTES, SECONDS, amount, has_unit, seconds


@given(st.sampled_from([SECONDS, BYTES]), st.data(), st.integers(0, 10_000))
def test_a_number_with_a_unit_is_that_many(units: Mapping[str, float], data: st.DataObject, number: int) -> None:
    unit = data.draw(st.sampled_from(sorted(units)))
    for text in (f"{number}{unit}", f" {number}.0 {unit} "):
        assert amount(text, units) == pytest.approx(number * units[unit])
        assert has_unit(text)


@given(st.floats(0, 1e300))
def test_a_number_without_a_unit_is_itself(number: float) -> None:
    assert seconds(repr(number)) == number
    assert not has_unit(repr(number))


@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    with contextlib.suppress(ValueError):  # any other error would be an internal error
        assert seconds(text) >= 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "write one like"),
        ("soon", "write one like 90, 1.5, 30ms, 30s, 30m, 30h, 30d"),
        ("5 parsec", "unknown unit 'parsec'; there are ms, s"),
        ("-1s", "0 or more"),
        ("9e999", "finite"),
    ],
)
def test_what_is_no_duration_says_what_one_is(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        seconds(text)
