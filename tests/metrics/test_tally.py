"""What is counted of jobs, and that the number of names is bounded."""

import time

from jqd.domain.flow import Flow
from jqd.domain.histogram import Histogram
from jqd.domain.job import INTERRUPTED, SNOOZE, Fate, Held, Job
from jqd.metrics.config import MetricsConfig
from jqd.metrics.meter import STEPS_MAX, Lag
from jqd.metrics.tally import NAMES_MAX, OTHER, OUTCOMES, Tally
from tests.api.fakes import outcome

OTHERS = ("", OTHER)


def held(jobtype: str = "mail", *, created: int = 1_000, **fields: object) -> Held:
    job = {name: fields.pop(name) for name in ("eligible_at_ms", "flow") if name in fields}
    given = {"fence": 1, "attempt": 1, **fields}
    return Held(Job(id="j", jobtype=jobtype, created_at_ms=created, **job), **given)  # type: ignore[arg-type]


def test_a_value_falls_below_the_first_bound_that_is_no_less() -> None:
    found = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 9.0):
        found.note(value)
    assert (found.counts, found.total) == ([2, 2, 1], 13.5)


def test_jobs_count_by_their_type() -> None:
    tally = Tally(MetricsConfig())
    tally.pushed("", ["mail", "mail", "scan"])
    tally.pushed("acme", ["mail"])
    assert {label: row.pushed for label, row in tally.rows.items()} == {OTHERS: 0, ("", "mail"): 3, ("", "scan"): 1}


def test_tenants_have_labels_where_that_is_asked() -> None:
    tally = Tally(MetricsConfig(tenants=True))
    tally.pushed("acme", ["mail"])
    tally.pushed("", ["mail"])
    assert {label for label, row in tally.rows.items() if row.pushed} == {("acme", "mail"), ("", "mail")}


def test_what_comes_after_the_most_types_is_other() -> None:
    tally = Tally(MetricsConfig(types_max=2))
    tally.pushed("", ["a", "b", "c", "d", "a", OTHER])
    assert {label: row.pushed for label, row in tally.rows.items()} == {OTHERS: 3, ("", "a"): 2, ("", "b"): 1}


def test_names_without_end_take_no_memory_without_end() -> None:
    tally = Tally(MetricsConfig(types_max=2))
    tally.pushed("", (f"n{number}" for number in range(NAMES_MAX + 10)))
    tally.pushed("", [f"n{NAMES_MAX + 5}"])
    assert (len(tally.rows), len(tally._names)) == (3, NAMES_MAX)
    assert tally.rows[OTHERS].pushed == NAMES_MAX + 9


def test_a_first_attempt_waited_since_its_push_or_its_date() -> None:
    tally = Tally(MetricsConfig())
    tally.started([held(), held(eligible_at_ms=2_500)], 3_000)
    row = tally.rows["", "mail"]
    assert (row.started, sum(row.wait.counts), row.wait.total) == (2, 2, 2.5)


def test_nobody_knows_since_when_others_could_begin() -> None:
    tally = Tally(MetricsConfig())
    waits = Flow(after=("p",))
    tally.started([held(attempt=2), held(snoozes=1), held(interruptions=1), held(flow=waits)], 3_000)
    row = tally.rows["", "mail"]
    assert (row.started, sum(row.wait.counts)) == (4, 0)


def test_attempts_end_in_one_of_six_ways() -> None:
    tally = Tally(MetricsConfig())
    fates = [Fate.SUCCEEDED, Fate.FAILED, Fate.DEAD, Fate.RETRY]
    tally.ended([outcome("j", fate=fate, started_at_ms=1_000, finished_at_ms=1_020) for fate in fates], [])
    tally.ended([outcome("j", fate=Fate.RETRY, reason=reason) for reason in (SNOOZE, INTERRUPTED, "timeout")], None)
    row = tally.rows["", "mail"]
    assert dict(zip(OUTCOMES, row.ended, strict=True)) == {
        "succeeded": 1,
        "failed": 1,
        "dead": 1,
        "retried": 2,
        "put_off": 1,
        "interrupted": 1,
    }
    assert (sum(row.run.counts), round(row.run.total, 3)) == (7, 0.08)


def test_what_changed_nothing_or_goes_on_is_not_counted() -> None:
    tally = Tally(MetricsConfig())
    tally.ended([outcome("late"), outcome("on", fate=Fate.ENTRUSTED), outcome("good")], [0])
    assert sum(tally.rows["", "mail"].ended) == 1


def test_to_count_costs_a_job_next_to_nothing() -> None:
    """A job takes a daemon 30 µs and more."""
    tally, jobs = Tally(MetricsConfig()), [held()] * 1_000
    ends = [outcome("j", fate=Fate.SUCCEEDED)] * 1_000
    best_s = 1.0
    for _ in range(20):
        began_s = time.thread_time()
        tally.pushed("", ["mail"] * 1_000)
        tally.started(jobs, 2_000)
        tally.ended(ends, [])
        best_s = min(best_s, time.thread_time() - began_s)
    assert best_s < 0.006, f"{best_s * 1000:.1f} µs a job"


def test_the_journal_lags_since_what_the_store_lacks_was_written() -> None:
    lag = Lag()
    told = []
    for now_s, end, applied in [(0, 10, 10), (1, 20, 10), (2, 30, 10), (3, 30, 20), (4, 30, 30), (5, 30, 30)]:
        lag.note(float(now_s), end, applied)
        told.append(lag.seconds)
    assert told == [0, 1, 2, 2, 0, 0]


def test_a_long_lag_is_told_as_an_hour() -> None:
    lag = Lag()
    for now in range(STEPS_MAX + 100):
        lag.note(float(now), now + 1, 0)
    assert lag.seconds == STEPS_MAX - 1
