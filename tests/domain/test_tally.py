"""What is counted of jobs: once, for all that read it."""

import time

import pytest

from jqd.domain.flow import Flow
from jqd.domain.job import INTERRUPTED, SNOOZE, Fate, Held, Outcome
from jqd.domain.tally import EVERYBODY, OUTCOMES, Row, Tally
from tests.history.made import job, outcome


def take(tally: Tally) -> Row:
    """What a reader is told now."""
    told: list[Row] = []
    tally.readers = [told.append]
    tally.settle()
    return told[0]


def test_attempts_count_by_how_they_ended_and_those_that_changed_nothing_do_not() -> None:
    tally = Tally()
    told: list[Outcome] = [
        outcome("a", Fate.SUCCEEDED, ms=70),
        outcome("b", Fate.FAILED),
        outcome("c", Fate.DEAD),
        outcome("d", Fate.RETRY),
        outcome("e", Fate.RETRY, reason=SNOOZE),
        outcome("f", Fate.RETRY, reason=INTERRUPTED),
        outcome("g", Fate.ENTRUSTED),
        outcome("h", Fate.SUCCEEDED),
    ]
    tally.ended(told, [7])
    tally.cancelled(["mail", "", "bill"])
    row = take(tally)
    assert dict(zip(OUTCOMES, row["mail"].ended, strict=True)) == dict.fromkeys(OUTCOMES, 1)
    assert (sum(row["mail"].run), row["mail"].run_ms) == (6, 70)
    assert row["bill"].moves == 1
    tally.ended(told[:1], None)
    assert take(tally)["mail"].ended[0] == 1
    tally.died({"mail": 25_000})
    assert take(tally)["mail"].ended == [0, 0, 25_000, 0, 0, 0, 0]
    assert take(tally) == {}


def test_the_first_attempt_tells_how_long_its_job_waited_and_no_other() -> None:
    tally, now_ms = Tally(), 1_000_000
    held = [
        Held(job("a", created_at_ms=now_ms - 700), 1, 1),
        Held(job("b", created_at_ms=now_ms - 9_000, eligible_at_ms=now_ms - 300), 1, 1),
        Held(job("c", created_at_ms=1), 1, 2),
        Held(job("d", created_at_ms=1), 1, 1, snoozes=1),
        Held(job("e", created_at_ms=1, flow=Flow(after=("x",))), 1, 1),
        Held(job("f", created_at_ms=now_ms + 5_000), 1, 1),
    ]
    tally.started(held, now_ms)
    counts = take(tally)["mail"]
    assert (counts.started, sum(counts.wait), counts.wait_ms) == (6, 3, 1_000)


def test_a_job_that_was_tried_anew_waited_since_then() -> None:
    """Its attempts are counted from one again. One with an own id has a generation from its push on."""
    tally, now_ms = Tally(), 1_000_000
    held = [
        Held(job("a", created_at_ms=1), 1, 1, generation=(now_ms - 200) * 1000),
        Held(job("b", created_at_ms=now_ms - 900), 1, 1, generation=(now_ms - 900) * 1000),
        Held(job("c", created_at_ms=1, eligible_at_ms=now_ms - 50), 1, 1, generation=(now_ms - 300) * 1000),
        Held(job("d", created_at_ms=1), 1, 1, generation=(now_ms + 5) * 1000),
    ]
    tally.started(held, now_ms)
    counts = take(tally)["mail"]
    assert (sum(counts.wait), counts.wait_ms) == (4, 1_150)


def test_programs_that_make_up_names_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jqd.domain.tally.NAMES_MAX", 3)
    tally = Tally()
    tally.pushed = {("acme", name): 1 + (name == "a") for name in "abcde"}
    row = take(tally)
    assert len(row) == 4
    assert (row["acme\x1fa"].pushed, row[EVERYBODY].pushed) == (2, 2)
    assert tally.pushed == {}


def test_to_count_costs_a_job_next_to_nothing() -> None:
    """A job takes a daemon 30 µs and more."""
    tally, held = Tally(), [Held(job("a", created_at_ms=1), 1, 1)] * 1_000
    ends = [outcome("a", Fate.SUCCEEDED)] * 1_000
    best_s = 1.0
    for _ in range(20):
        began_s = time.thread_time()
        tally.started(held, 2_000)
        tally.ended(ends, [])
        best_s = min(best_s, time.thread_time() - began_s)
    assert best_s < 0.003, f"{best_s * 1000:.1f} µs a job"
