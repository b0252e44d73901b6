"""How much a worker that pulls asks for ahead: of quick jobs what ends in a tenth of a second, of others nothing."""

import pytest

from jqd.worker.ahead import AHEAD_JOBS_MAX, MEMORY_S, WINDOW_S, Ahead

SLOTS = 4


def worked(ahead: Ahead, jobtype: str, each_s: float, now_s: float, jobs: int = 400) -> float:
    """The time when so many have ended, as many at once as there are slots."""
    for _ in range(jobs // SLOTS):
        ahead.arrived(jobtype, SLOTS, now_s)
        now_s += each_s
        for _ in range(SLOTS):
            ahead.ended(jobtype, now_s)
    return now_s


@pytest.mark.parametrize(
    ("each_s", "window"),
    [
        (0.0001, SLOTS + AHEAD_JOBS_MAX),
        (0.002, SLOTS / 0.002 * WINDOW_S),
        (0.02, SLOTS / 0.02 * WINDOW_S),
        (0.2, SLOTS),
        (30.0, SLOTS),
    ],
)
def test_so_much_may_be_here_as_ends_in_a_tenth_of_a_second(each_s: float, window: float) -> None:
    ahead = Ahead()
    assert ahead.window(SLOTS, 0.0) == SLOTS, "nothing is known yet"
    now_s = worked(ahead, "quick", each_s, 0.0, jobs=4_000)
    assert ahead.window(SLOTS, now_s) == pytest.approx(window, rel=0.1)


def test_the_slowest_jobtype_of_the_last_seconds_decides() -> None:
    ahead = Ahead()
    now_s = worked(ahead, "quick", 0.002, 0.0)
    wide = ahead.window(SLOTS, now_s)
    assert wide > 100
    ahead.arrived("slow", 1, now_s)
    assert ahead.window(SLOTS, now_s) == SLOTS, "it is not known yet"
    now_s = worked(ahead, "quick", 0.002, now_s, jobs=40_000)
    assert ahead.window(SLOTS, now_s) == SLOTS, "it has not ended yet"
    ahead.ended("slow", now_s)
    now_s = worked(ahead, "quick", 0.002, now_s)
    assert ahead.window(SLOTS, now_s) == SLOTS
    now_s = worked(ahead, "quick", 0.002, now_s + MEMORY_S)
    assert ahead.window(SLOTS, now_s) == pytest.approx(wide, rel=0.1)


def test_jobs_that_did_not_run_say_nothing_of_the_speed() -> None:
    ahead = Ahead()
    now_s = worked(ahead, "slow", 0.2, 0.0)
    for _ in range(40):
        ahead.arrived("slow", 100, now_s)
        for _ in range(100):
            ahead.ended("slow", now_s, ran=False)
        now_s += 0.01
    now_s = worked(ahead, "slow", 0.2, now_s)
    assert ahead.window(SLOTS, now_s) == SLOTS
    assert ahead.window(SLOTS, now_s + MEMORY_S + 1) == SLOTS
    assert not ahead._speeds, "it is forgotten: none of them is in hand"


def test_nothing_goes_ahead_for_a_while_if_told_so() -> None:
    ahead = Ahead()
    now_s = worked(ahead, "quick", 0.002, 0.0)
    ahead.stop_asking_ahead(now_s)
    assert ahead.window(SLOTS, now_s) == SLOTS
    now_s = worked(ahead, "quick", 0.002, now_s + MEMORY_S)
    assert ahead.window(SLOTS, now_s) > SLOTS


def test_what_goes_ahead_is_asked_for_in_quarters_and_a_free_slot_at_once() -> None:
    ahead = Ahead()
    assert [ahead.wanted(SLOTS, here, 0.0) for here in (0, 3, 4, 9)] == [4, 1, 0, 0]
    now_s = worked(ahead, "quick", 0.002, 0.0, jobs=4_000)
    window = ahead.window(SLOTS, now_s)
    assert [ahead.wanted(SLOTS, here, now_s) for here in (0, 3)] == [window, window - 3]
    assert ahead.wanted(SLOTS, window - window // 4 + 1, now_s) == 0
    assert ahead.wanted(SLOTS, window - window // 4 - 1, now_s) == window // 4 + 1
