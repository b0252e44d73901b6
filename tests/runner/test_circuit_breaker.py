"""Slots, window and breaker, on a clock of the test's own."""

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.backoff import Backoff
from jqd.runner.circuit_breaker import NOT_TAKEN_S, RECOVERY_STEPS, SPEEDS_MAX, CircuitBreaker


class Hand(CircuitBreaker):
    """A gate, and the jobs that went through it, by number."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.jobs: list[str] = []
        self._numbers = itertools.count()

    def put(self, count: int, now_s: float) -> None:
        jobs = [str(next(self._numbers)) for _ in range(count)]
        self.jobs += jobs
        self.take("mail", jobs, now_s)

    def back(self, count: int, now_s: float, *, ended: bool) -> None:
        for _ in range(count):
            self.give("mail", [self.jobs.pop(0)], now_s, ended=ended)


def gate_of(max_jobs: int = 8, batch: int | None = None) -> Hand:
    return Hand(
        max_jobs=max_jobs,
        batch=batch,
        backoff=Backoff(first_s=1.0, factor=2.0, cap_s=8.0, jitter=0.0),
        retry_after_max_s=100.0,
        source=random.Random(1),
    )


def work(gate: Hand, now_s: float, *, seconds: float, rate: float) -> float:
    """Keep the gate busy: as many jobs as it gives, `rate` of them a second."""
    end_s = now_s + seconds
    while now_s < end_s:
        count = gate.free("mail", now_s)
        gate.put(count, now_s)
        for _ in range(count):
            now_s += 1 / rate
            gate.back(1, now_s, ended=True)
    return now_s


def test_slots() -> None:
    gate = gate_of(8)
    assert (gate.free("mail", 0), gate.post_jobs_max) == (8, 8)
    gate.put(5, 0)
    assert gate.free("mail", 0) == 3
    gate.back(2, 0, ended=True)
    assert gate.free("mail", 0) == 5
    gate.resize(2, None)
    assert (gate.free("mail", 0), gate.post_jobs_max) == (0, 2)


def test_slots_balance() -> None:
    gate = gate_of()
    gate.put(1, 0)
    gate.back(1, 0, ended=True)
    with pytest.raises(AssertionError):
        gate.give("mail", ["another"], 0, ended=True)


def test_when_none_came_back_no_time_was_worked() -> None:
    """An answer that ends behind its last outcome, and a look at what takes too long, give back no job."""
    gate, idle = gate_of(8, 500), gate_of(8, 500)
    for each in (gate, idle):
        each.put(10, 0)
        each.back(10, 0.01, ended=True)
    gate.give("mail", [], 5.0, ended=True)
    for each in (gate, idle):
        each.put(10, 6.0)
        each.back(10, 6.0625, ended=True)
    assert gate.rate == idle.rate > 100


def test_a_batch_within_the_slots_only_cuts() -> None:
    gate = gate_of(8, 3)
    work(gate, 0, seconds=1, rate=10_000)
    assert (gate.window(), gate.post_jobs_max) == (8, 3)


def test_quick_jobs_open_the_window() -> None:
    gate = gate_of(4, 500)
    assert (gate.window(), gate.post_jobs_max) == (4, 500)
    now_s = work(gate, 0, seconds=1, rate=2_000)
    assert 190 <= gate.window() <= 210, "a tenth of a second's work"
    now_s = work(gate, now_s, seconds=1, rate=50_000)
    assert gate.window() == 504, "what is at work, and one batch ahead"
    work(gate, now_s, seconds=5, rate=10)
    assert gate.window() == 4, "slow again"


def test_idle_time_does_not_make_a_worker_slow() -> None:
    gate = gate_of(4, 500)
    now_s = work(gate, 0, seconds=1, rate=2_000)
    gate.put(100, now_s + 3600)
    for number in range(1, 101):
        gate.back(1, now_s + 3600 + number / 2_000, ended=True)
    assert gate.rate > 1_900


def test_a_wide_window_is_refilled_in_quarters() -> None:
    gate = gate_of(4, 500)
    now_s = work(gate, 0, seconds=1, rate=50_000)
    gate.put(504, now_s)
    gate.back(125, now_s, ended=False)
    assert gate.free("mail", now_s) == 0
    gate.back(1, now_s, ended=False)
    assert gate.free("mail", now_s) == 126


def test_each_jobtype_has_its_own_window() -> None:
    gate = gate_of(4, 500)
    now_s = work(gate, 0, seconds=1, rate=50_000)
    assert (gate.window("mail"), gate.window("film")) == (504, 4)
    assert gate.free("film", now_s) == 4, "nobody knows yet how long these take"
    gate.take("film", ["1", "2"], now_s)
    assert (gate.free("film", now_s), gate.free("mail", now_s)) == (2, 252), "half of it is taken"
    gate.take("film", ["3", "4"], now_s)
    assert (gate.free("film", now_s), gate.free("mail", now_s)) == (0, 0)
    for number in range(1, 5):
        gate.give("film", [str(number)], now_s + number, ended=True)
    assert (gate.window("film"), gate.window("mail")) == (4, 504)


@pytest.mark.parametrize("quick", [1, 60, 126, 380, 504])
def test_what_is_quick_keeps_out_nothing_that_is_more_urgent(quick: int) -> None:
    gate = gate_of(16, 500)
    now_s = work(gate, 0, seconds=1, rate=50_000)
    gate.put(quick, now_s)
    while gate.has_room(now_s):
        assert gate.free("film", now_s) >= 1
        gate.take("film", [str(gate.in_flight)], now_s)
    assert gate.free("mail", now_s) == gate.free("film", now_s) == 0
    gate.back(quick, now_s, ended=True)
    assert gate.in_flight + gate.free("film", now_s) == 16, "never more of them than it has slots"


def test_the_speeds_of_any_number_of_jobtypes_take_a_bounded_room() -> None:
    gate = gate_of(4, 500)
    for number in range(3 * SPEEDS_MAX):
        gate.take(f"type-{number}", [str(number)], number)
        gate.give(f"type-{number}", [str(number)], number + 0.5, ended=True)
    assert len(gate._speeds) == SPEEDS_MAX


def test_jobs_that_come_back_say_nothing_of_speed() -> None:
    gate = gate_of(4, 500)
    for second in range(10):
        gate.put(4, second)
        gate.back(4, second + 0.0001, ended=False)
    assert gate.window() == 4


def test_back_off_grows_and_lets_one_probe_through() -> None:
    gate, now_s = gate_of(), 0.0
    for wait_s in (1, 2, 4, 8, 8):
        count = gate.free("mail", now_s)
        gate.put(count, now_s)
        assert gate.free("mail", now_s) == 0
        assert gate.back_off(now_s, now_s + 0.5)
        gate.back(count, now_s + 0.5, ended=False)
        assert gate.open_until_s == now_s + 0.5 + wait_s
        assert gate.is_open(now_s + 0.5)
        assert gate.free("mail", gate.open_until_s - 0.001) == 0
        now_s = gate.open_until_s
        assert not gate.is_open(now_s)
        assert gate.free("mail", now_s) == 1
    gate.put(1, now_s)
    assert gate.free("mail", now_s) == 0, "while the probe is out"
    gate.answered(now_s)
    gate.back(1, now_s, ended=True)
    assert gate.failures == 0
    assert 1 <= gate.free("mail", now_s) < 8


def test_a_probe_that_says_nothing_makes_room_for_another() -> None:
    gate = gate_of()
    gate.back_off(0, 0)
    gate.put(1, 2)
    assert gate.free("mail", 3) == 0
    gate.back(1, 3, ended=False)
    assert gate.free("mail", 3) == 1
    assert gate.failures == 1


def test_a_probe_is_not_over_when_something_else_leaves() -> None:
    gate = gate_of()
    gate.put(2, 0)
    gate.back_off(0, 0)
    gate.put(1, 2)
    gate.back(2, 3, ended=False)
    assert gate.free("mail", 3) == 0, "those were sent before"


def test_a_probe_never_exceeds_the_slots() -> None:
    gate = gate_of(2)
    gate.put(2, 0)
    gate.back_off(0, 0)
    gate.resize(1, None)
    assert gate.free("mail", 10) == 0


def test_back_offs_of_one_moment_are_one() -> None:
    gate = gate_of()
    gate.put(8, 0)
    assert gate.back_off(0.0, 0.5)
    assert not gate.back_off(0.0, 0.6)
    assert not gate.back_off(0.1, 0.7, 20.0), "but what the worker asks for is heard"
    assert (gate.failures, gate.window()) == (1, 4)
    assert gate.open_until_s == 20.7
    gate.answered(0.2)
    assert gate.failures == 1, "sent before it was overloaded"


def test_retry_after_is_bounded() -> None:
    gate = gate_of()
    gate.back_off(0, 5, 10_000.0)
    assert gate.open_until_s == 105


@pytest.mark.parametrize("asked_s", [0.0, -3.0, 1e-9, float("nan")])
def test_who_asks_for_no_time_is_left_alone_for_longer_each_time(asked_s: float) -> None:
    gate, own = gate_of(), gate_of()
    for number in range(4):
        for each, after_s in ((gate, asked_s), (own, None)):
            each.put(1, number)
            each.back_off(number, number, after_s)
        assert gate.open_until_s == own.open_until_s > number, "as if it had named none"
    busy = gate_of()
    busy.put(2, 0)
    busy.crowded(0, 1, asked_s)
    assert busy.open_until_s < 0, "one with jobs in flight takes what it has"


def test_each_back_off_halves_and_good_answers_give_back() -> None:
    gate = gate_of(64)
    for number, window in enumerate((32, 16, 8, 4, 2, 1, 1)):
        gate.back_off(number, number)
        assert gate.window() == window
    for number in range(RECOVERY_STEPS):
        gate.answered(100 + number)
    assert gate.window() == 64


def test_a_jobtype_it_does_not_know() -> None:
    gate = gate_of()
    gate.not_taken("mail", 0)
    assert not gate.takes("mail", NOT_TAKEN_S - 1)
    assert gate.takes("bill", 0)
    assert gate.takes("mail", NOT_TAKEN_S)
    gate.not_taken("bill", NOT_TAKEN_S)
    assert gate._not_taken.keys() == {"bill"}, "what is over is forgotten"


steps = st.lists(st.tuples(st.sampled_from(["take", "give", "answer", "back", "retry"]), st.floats(0, 3)), max_size=60)


@given(st.integers(1, 50), st.none() | st.integers(1, 500), steps)
def test_whatever_happens_the_slots_hold_and_open_again(
    max_jobs: int, batch: int | None, moves: list[tuple[str, float]]
) -> None:
    gate, now_s = gate_of(max_jobs, batch), 0.0
    for move, seconds in moves:
        now_s += seconds
        match move:
            case "take" if count := gate.free("mail", now_s):
                gate.put(count, now_s)
            case "give" if gate.in_flight:
                gate.back((gate.in_flight + 1) // 2, now_s, ended=True)
            case "answer":
                gate.answered(now_s - seconds / 2)
            case "back":
                gate.back_off(now_s - seconds / 2, now_s)
            case "retry":
                gate.back_off(now_s - seconds / 2, now_s, seconds)
        assert gate.in_flight >= 0
        assert 1 <= gate.window() <= max(max_jobs, max_jobs + (batch or 0))
    if gate.in_flight:
        gate.back(gate.in_flight, now_s, ended=False)
    assert gate.free("mail", now_s + 10_000) >= 1


def test_a_crowded_worker_takes_what_it_has_and_grows_again() -> None:
    gate = gate_of(8)
    gate.put(8, 0)
    for _ in range(3):
        gate.back(1, 1, ended=False)
        gate.crowded(0, 1)
    assert (gate.window(), gate.free("mail", 1), gate.failures) == (5, 0, 0)
    gate.back(1, 1, ended=True)
    assert gate.free("mail", 1) == 1
    for _ in range(8):
        gate.answered(1)
    assert gate.window() == 8


def test_a_worker_without_room_and_without_jobs_is_left_alone() -> None:
    gate = gate_of(8)
    gate.put(1, 0)
    gate.back(1, 1, ended=False)
    gate.crowded(0, 1)
    assert (gate.free("mail", 1), gate.failures) == (0, 1)
    asked = gate_of(8)
    asked.put(2, 0)
    asked.back(1, 1, ended=False)
    asked.crowded(0, 1, 3.0)
    assert (asked.is_open(3.9), asked.is_open(4.1)) == (True, False)
