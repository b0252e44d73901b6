"""Which date of a schedule is fired, and which are passed over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.cron.decide import AT_ONCE, LATE_MS, Last, Step, decide
from jqd.cron.schedules import FiredDate, KnownSchedule, Missed, Overlap, Schedule, Template, fired_setting

EVERY_MS = 30_000
RUNS, ENDED = Last(None), Last(0)


def known(
    through: int = 0, *, every_ms: int = EVERY_MS, missed: Missed = "once", overlap: Overlap = "queue"
) -> KnownSchedule:
    """A schedule whose dates are 1, 2, 3 … times `every_ms`; those up to `through` were fired."""
    schedule = Schedule(job=Template(name="n"), every=every_ms / 1000, missed=missed, overlap=overlap)
    return KnownSchedule("s", schedule, FiredDate(through * every_ms))


def at(date: float) -> int:
    return round(date * EVERY_MS)


@pytest.mark.parametrize(
    ("missed", "overlap", "last", "now", "step"),
    [
        ("once", "queue", None, 0.9, None),
        ("once", "queue", None, 1, Step(at(1), fires=True)),
        ("once", "queue", ENDED, 2.5, Step(at(1), fires=True)),  # a minute is no delay: both are fired
        ("once", "queue", ENDED, 3.1, Step(at(1), fires=True, skipped=0)),
        ("once", "queue", ENDED, 9.5, Step(at(7), fires=True, skipped=6)),
        ("skip", "queue", ENDED, 9.5, Step(at(7), skipped=7)),
        ("all", "queue", ENDED, 9.5, Step(at(1), fires=True)),
        ("once", "queue", RUNS, 9.5, None),
        ("once", "skip", RUNS, 9.5, Step(at(9), skipped=9)),
        ("all", "skip", RUNS, 2.5, Step(at(2), skipped=2)),
        ("once", "replace", RUNS, 9.5, Step(at(7), fires=True, skipped=6, replaces=True)),
        ("all", "replace", RUNS, 9.5, Step(at(1), fires=True, replaces=True)),
        # These were not missed, they waited for the last job.
        ("skip", "queue", Last(at(6.5)), 9.5, Step(at(1), fires=True)),
        ("skip", "skip", Last(at(6.5)), 9.5, Step(at(7), skipped=7)),
    ],
)
def test_a_step(missed: Missed, overlap: Overlap, last: Last | None, now: float, step: Step | None) -> None:
    assert decide(known(missed=missed, overlap=overlap), last, at(now)) == step


@given(st.integers(0, 5), st.integers(0, 1_300), st.sampled_from(["skip", "once", "all"]))
def test_steps_see_to_every_date_once(through: int, come: int, missed: Missed) -> None:
    every_ms, late = 1_000, LATE_MS // 1_000
    one, now_ms, fired, skipped = known(through, every_ms=every_ms, missed=missed), (through + come) * every_ms, 0, 0
    while step := decide(one, ENDED, now_ms):
        assert step.through_ms > one.through_ms
        fired, skipped = fired + step.fires, skipped + step.skipped
        one.fired = FiredDate(step.through_ms)
    missing = max(0, come - late - 1)  # the latest late one is 61 s old
    assert fired + skipped == come
    assert fired == {"skip": come - missing, "once": come - missing + min(1, missing), "all": come}[missed]


def test_of_thousands_only_some_are_looked_at_in_one_step() -> None:
    for missed in ("skip", "once"):
        step = decide(known(every_ms=1_000, missed=missed), ENDED, 10_000_000)
        assert step == Step(AT_ONCE * 1_000, skipped=AT_ONCE)


def test_the_furthest_date_holds_whoever_says_it_last() -> None:
    far = fired_setting("s", FiredDate(2_000, date_ms=2_000), now_ms=5)
    assert far.supersedes(fired_setting("s", FiredDate(1_000, date_ms=1_000), now_ms=9))
    assert far.supersedes(fired_setting("s", FiredDate(2_000, date_ms=1_000), now_ms=9)), (
        "a job beats a look a moment too early"
    )
