"""The choice of a jobtype, against a plain statement of the rule."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.job import PRIORITY_MAX, PRIORITY_MIN
from jqd.scheduler import NO_BOUND, Scheduler, Waiting


class Row(NamedTuple):
    jobtype: str
    priority: int
    head_id: str
    waiting: int = 1
    aged: int = 0

    @property
    def rank(self) -> int:
        return self.priority - self.aged


def first(rows: list[Row], may_run: Callable[[Row], bool] = lambda row: True) -> tuple[str, int] | None:
    """The jobtype to claim from, and how far down."""
    scheduler = Scheduler()
    chosen = next(scheduler.select_rows_to_run([scheduler.ranked(rows)], may_run=may_run), None)
    return chosen and (chosen.row.jobtype, chosen.no_worse_than)


def test_nothing_waits_nothing_runs() -> None:
    assert first([]) is None


def test_all_that_are_as_good_as_the_best_are_chosen_also_of_one_jobtype_in_two_places() -> None:
    rows = [Row("mail", 0, "2"), Row("mail", 0, "1"), Row("bill", 0, "3", 0), Row("bill", 4, "0"), Row("scan", 9, "0")]
    scheduler = Scheduler()
    for places in ([rows], [rows[::2], rows[1::2]]):
        ranked = [scheduler.ranked(place) for place in places]
        chosen = scheduler.select_rows_to_run(ranked, may_run=lambda row: True)
        assert [(one.row.head_id, one.no_worse_than) for one in chosen] == [("1", 0), ("2", 4)]


def test_the_smallest_priority_number_goes_first_over_all_jobtypes() -> None:
    rows = [Row("mail", 5, "A"), Row("bill", -3, "Z"), Row("scan", 0, "B")]
    assert first(rows) == ("bill", 0)


def test_among_equals_the_oldest_head_goes_first() -> None:
    rows = [Row("mail", 0, "02"), Row("bill", 0, "01"), Row("scan", 0, "03")]
    assert first(rows) == ("bill", 0)


def test_where_jobs_age_their_ranks_are_compared() -> None:
    rows = [Row("mail", 5, "C", aged=6), Row("bill", 0, "A"), Row("scan", 3, "B", aged=3)]
    assert first(rows) == ("mail", 0)


def test_a_jobtype_alone_may_run_to_the_end_of_its_priorities() -> None:
    assert first([Row("mail", 7, "A", 100)]) == ("mail", NO_BOUND)


def test_jobs_nobody_may_run_bound_nobody() -> None:
    rows = [Row("mail", 1, "A"), Row("bill", 2, "B"), Row("scan", 3, "C")]
    chosen = first(rows, may_run=lambda row: row.jobtype != "bill")
    assert chosen == ("mail", 3)
    assert first(rows, may_run=lambda row: row.jobtype == "scan") == ("scan", NO_BOUND)
    assert first(rows, may_run=lambda row: False) is None


def test_the_worker_question_is_asked_no_more_often_than_needed() -> None:
    asked: list[str] = []

    def may_run(row: Waiting) -> bool:
        asked.append(row.jobtype)
        return True

    first([Row(name, 0, name) for name in "dcba"], may_run=may_run)
    assert asked == ["a", "b"]


def test_a_row_without_jobs_is_no_row() -> None:
    rows = [Row("mail", -9, "A", 0), Row("bill", 1, "B")]
    assert first(rows) == ("bill", NO_BOUND)


names = st.sampled_from("abcdefgh")
rows_of = st.lists(
    st.builds(
        Row,
        names,
        st.integers(PRIORITY_MIN, PRIORITY_MAX) | st.integers(-2, 2),
        st.text("0123", max_size=3),
        st.integers(0, 2),
        st.integers(0, 9),
    ),
    unique_by=lambda row: row.jobtype,
)


@given(rows_of, st.frozensets(names))
def test_no_choice_overtakes_a_better_job_that_may_run(rows: list[Row], runnable: frozenset[str]) -> None:
    chosen = first(rows, may_run=lambda row: row.jobtype in runnable)
    left = [row for row in rows if row.jobtype in runnable and row.waiting]
    if chosen is None:
        assert not left
        return
    jobtype, no_worse_than = chosen
    (row,) = (row for row in left if row.jobtype == jobtype)
    others = [other for other in left if other is not row]
    assert all((row.rank, row.head_id) <= (other.rank, other.head_id) for other in others)
    assert no_worse_than == min((other.rank for other in others), default=NO_BOUND)
    assert no_worse_than >= row.rank


def test_counts_balance() -> None:
    scheduler = Scheduler()
    scheduler.jobs_started("mail", 3)
    scheduler.jobs_started("bill", 1)
    scheduler.jobs_stopped("mail", 2)
    assert scheduler.running() == {"mail": 1, "bill": 1}
    scheduler.jobs_stopped("mail", 1)
    assert scheduler.running() == {"bill": 1}


@pytest.mark.parametrize(("started", "stopped"), [(1, 2), (0, 1), (1, 0), (1, -1)])
def test_a_count_that_cannot_be_is_a_bug(started: int, stopped: int) -> None:
    scheduler = Scheduler()
    if started:
        scheduler.jobs_started("mail", started)
    with pytest.raises(AssertionError):
        scheduler.jobs_stopped("mail", stopped)
    assert scheduler.running() == ({"mail": 1} if started else {})
