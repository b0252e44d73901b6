"""Which date of a schedule is fired, and which are passed over."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jqd.cron.decide import AT_ONCE, LATE_MS, NOTE_MS, WATCHED_MAX, Firing, Step, decide
from jqd.cron.firing import fired_body
from jqd.cron.schedules import FiredDate, KnownSchedule, Missed, Overlap, Schedule, Template, Watched, fired_setting
from jqd.domain.dates import iso

EVERY_MS = 30_000
RUNS, ENDED = True, False


def known(
    through: int = 0,
    *,
    every_ms: int = EVERY_MS,
    missed: Missed = "once",
    overlap: Overlap = "queue",
    watched: Watched = (),
) -> KnownSchedule:
    """A schedule whose dates are 1, 2, 3 … times `every_ms`; those up to `through` were fired."""
    schedule = Schedule(job=Template(name="n"), every=every_ms / 1000, missed=missed, overlap=overlap)
    return KnownSchedule("s", schedule, FiredDate(through * every_ms, watched=watched))


def at(date: float) -> int:
    return round(date * EVERY_MS)


@pytest.mark.parametrize(
    ("missed", "overlap", "runs", "now", "step"),
    [
        ("once", "queue", ENDED, 0.9, None),
        ("once", "queue", ENDED, 1, Step(at(1), fires=True)),
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
    ],
)
def test_a_step(missed: Missed, overlap: Overlap, runs: bool, now: float, step: Step | None) -> None:
    found = decide(known(missed=missed, overlap=overlap), runs, at(now))
    if found is not None:
        found = None if found.is_note else found._replace(watched=())
    assert found == step


@pytest.mark.parametrize(
    ("watched", "runs", "step"),
    [
        # Those that were seen were not missed, they waited for the last job.
        (((0, at(6.4)),), ENDED, Step(at(1), fires=True, watched=((0, at(6.4)), (at(7.5), at(9.5))))),
        (((0, at(6.5)),), ENDED, Step(at(1), fires=True, watched=((0, at(9.5)),))),  # the next note was not due
        (((0, at(7.5)),), ENDED, Step(at(1), fires=True, watched=((0, at(9.5)),))),
        # Of those between two spans no daemon knew.
        (((at(3), at(9)),), ENDED, Step(at(2), skipped=2, watched=((at(3), at(9)),))),
        (((0, at(8.5)),), RUNS, None),  # it waits, and the ninth is noted later
        (((0, at(7.5)),), RUNS, Step(0, watched=((0, at(9.5)),))),
        (((0, at(0.5)),), RUNS, Step(0, watched=((0, at(0.5)), (at(7.5), at(9.5))))),
    ],
)
def test_what_was_seen_to_wait(watched: Watched, runs: bool, step: Step | None) -> None:
    assert decide(known(missed="skip", watched=watched), runs, at(9.5)) == step


def test_dates_of_too_many_outages_count_as_seen() -> None:
    watched = tuple((at(3 * n), at(3 * n)) for n in range(1, WATCHED_MAX + 1))
    step = decide(known(watched=watched), RUNS, at(1_000))
    assert step is not None
    assert step.watched == (*watched[:-1], (watched[-1][0], at(1_000)))


@dataclass
class Life:
    """A schedule with `overlap: queue`, whose daemon looks each second except in outages, until no date is left."""

    one: KnownSchedule
    runs_s: list[int]
    """How long its jobs run."""
    up: list[tuple[int, int]]
    """From when to when the daemon looks (s); at the end for ever."""
    fired: list[int] = field(default_factory=list)
    looks: set[int] = field(default_factory=set)

    def run(self, last_s: int) -> None:
        ends_s, runs_s, now_s = 0, cycle(self.runs_s), 0
        while self.one.fired.through_ms < last_s * 1_000:
            now_s += 1
            if now_s < self.up[-1][0] and not any(begin <= now_s < end for begin, end in self.up):
                continue
            self.looks.add(now_s)
            step = decide(self.one, now_s < ends_s, now_s * 1_000)
            if step is None:
                continue
            assert step.is_note or step.through_ms > self.one.through_ms
            self.one.fired = fired_body(Firing(self.one, step), now_s * 1_000, {})
            if step.fires:
                self.fired.append(step.through_ms // 1_000)
                ends_s = now_s + next(runs_s)

    def seen(self, date_s: int, after_s: int, before_s: int = LATE_MS // 1_000) -> bool:
        """Whether the daemon looked when a date was at least and at most so old."""
        return not self.looks.isdisjoint(range(date_s + after_s, date_s + before_s + 1))


def lived(
    missed: Missed, every_s: int, runs_s: list[int], outages: list[tuple[int, int]]
) -> tuple[Life, Sequence[int]]:
    """Return a schedule's whole life, and all its dates (s). `outages`: for how long its daemon looks before each, and
    how long each lasts."""
    now_s, up = 0, list[tuple[int, int]]()
    for lasts_s, away_s in outages:
        up.append((now_s, now_s + lasts_s))
        now_s += lasts_s + away_s
    up.append((now_s, now_s))
    dates = range(every_s, now_s + 200, every_s)
    schedule = Schedule(job=Template(name="n"), every=float(every_s), missed=missed, until=iso(dates[-1] * 1_000))
    life = Life(KnownSchedule("s", schedule, FiredDate(0)), runs_s, up)
    life.run(dates[-1])
    return life, dates


@pytest.mark.parametrize("runs_s", [400, 150], ids=["runs on", "ends meanwhile"])
@pytest.mark.parametrize("away_s", [30, 45, LATE_MS // 1_000 - 1])
@pytest.mark.parametrize("seen_s", [1, 10, 29])
def test_a_date_that_waits_outlives_a_restart(seen_s: int, away_s: int, runs_s: int) -> None:
    """That it waited was noted half a minute late, and a daemon that was restarted before took it for missed."""
    life, _ = lived("skip", 100, [runs_s, 0], [(200 + seen_s, away_s)])
    assert 200 in life.fired


@given(
    st.sampled_from([5, 13, 30, 60, 100]),
    st.lists(st.integers(0, 300), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 200), st.integers(30, LATE_MS // 1_000 - 1)), min_size=1, max_size=5),
)
def test_no_restart_takes_a_date(every_s: int, runs_s: list[int], restarts: list[tuple[int, int]]) -> None:
    life, dates = lived("skip", every_s, runs_s, restarts)
    assert life.fired == [*dates]


@example("skip", 60, [10], [(1, 110), (10, 81)])  # 120 came 9 s after the note of a firing, and 1 s before the outage
@given(
    st.sampled_from(["skip", "once", "all"]),
    st.sampled_from([13, 30, 60, 100]),
    st.lists(st.integers(0, 150), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 200), st.integers(1, 400)), max_size=3),
)
def test_only_dates_that_nobody_saw_are_missed(
    missed: Missed, every_s: int, runs_s: list[int], outages: list[tuple[int, int]]
) -> None:
    """An outage takes only the dates of its own time, and all but a few of its beginning, however long the jobs run."""
    life, dates = lived(missed, every_s, runs_s, outages)
    assert life.fired == sorted(set(life.fired))
    assert life.one.fired.fired == len(life.fired)
    assert life.one.fired.fired + life.one.fired.skipped == len(dates), "each date is fired or skipped"
    old_s = NOTE_MS // 1_000 + 1  # one note for all that came within half a minute of it, also of a firing
    assert [date for date in dates if life.seen(date, old_s) and date not in life.fired] == []
    unseen = [date for date in life.fired if not life.seen(date, 0, (LATE_MS + NOTE_MS) // 1_000)]
    assert len(unseen) <= {"skip": 0, "once": len(outages), "all": len(dates)}[missed]
    if missed == "all":
        assert life.fired == [*dates]


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
        assert step is not None
        assert step._replace(watched=()) == Step(AT_ONCE * 1_000, skipped=AT_ONCE)


def test_the_furthest_date_holds_whoever_says_it_last() -> None:
    far = fired_setting("s", FiredDate(2_000, date_ms=2_000), now_ms=5)
    assert far.supersedes(fired_setting("s", FiredDate(1_000, date_ms=1_000), now_ms=9))
    assert far.supersedes(fired_setting("s", FiredDate(2_000, date_ms=1_000), now_ms=9)), (
        "a job beats a look a moment too early"
    )


def test_of_two_notes_about_one_date_the_later_one_holds_whatever_the_clocks_say() -> None:
    fired = fired_setting("s", FiredDate(2_000, date_ms=2_000), now_ms=9)
    for watched in (((1, 5),), ((1, 4),), ()):
        noted = fired_setting("s", FiredDate(2_000, date_ms=2_000, watched=watched), now_ms=5, after=fired)
        assert noted.supersedes(fired)
        fired = noted
    assert fired_setting("s", FiredDate(3_000), now_ms=1, after=fired).supersedes(fired)
