"""Rates of the last minute."""

import pytest

from jqd.words.clock import ManualClock
from jqd.words.rates import JOBTYPES_MAX, SPAN_S, Rates


def test_a_rate_is_over_the_last_minute() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    clock.advance(600)
    for _ in range(30):
        rates.note(["a", "a", "b"])
        clock.advance(2)
    assert (rates.per_s("a"), rates.per_s("b"), rates.per_s("c")) == (1.0, 0.5, 0.0)
    clock.advance(SPAN_S)
    assert rates.per_s("a") == pytest.approx(0.0, abs=0.2)
    clock.advance(SPAN_S)
    assert rates.per_s("a") == 0.0


def test_a_young_daemon_divides_by_its_age() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    rates.note(["a"] * 10)
    assert rates.per_s("a") == 10.0
    clock.advance(10)
    assert rates.per_s("a") == 1.0


def test_the_number_of_jobtypes_is_bounded() -> None:
    rates = Rates(ManualClock())
    rates.note(str(n) for n in range(JOBTYPES_MAX))
    rates.note(["one more"])
    assert rates.per_s("one more") == 0.0
