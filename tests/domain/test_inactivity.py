"""For how long somebody has said nothing: without the time in which nobody listened."""

from jqd.domain.clock import Inactivity
from jqd.testing.clock import ManualClock


def test_it_stands_still_within_a_pause_and_runs_on_behind_it() -> None:
    clock = ManualClock()
    silence = Inactivity(clock.mono_s())
    clock.advance(2)
    with silence.pause(clock.mono_s):
        clock.advance(100)
        assert silence.lasts_s(clock.mono_s()) == 2
    assert silence.lasts_s(clock.mono_s()) == 2
    clock.advance(1)
    assert silence.lasts_s(clock.mono_s()) == 3


def test_a_word_within_a_pause_begins_it_anew() -> None:
    """As of another job of the request, by itself."""
    clock = ManualClock()
    silence = Inactivity(clock.mono_s())
    clock.advance(2)
    with silence.pause(clock.mono_s):
        clock.advance(10)
        silence.since_s = clock.mono_s()
        clock.advance(90)
        assert silence.lasts_s(clock.mono_s()) == 0
    clock.advance(1)
    assert silence.lasts_s(clock.mono_s()) == 1
