"""Slots, window and breaker, on a clock of the test's own."""

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.backoff import Backoff
from jqd.runner.circuit_breaker import NOT_TAKEN_S, PROBED_S, RECOVERY_STEPS, SPEEDS_MAX, CircuitBreaker


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


def work(breaker: Hand, now_s: float, *, seconds: float, rate: float) -> float:
    """Keep the gate busy: as many jobs as it gives, `rate` of them a second."""
    end_s = now_s + seconds
    while now_s < end_s:
        count = breaker.free("mail", now_s)
        breaker.put(count, now_s)
        for _ in range(count):
            now_s += 1 / rate
            breaker.back(1, now_s, ended=True)
    return now_s


def test_slots() -> None:
    breaker = gate_of(8)
    assert (breaker.free("mail", 0), breaker.post_jobs_max) == (8, 8)
    breaker.put(5, 0)
    assert breaker.free("mail", 0) == 3
    breaker.back(2, 0, ended=True)
    assert breaker.free("mail", 0) == 5
    breaker.resize(2, None)
    assert (breaker.free("mail", 0), breaker.post_jobs_max) == (0, 2)


def test_slots_balance() -> None:
    breaker = gate_of()
    breaker.put(1, 0)
    breaker.back(1, 0, ended=True)
    with pytest.raises(AssertionError):
        breaker.give("mail", ["another"], 0, ended=True)


def test_when_none_came_back_no_time_was_worked() -> None:
    """An answer that ends behind its last outcome, and a look at what takes too long, give back no job."""
    breaker, idle = gate_of(8, 500), gate_of(8, 500)
    for each in (breaker, idle):
        each.put(10, 0)
        each.back(10, 0.01, ended=True)
    breaker.give("mail", [], 5.0, ended=True)
    for each in (breaker, idle):
        each.put(10, 6.0)
        each.back(10, 6.0625, ended=True)
    assert breaker.rate == idle.rate > 100


def test_a_batch_within_the_slots_only_cuts() -> None:
    breaker = gate_of(8, 3)
    work(breaker, 0, seconds=1, rate=10_000)
    assert (breaker.window(), breaker.post_jobs_max) == (8, 3)


def test_quick_jobs_open_the_window() -> None:
    breaker = gate_of(4, 500)
    assert (breaker.window(), breaker.post_jobs_max) == (4, 500)
    now_s = work(breaker, 0, seconds=1, rate=2_000)
    assert 190 <= breaker.window() <= 210, "a tenth of a second's work"
    now_s = work(breaker, now_s, seconds=1, rate=50_000)
    assert breaker.window() == 504, "what is at work, and one batch ahead"
    work(breaker, now_s, seconds=5, rate=10)
    assert breaker.window() == 4, "slow again"


def test_idle_time_does_not_make_a_worker_slow() -> None:
    breaker = gate_of(4, 500)
    now_s = work(breaker, 0, seconds=1, rate=2_000)
    breaker.put(100, now_s + 3600)
    for number in range(1, 101):
        breaker.back(1, now_s + 3600 + number / 2_000, ended=True)
    assert breaker.rate > 1_900


def test_a_wide_window_is_refilled_in_quarters() -> None:
    breaker = gate_of(4, 500)
    now_s = work(breaker, 0, seconds=1, rate=50_000)
    breaker.put(504, now_s)
    breaker.back(125, now_s, ended=False)
    assert breaker.free("mail", now_s) == 0
    breaker.back(1, now_s, ended=False)
    assert breaker.free("mail", now_s) == 126


def test_each_jobtype_has_its_own_window() -> None:
    breaker = gate_of(4, 500)
    now_s = work(breaker, 0, seconds=1, rate=50_000)
    assert (breaker.window("mail"), breaker.window("film")) == (504, 4)
    assert breaker.free("film", now_s) == 4, "nobody knows yet how long these take"
    breaker.take("film", ["1", "2"], now_s)
    assert (breaker.free("film", now_s), breaker.free("mail", now_s)) == (2, 252), "half of it is taken"
    breaker.take("film", ["3", "4"], now_s)
    assert (breaker.free("film", now_s), breaker.free("mail", now_s)) == (0, 0)
    for number in range(1, 5):
        breaker.give("film", [str(number)], now_s + number, ended=True)
    assert (breaker.window("film"), breaker.window("mail")) == (4, 504)


@pytest.mark.parametrize("quick", [1, 60, 126, 380, 504])
def test_what_is_quick_keeps_out_nothing_that_is_more_urgent(quick: int) -> None:
    breaker = gate_of(16, 500)
    now_s = work(breaker, 0, seconds=1, rate=50_000)
    breaker.put(quick, now_s)
    while breaker.has_room(now_s):
        assert breaker.free("film", now_s) >= 1
        breaker.take("film", [str(breaker.in_flight)], now_s)
    assert breaker.free("mail", now_s) == breaker.free("film", now_s) == 0
    breaker.back(quick, now_s, ended=True)
    assert breaker.in_flight + breaker.free("film", now_s) == 16, "never more of them than it has slots"


def test_the_speeds_of_any_number_of_jobtypes_take_a_bounded_room() -> None:
    breaker = gate_of(4, 500)
    for number in range(3 * SPEEDS_MAX):
        breaker.take(f"type-{number}", [str(number)], number)
        breaker.give(f"type-{number}", [str(number)], number + 0.5, ended=True)
    assert len(breaker._speeds) == SPEEDS_MAX


def test_jobs_that_come_back_say_nothing_of_speed() -> None:
    breaker = gate_of(4, 500)
    for second in range(10):
        breaker.put(4, second)
        breaker.back(4, second + 0.0001, ended=False)
    assert breaker.window() == 4


def test_back_off_grows_and_lets_one_probe_through() -> None:
    breaker, now_s = gate_of(), 0.0
    for wait_s in (1, 2, 4, 8, 8):
        count = breaker.free("mail", now_s)
        breaker.put(count, now_s)
        assert breaker.free("mail", now_s) == 0
        assert breaker.back_off(now_s, now_s + 0.5)
        breaker.back(count, now_s + 0.5, ended=False)
        assert breaker.open_until_s == now_s + 0.5 + wait_s
        assert breaker.is_open(now_s + 0.5)
        assert breaker.free("mail", breaker.open_until_s - 0.001) == 0
        now_s = breaker.open_until_s
        assert not breaker.is_open(now_s)
        assert breaker.free("mail", now_s) == 1
    breaker.put(1, now_s)
    assert breaker.free("mail", now_s) == 0, "while the probe is out"
    breaker.answered(now_s)
    breaker.back(1, now_s, ended=True)
    assert breaker.failures == 0
    assert 1 <= breaker.free("mail", now_s) < 8


def test_a_probe_that_says_nothing_makes_room_for_another() -> None:
    breaker = gate_of()
    breaker.back_off(0, 0)
    breaker.put(1, 2)
    assert breaker.free("mail", 3) == 0
    breaker.back(1, 3, ended=False)
    assert breaker.free("mail", 3) == 1
    assert breaker.failures == 1


def test_a_probe_is_not_over_when_something_else_leaves() -> None:
    breaker = gate_of()
    breaker.put(2, 0)
    breaker.back_off(0, 0)
    breaker.put(1, 2)
    breaker.back(2, 3, ended=False)
    assert breaker.free("mail", 3) == 0, "those were sent before"


def test_a_probe_never_exceeds_the_slots() -> None:
    breaker = gate_of(2)
    breaker.put(2, 0)
    breaker.back_off(0, 0)
    breaker.resize(1, None)
    assert breaker.free("mail", 10) == 0


def test_back_offs_of_one_moment_are_one() -> None:
    breaker = gate_of()
    breaker.put(8, 0)
    assert breaker.back_off(0.0, 0.5)
    assert not breaker.back_off(0.0, 0.6)
    assert not breaker.back_off(0.1, 0.7, 20.0), "but what the worker asks for is heard"
    assert (breaker.failures, breaker.window()) == (1, 4)
    assert breaker.open_until_s == 20.7
    breaker.answered(0.2)
    assert breaker.failures == 1, "sent before it was overloaded"


def test_a_request_that_had_set_out_before_and_was_sent_within_a_pause_does_not_end_it() -> None:
    """Its host took a second to connect: the other daemons were told that all is well, and sent jobs."""
    breaker = gate_of()
    assert breaker.back_off(0.0, 0.5, 2.0)
    breaker.answered(1.5)
    assert (breaker.failures, breaker.open_until_s) == (1, 2.5)
    breaker.answered(2.5)
    assert breaker.failures == 0


def test_retry_after_is_bounded() -> None:
    breaker = gate_of()
    breaker.back_off(0, 5, 10_000.0)
    assert breaker.open_until_s == 105


@pytest.mark.parametrize("asked_s", [0.0, -3.0, 1e-9, float("nan")])
def test_who_asks_for_no_time_is_left_alone_for_longer_each_time(asked_s: float) -> None:
    breaker, own = gate_of(), gate_of()
    for number in range(4):
        for each, after_s in ((breaker, asked_s), (own, None)):
            each.put(1, number)
            each.back_off(number, number, after_s)
        assert breaker.open_until_s == own.open_until_s > number, "as if it had named none"
    busy = gate_of()
    busy.put(2, 0)
    busy.crowded(0, 1, asked_s)
    assert busy.open_until_s < 0, "one with jobs in flight takes what it has"


def test_each_back_off_halves_and_good_answers_give_back() -> None:
    breaker = gate_of(64)
    for number, window in enumerate((32, 16, 8, 4, 2, 1, 1)):
        breaker.back_off(number, number)
        assert breaker.window() == window
    for number in range(RECOVERY_STEPS):
        breaker.answered(100 + number)
    assert breaker.window() == 64


def test_a_jobtype_it_does_not_know() -> None:
    breaker = gate_of()
    breaker.not_taken("mail", 0)
    assert not breaker.takes("mail", NOT_TAKEN_S - 1)
    assert breaker.takes("bill", 0)
    assert breaker.takes("mail", NOT_TAKEN_S)
    breaker.not_taken("bill", NOT_TAKEN_S)
    assert breaker._not_taken.keys() == {"bill"}, "what is over is forgotten"


steps = st.lists(st.tuples(st.sampled_from(["take", "give", "answer", "back", "retry"]), st.floats(0, 3)), max_size=60)


@given(st.integers(1, 50), st.none() | st.integers(1, 500), steps)
def test_whatever_happens_the_slots_hold_and_open_again(
    max_jobs: int, batch: int | None, moves: list[tuple[str, float]]
) -> None:
    breaker, now_s = gate_of(max_jobs, batch), 0.0
    for move, seconds in moves:
        now_s += seconds
        match move:
            case "take" if count := breaker.free("mail", now_s):
                breaker.put(count, now_s)
            case "give" if breaker.in_flight:
                breaker.back((breaker.in_flight + 1) // 2, now_s, ended=True)
            case "answer":
                breaker.answered(now_s - seconds / 2)
            case "back":
                breaker.back_off(now_s - seconds / 2, now_s)
            case "retry":
                breaker.back_off(now_s - seconds / 2, now_s, seconds)
        assert breaker.in_flight >= 0
        assert 1 <= breaker.window() <= max(max_jobs, max_jobs + (batch or 0))
    if breaker.in_flight:
        breaker.back(breaker.in_flight, now_s, ended=False)
    assert breaker.free("mail", now_s + 10_000) >= 1


def test_a_crowded_worker_takes_what_it_has_and_grows_again() -> None:
    breaker = gate_of(8)
    breaker.put(8, 0)
    for _ in range(3):
        breaker.back(1, 1, ended=False)
        breaker.crowded(0, 1)
    assert (breaker.window(), breaker.free("mail", 1), breaker.failures) == (5, 0, 0)
    breaker.back(1, 1, ended=True)
    assert breaker.free("mail", 1) == 1
    for _ in range(8):
        breaker.answered(1)
    assert breaker.window() == 8


def test_a_worker_without_room_and_without_jobs_is_left_alone() -> None:
    breaker = gate_of(8)
    breaker.put(1, 0)
    breaker.back(1, 1, ended=False)
    breaker.crowded(0, 1)
    assert (breaker.free("mail", 1), breaker.failures) == (0, 1)
    asked = gate_of(8)
    asked.put(2, 0)
    asked.back(1, 1, ended=False)
    asked.crowded(0, 1, 3.0)
    assert (asked.is_open(3.9), asked.is_open(4.1)) == (True, False)


def test_a_worker_that_hung_gets_no_further_probe_while_one_waits() -> None:
    breaker = gate_of(8)
    breaker.back_off(0, 0, hung=True)
    now_s = breaker.open_until_s
    breaker.put(1, now_s)
    assert breaker.free("mail", now_s + 100 * PROBED_S) == 0, "each would cost a job an attempt"
    breaker.back(1, now_s, ended=False)
    assert breaker.free("mail", now_s) == 1
    breaker.back_off(now_s, now_s)
    now_s = breaker.open_until_s
    breaker.put(1, now_s)
    assert breaker.free("mail", now_s + PROBED_S) == 1, "it refuses, so it answers"


def test_a_probe_that_is_answered_when_its_work_is_done_keeps_the_others_away_for_a_moment_only() -> None:
    breaker = gate_of(8)
    breaker.back_off(0, 0)
    now_s = breaker.open_until_s
    for sent in range(4):  # a halved window
        assert breaker.free("mail", now_s) == 1
        breaker.put(1, now_s)
        assert (breaker.in_flight, breaker.free("mail", now_s + PROBED_S - 0.1)) == (sent + 1, 0)
        now_s += PROBED_S
    assert breaker.free("mail", now_s) == 0
    breaker.answered(now_s - PROBED_S)
    breaker.back(1, now_s, ended=True)
    assert breaker.free("mail", now_s) == 2, "the answer closes it"
