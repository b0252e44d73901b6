"""When what is told: timers, the limit of an hour, and that nothing is lost, whatever comes when."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jqd.notify import rule
from jqd.notify.board import (
    ALL_OTHERS,
    GROUPS_MAX,
    LINES_MAX,
    OTHERS,
    TENANT_GROUPS_MAX,
    Channel,
    Failure,
    Notice,
    decode,
    encode,
)
from jqd.notify.board import Board as State
from jqd.notify.config import NotifyConfig
from jqd.notify.rule import Fate, Result

BEGIN_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
TICK_MS = 10_000
SENT = Result(Fate.SENT)


class Desk:
    """A channel, its clock, and whoever is told."""

    def __init__(self, **settings: Any) -> None:
        self.config = NotifyConfig(**settings)
        self.channel = Channel()
        self.now_ms = BEGIN_MS
        self.result = SENT
        self.told: list[tuple[int, Notice]] = []
        """What arrived, or may have, and when."""
        self.arrived: list[Notice] = []
        self.failed = 0
        self._ids = itertools.count()

    def fail(self, jobtype: str = "mail", line: str = "no", times: int = 1, **fields: Any) -> None:
        each = (Failure(jobtype, line, self.now_ms, f"job{self.failed + n}", **fields) for n in range(times))
        rule.count(self.channel, each, self.now_ms, self.now_ms)
        self.failed += times

    def fail_each(self, each: Iterable[tuple[str, str]]) -> None:
        """Of these types, with these lines, read at once."""
        failures = [Failure(jobtype, line, self.now_ms, "job") for jobtype, line in each]
        rule.count(self.channel, failures, self.now_ms, self.now_ms)
        self.failed += len(failures)

    def look(self) -> None:
        """As the loop does."""
        rule.compose(self.channel, self.config, lambda: f"n{next(self._ids)}", self.now_ms, self.now_ms)
        if notice := rule.begin(self.channel, self.config, self.now_ms):
            if self.result.fate in (Fate.SENT, Fate.UNKNOWN):
                self.told.append((self.now_ms, notice))
            rule.settle(self.channel, self.result, self.now_ms)
            if self.result.fate is not Fate.REFUSED and self.channel.notice is None:
                self.arrived.append(notice)
            self.channel = decode(encode(State(channels={"mail": self.channel}))).channels["mail"]

    def go(self, seconds: float, tick_ms: int = TICK_MS) -> None:
        until_ms = self.now_ms + round(seconds * 1000)
        while self.now_ms < until_ms:
            self.now_ms = min(self.now_ms + tick_ms, until_ms)
            self.look()

    @property
    def at_s(self) -> list[float]:
        """When something was told, in seconds from the beginning."""
        return [(at_ms - BEGIN_MS) / 1000 for at_ms, _ in self.told]

    @property
    def counts(self) -> list[list[tuple[int, int, bool]]]:
        """Of each notice, of each group: all failures, new ones, whether it is over."""
        return [[(row.count, row.new, row.is_over) for row in notice.rows] for _, notice in self.told]


def test_tenants_with_many_kinds_of_failures_leave_groups_to_the_next() -> None:
    """Five of them had all 300, and any other's failures were only counted, with those of everybody."""
    desk = Desk()
    for place in range(6):
        desk.fail_each((f"t{place}\x1ftype{at}", "no") for at in range(TENANT_GROUPS_MAX))
    desk.fail_each([("late\x1fmail", "down"), ("mail", "down")])
    assert {("late\x1fmail", "down"), ("mail", "down")} <= {group.key for group in desk.channel.groups}


def test_a_tenant_that_fails_again_and_again_keeps_back_nobody_elses_notices() -> None:
    """Twenty new kinds of failures of one tenant, and the first failure of any other was told an hour later."""
    desk = Desk(hourly_max=4, first_s=30)
    for turn in range(6):
        desk.fail("acme\x1fmail", f"no {turn}")
        desk.go(60)
    assert len(desk.told) == 2, "half of them, though nobody else has any"
    desk.fail("other\x1fmail", "down")
    desk.go(60)
    (_, last) = desk.told[-1]
    assert (len(desk.told), {row.jobtype[:4] for row in last.rows}) == (3, {"acme", "othe"}), "and with it what waited"
    desk.fail("mail", "down")
    desk.go(60)
    assert len(desk.told) == 4
    desk.go(3_600)
    assert desk.channel.held_since_ms == 0


def test_the_first_is_told_after_half_a_minute_with_what_else_came() -> None:
    desk = Desk()
    desk.fail()
    desk.go(20)
    desk.fail(line="other", times=3)
    desk.go(600)
    assert desk.at_s == [30]
    assert desk.counts == [[(3, 3, False), (1, 1, False)]]


def test_a_group_is_told_again_when_it_grew_tenfold_after_five_minutes_and_else_after_four_hours() -> None:
    desk = Desk(resolved_s=86_400)
    desk.fail()
    desk.go(60)
    desk.fail(times=9)
    desk.go(600)
    assert desk.at_s == [30, 330]
    desk.fail(times=5)
    desk.go(5 * 3_600)
    assert desk.at_s == [30, 330, 330 + 14_400]
    assert desk.counts[1:] == [[(10, 9, False)], [(15, 5, False)]]


def test_a_group_is_over_after_an_hour_without_failures_and_begins_anew() -> None:
    desk = Desk()
    desk.fail()
    desk.go(3_000)
    desk.fail()
    desk.go(3_600)
    assert desk.at_s == [30, 6_600]
    assert desk.counts[-1] == [(2, 1, True)]
    assert not desk.channel.groups
    desk.fail()
    desk.go(30)
    assert desk.counts[-1] == [(1, 1, False)]


def test_what_is_long_over_when_it_is_found_is_told_once() -> None:
    desk = Desk()
    rule.count(desk.channel, [Failure("mail", "no", BEGIN_MS - 90_000_000, "old")], BEGIN_MS, BEGIN_MS)
    desk.go(7_200)
    assert (desk.at_s, desk.counts) == ([30], [[(1, 1, True)]])
    assert not desk.channel.groups


def test_more_than_an_hour_may_have_are_held_back_and_told_together() -> None:
    desk = Desk(hourly_max=3, first_s=0, resolved_s=86_400)
    for n in range(8):
        desk.fail(line=f"error {n}")
        desk.go(60)
    assert desk.at_s == [10, 70, 130]
    assert [notice.is_last_until_ms for _, notice in desk.told] == [0, 0, BEGIN_MS + 10_000 + HOUR_MS]
    desk.go(3_600)
    assert desk.at_s == [10, 70, 130, 3_610]
    last = desk.told[-1][1]
    assert last.held_since_ms == BEGIN_MS + 190_000
    assert sum(row.new for row in last.rows) == 5, "those that were held back"


def test_what_a_server_does_not_take_is_tried_again_ever_later_and_is_the_same() -> None:
    desk = Desk(resolved_s=86_400)
    desk.fail()
    desk.result = Result(Fate.LATER, "451")
    desk.go(60)
    first = desk.channel.notice
    assert first is not None
    desk.fail(line="other")
    desk.go(3_600)
    again = desk.channel.notice
    assert again is not None
    assert (again.id, again.rows, again.tries) == (first.id, first.rows, 6), "after 1, 2, 4, 8, 16 minutes"
    assert desk.channel.trouble == "451"
    desk.result = SENT
    desk.go(3_600)
    assert [[row.line for row in notice.rows] for _, notice in desk.told] == [["no"], ["other"]]
    assert not desk.channel.trouble


def test_a_server_that_never_answers_gets_a_notice_five_times_and_then_the_next() -> None:
    desk = Desk()
    desk.fail()
    desk.result = Result(Fate.UNKNOWN, "does not answer")
    desk.go(1_200)
    assert (desk.at_s, desk.channel.notice) == ([30, 90, 210, 450, 930], None)
    desk.fail(line="other")
    desk.go(60)
    assert [row.line for row in desk.told[-1][1].rows] == ["other"]


def test_after_one_that_was_refused_the_next_quotes_nothing_and_comes_soon() -> None:
    """A spam filter refused the text of one tenant's failure for ever, and with it those of all others."""
    desk = Desk()
    desk.fail("acme\x1fmail", "cheap pills")
    desk.result = Result(Fate.REFUSED, "554 spam")
    desk.go(30)
    desk.fail("print", "jam")
    desk.result = SENT
    desk.go(60)
    assert [(notice.is_plain, len(notice.rows)) for _, notice in desk.told] == [(True, 2)]
    desk.fail("print", "no paper")
    desk.go(60)
    assert not desk.told[-1][1].is_plain


def test_a_text_that_is_never_taken_now_makes_room_for_one_that_quotes_nothing() -> None:
    """As of a web hook that answers 500 to a line that it cannot read. A server that is away has read nothing."""
    for was_read in (True, False):
        desk = Desk()
        desk.fail()
        desk.result = Result(Fate.LATER, "500", was_read=was_read)
        desk.go(1_200)
        assert (desk.channel.notice is not None and desk.channel.notice.is_plain) is was_read


@pytest.mark.parametrize("last", [{"fate": Fate.UNKNOWN}, {"done": ["a@x"], "reached": True}, {"was_read": True}])
def test_tries_that_reached_no_server_close_no_notice(last: dict[str, Any]) -> None:
    desk = Desk()
    desk.fail()
    desk.result = Result(Fate.LATER, "away")
    desk.go(1_000)
    desk.result = desk.result._replace(**last)
    desk.go(1_000)
    assert (desk.channel.notice and desk.channel.notice.is_plain) is False


def test_what_is_refused_for_good_is_told_by_another_an_hour_later() -> None:
    desk = Desk(resolved_s=86_400)
    desk.fail()
    desk.result = Result(Fate.REFUSED, "550 no such user")
    desk.go(3_000)
    assert (desk.channel.notice, desk.channel.trouble) == (None, "550 no such user")
    desk.fail()
    desk.result = SENT
    desk.go(900)
    assert (desk.at_s, desk.counts) == ([3_690], [[(2, 2, False)]])


def test_who_begins_to_act_tries_at_once() -> None:
    desk = Desk()
    desk.fail()
    desk.result = Result(Fate.REFUSED, "535 wrong password")
    desk.go(60)
    rule.resume(desk.channel)
    desk.result = SENT
    desk.go(10)
    assert desk.at_s == [70]


def test_a_notice_that_was_cut_off_is_sent_again_as_the_same_and_counts_twice() -> None:
    desk = Desk(hourly_max=2)
    desk.fail()
    desk.now_ms += 30_000
    rule.compose(desk.channel, desk.config, lambda: "one", desk.now_ms, desk.now_ms)
    assert rule.begin(desk.channel, desk.config, desk.now_ms)
    desk.go(10)  # its daemon died
    assert [notice.id for _, notice in desk.told] == ["one"]
    assert len(desk.channel.sent_ms) == 2
    desk.fail(line="other")
    desk.go(3_000)
    assert len(desk.told) == 1, "two may have arrived"


def test_what_was_read_before_is_counted_once() -> None:
    desk = Desk()
    desk.fail(times=3)
    again = [Failure("mail", "no", desk.now_ms, "job0", may_be_known=True)]
    rule.count(desk.channel, again, desk.now_ms, desk.now_ms)
    assert [group.count for group in desk.channel.groups] == [3]
    rule.count(
        desk.channel, [Failure("mail", "new", BEGIN_MS - 1, "late", may_be_known=True)], desk.now_ms, desk.now_ms
    )
    assert [(group.line, group.count) for group in desk.channel.groups] == [("no", 3), ("new", 1)]


def test_a_clock_that_was_set_back_keeps_nothing_waiting() -> None:
    desk = Desk(hourly_max=1)
    desk.fail()
    desk.go(60)
    desk.now_ms -= 86_400_000
    desk.fail(line="other")
    desk.go(3_700)
    assert len(desk.told) == 2


@pytest.mark.parametrize("tenant", ["", "acme\x1f"])
def test_error_lines_without_end_are_counted_together(tenant: str) -> None:
    desk = Desk()
    for n in range(3 * LINES_MAX):
        desk.fail(f"{tenant}mail", f"no such user {n}")
    assert len(desk.channel.groups) == LINES_MAX + 1
    assert desk.channel.groups[-1].key == (f"{tenant}mail", OTHERS)
    assert desk.channel.groups[-1].count == 2 * LINES_MAX


def test_one_tenant_cannot_hide_the_failures_of_another() -> None:
    desk = Desk()
    desk.fail_each((f"acme\x1ftype{n}", f"error {n}") for n in range(5_000))
    desk.fail("mail", "no")
    assert desk.channel.groups[-1].key == ("mail", "no")
    assert len(desk.channel.groups) <= TENANT_GROUPS_MAX + 3
    desk.fail_each((f"t{n}\x1fmail", "no") for n in range(5_000))
    assert len(desk.channel.groups) <= GROUPS_MAX + 1
    assert desk.channel.groups[-1].key == ALL_OTHERS
    desk.go(40)
    assert sum(row.new for row in desk.told[0][1].rows) == desk.failed


def test_the_first_rows_are_of_each_tenant() -> None:
    desk = Desk()
    for n in range(80):
        desk.fail(f"acme\x1ftype{n}", "flood", times=100)
    for line in ("one", "two"):
        desk.fail("mail", line)
    desk.fail("print", "jam")
    desk.go(40)
    rows = desk.told[0][1].rows
    assert {"one", "two", "jam"} <= {row.line for row in rows[:6]}


@settings(max_examples=60)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from((1, 10, 40, 400, 4_000)),
            st.tuples(st.sampled_from(("mail", "acme\x1fmail")), st.integers(0, 30), st.integers(0, 40)),
            st.sampled_from((*Fate, Fate.SENT)),
        ),
        max_size=12,
    ),
    most=st.integers(1, 4),
)
def test_no_failure_is_lost_and_no_hour_has_too_many(steps: list[Any], most: int) -> None:
    desk = Desk(hourly_max=most)
    for seconds, (jobtype, line, times), fate in steps:
        desk.fail(jobtype, f"error {line}", times)
        desk.result = Result(fate)
        desk.go(seconds, 60_000)
    desk.result = SENT
    desk.go(12 * 3_600, 300_000)
    assert not desk.channel.groups, "all is over"
    assert sum(row.new for notice in desk.arrived for row in notice.rows) == desk.failed
    at_ms = [at_ms for at_ms, _ in desk.told]
    assert all(late - early >= HOUR_MS for early, late in zip(at_ms, at_ms[most:], strict=False))
    seen: dict[tuple[str, str], int] = {}
    for notice in desk.arrived:
        for row in notice.rows:
            assert not row.is_known or notice.at_ms - seen[row.key] >= 300_000
            seen[row.key] = notice.at_ms


@given(seconds=st.integers(0, 3_000), others=st.integers(0, 5))
def test_a_new_group_waits_for_nothing_but_its_own_time(seconds: int, others: int) -> None:
    desk = Desk()
    for n in range(others):
        desk.fail(line=f"error {n}")
        desk.go(100)
    desk.go(seconds)
    at_ms = desk.now_ms
    desk.fail(line="new")
    desk.go(60)
    (told_ms,) = (when_ms for when_ms, notice in desk.told if any(row.line == "new" for row in notice.rows))
    assert told_ms - at_ms <= 30_000 + TICK_MS
