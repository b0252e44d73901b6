"""What is kept of daemons and workers that went away, and what several daemons together say of one."""

from jqd.runner.departures import KEPT_MS, ROWS_MAX, Departure, Departures, Gone, shown, together
from jqd.testing.clock import ManualClock


def test_a_name_has_one_row_of_the_last_time_and_says_how_often() -> None:
    clock = ManualClock()
    seen = Departures(clock)
    seen.note("daemon", "d", died=True, last_seen_at_ms=clock.wall_ms() - 5, jobs=3)
    seen.note("daemon", "d", died=False, jobs=4)  # another partition, in the same minute
    clock.advance(3600)
    seen.note("daemon", "e", died=False)
    assert [(row.name, row.died, row.jobs, row.times) for row in seen.rows()] == [("e", False, 0, 1), ("d", True, 7, 1)]
    seen.note("daemon", "d", died=False)
    assert [(row.name, row.died, row.jobs, row.times) for row in seen.rows()] == [
        ("d", False, 0, 2),
        ("e", False, 0, 1),
    ]


def test_who_was_not_heard_of_since_it_died_has_not_died_again() -> None:
    """After each restart of the store, those that died long before were told of anew."""
    clock = ManualClock()
    seen = Departures(clock)
    last_seen_at_ms = clock.wall_ms()
    clock.advance(30)
    seen.note("worker", "w", died=True, last_seen_at_ms=last_seen_at_ms, jobs=1)
    (before,) = seen.rows()
    clock.advance(1200)
    seen.note(
        "worker", "w", died=True, last_seen_at_ms=last_seen_at_ms + 1, jobs=2
    )  # a moment off, as clocks are compared
    assert seen.rows() == [before._replace(jobs=3, last_seen_at_ms=last_seen_at_ms + 1)]
    back_at_ms = clock.wall_ms()
    clock.advance(30)
    seen.note("worker", "w", died=True, last_seen_at_ms=back_at_ms)
    (row,) = seen.rows()
    assert (row.last_seen_at_ms, row.times) == (back_at_ms, 2), "it was back meanwhile"


def test_jobs_that_a_worker_lost_are_told_of_when_it_is_gone() -> None:
    clock = ManualClock()
    seen = Departures(clock)
    for worker, jobs in (("w", 2), ("w", 1), ("long ago", 9)):
        seen.lost("worker", worker, jobs)
    clock.advance(30)
    seen.note("worker", "w", died=True, called="mailer")
    seen.lost("worker", "w", 4)  # its connection broke later than its silence was noticed
    clock.advance(3600)
    seen.note("worker", "long ago", died=False)
    assert {row.name: row.jobs for row in seen.rows()} == {"w": 7, "long ago": 0}
    seen.lost("daemon", "nobody", 5)
    assert len(seen.rows()) == 2


def test_a_day_later_it_is_forgotten_and_there_are_never_too_many() -> None:
    clock = ManualClock()
    seen = Departures(clock)
    seen.note("worker", "old", died=True, at_ms=clock.wall_ms() - KEPT_MS - 1)
    for number in range(ROWS_MAX + 20):
        seen.lost("worker", f"x{number}", 1)
        seen.note("worker", f"w{number}", died=True, at_ms=clock.wall_ms() + number)
    rows = seen.rows()
    assert [rows[0].name, rows[-1].name, len(rows)] == ["w119", "w20", ROWS_MAX]
    clock.advance(KEPT_MS / 1000 + 1)
    assert seen.rows() == []


def test_a_fleet_that_leaves_hides_nobody_who_died() -> None:
    clock = ManualClock()
    seen = Departures(clock)
    seen.note("daemon", "d", died=True, jobs=40)
    seen.note("worker", "w", died=True)
    for number in range(ROWS_MAX):
        clock.advance(1)
        seen.note("worker", f"x{number}", died=False)
    rows = seen.rows()
    assert len(rows) == ROWS_MAX + 1
    assert {(row.kind, row.name) for row in rows[-2:]} == {("worker", "w"), ("daemon", "d")}
    assert "x0" not in {row.name for row in rows}
    told = [Gone(Departure("worker", f"{died}", died, at_ms, 0), []) for died in (False, True) for at_ms in range(90)]
    kept = [one.row for one in shown(told)]
    assert (len(kept), sum(row.died for row in kept)) == (ROWS_MAX, 90)
    assert kept == sorted(kept, key=lambda row: -row.at_ms)


def test_what_an_earlier_process_noted_is_told_on() -> None:
    clock = ManualClock()
    seen, at_ms = Departures(clock), clock.wall_ms()
    seen.note("daemon", "d", died=False)
    former = [Departure("daemon", "d", True, at_ms - 9, 0, 3), Departure("daemon", "e", True, at_ms - 9, 0, 3)]
    seen.resume(former)
    assert [(row.name, row.jobs) for row in seen.rows()] == [("d", 0), ("e", 3)]


def test_several_daemons_saw_one_departure() -> None:
    def row(at_ms: int, *, died: bool = True, jobs: int = 0, last_seen_at_ms: int = 0, times: int = 1) -> Departure:
        return Departure("daemon", "d", died, at_ms, last_seen_at_ms, jobs, "", times)

    seen = [
        ("a", row(100_000, died=False)),
        ("b", row(99_000, jobs=3, last_seen_at_ms=80_000, times=2)),
        ("c", row(98_000, jobs=2)),
        ("c", row(10_000, jobs=50)),  # another time
        ("a", Departure("worker", "d", True, 5, 5)),
    ]
    ((one, by),) = together(seen, "daemon")
    assert one == row(100_000, jobs=5, last_seen_at_ms=80_000, times=2)
    assert by == ["b", "c"]
    assert together(seen[:1], "daemon")[0].by == ["a"]
