"""From report to outcome: which fate, which delay."""

import random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.backoff import Backoff
from jqd.domain.flow import Flow, as_text
from jqd.domain.job import INTERRUPTED, NIL, SNOOZE, Fate, Held, Job, Outcome
from jqd.domain.msgpack_depth import NESTING_MAX
from jqd.runner.outcome import (
    ERROR_BYTES_MAX,
    LOG_BYTES_MAX,
    MESSAGE_LENGTH_MAX,
    RETRY_AFTER_S_MAX,
    SNOOZE_STATUS,
    SNOOZES_MAX,
    SUCCESS_LOG_BYTES_MAX,
    Report,
    end_attempt,
    interrupted,
    is_repeat,
    parse_retry_after,
    succeed_late,
)
from tests.runner.reports import NOW_MS, end


@pytest.mark.parametrize(
    ("report", "fate"),
    [
        (Report(status=200), Fate.SUCCEEDED),
        (Report(status=299, should_retry=True), Fate.SUCCEEDED),
        (Report(status=400), Fate.FAILED),
        (Report(status=499), Fate.FAILED),
        (Report(status=400, should_retry=True), Fate.RETRY),
        (Report(status=100), Fate.RETRY),
        (Report(status=500), Fate.RETRY),
        (Report(status=500, should_retry=False), Fate.FAILED),
        (Report(status=100, should_retry=False), Fate.FAILED),
        (Report(status=301), Fate.RETRY),
        (Report(status=-7), Fate.RETRY),
        (Report(status=2000), Fate.RETRY),
    ],
)
def test_fates(report: Report, fate: Fate) -> None:
    assert end(report).fate is fate


def test_a_job_waits_as_it_was_pushed_to_and_as_its_worker_says_before_that() -> None:
    assert end(Report(status=500), attempt=2, waits=(7.0, 90.0)).delay_ms == 90_000
    assert end(Report(status=500, retry_after_s=1), waits=(7.0,)).delay_ms == 1_000


def test_attempts_are_counted_to_the_last() -> None:
    fates = [end(Report(status=500), attempt=attempt).fate for attempt in (1, 2, 3, 4)]
    assert fates == [Fate.RETRY, Fate.RETRY, Fate.DEAD, Fate.DEAD]
    assert end(Report(status=500), max_retry=0).fate is Fate.DEAD


def test_a_job_is_tried_until_its_age_where_that_is_bounded() -> None:
    """Whatever began last counts: its push, its date, or the content that it has now."""
    now_ms = NOW_MS + 5
    cases: list[tuple[dict[str, Any], Fate]] = [
        ({"created_at_ms": now_ms - 60_000}, Fate.RETRY),
        ({"created_at_ms": now_ms - 60_001}, Fate.DEAD),
        ({"created_at_ms": 1, "eligible_at_ms": now_ms - 60_000}, Fate.RETRY),
        ({"created_at_ms": 1, "generation": (now_ms - 60_000) * 1000}, Fate.RETRY),
        ({"created_at_ms": 1, "generation": (now_ms - 60_001) * 1000}, Fate.DEAD),
        ({"created_at_ms": now_ms, "max_retry": 0}, Fate.DEAD),
    ]
    for begun, fate in cases:
        generation = begun.pop("generation", 0)
        held = Held(Job("A", "mail", **{"max_retry": 9, **begun}), 9, 1, generation)
        for status, expected in ((500, fate), (400, Fate.FAILED), (200, Fate.SUCCEEDED)):
            outcome = end_attempt(
                held,
                Report(status=status),
                backoff=Backoff(for_s=60.0),
                source=random.Random(1),
                worker="W",
                started_at_ms=NOW_MS,
                finished_at_ms=now_ms,
                result_bytes_max=9,
            )
            assert outcome.fate is expected


def test_a_snooze_spends_no_attempt_until_there_were_too_many() -> None:
    snooze = Report(status=SNOOZE_STATUS, reason=SNOOZE, retry_after_s=60.0)
    off = end(snooze, attempt=1, max_retry=0)
    assert (off.fate, off.delay_ms, off.reason, off.snoozes) == (Fate.RETRY, 60_000, SNOOZE, 1)
    assert off.message == "the job put itself off"
    assert is_repeat(off, snooze)
    assert end(Report(status=SNOOZE_STATUS, reason=SNOOZE, retry_after_s=0.0)).delay_ms == 1_000
    assert end(Report(status=500), snoozes=3).snoozes == 3
    past = end(snooze, max_retry=0, snoozes=SNOOZES_MAX)
    assert (past.fate, past.reason, past.snoozes) == (Fate.DEAD, "other", SNOOZES_MAX)


def test_an_interruption_spends_no_attempt_and_too_many_end_the_job() -> None:
    cut = interrupted("its worker was stopped")
    back = end(cut, max_retry=0, interruptions=2)
    assert (back.fate, back.delay_ms, back.reason, back.interruptions) == (Fate.RETRY, 0, INTERRUPTED, 3)
    assert is_repeat(back, cut)
    for report in (Report(), Report(status=500), Report(status=SNOOZE_STATUS, reason=SNOOZE)):
        assert end(report, interruptions=3).interruptions == 3
    over = end(cut, interruptions=3)
    assert (over.fate, over.reason, over.interruptions) == (Fate.DEAD, INTERRUPTED, 4)
    assert over.message == (
        "INTERRUPTED: its worker was stopped; it was interrupted 4 times, and max_interruptions is 3"
    )


def test_delays() -> None:
    assert [end(Report(status=500), attempt=n, max_retry=9).delay_ms for n in (1, 2, 3)] == [2000, 6000, 18000]
    assert end(Report(status=500, retry_after_s=0.25)).delay_ms == 250
    assert end(Report(status=500, retry_after_s=0.0)).delay_ms == 0
    assert end(Report(status=500, retry_after_s=-3.0)).delay_ms == 0
    assert end(Report(status=500, retry_after_s=float("nan"))).delay_ms == 0
    assert end(Report(status=500, retry_after_s=float("inf"))).delay_ms == RETRY_AFTER_S_MAX * 1000
    assert end(Report(status=400, retry_after_s=5.0)).delay_ms == 0
    assert end(Report(status=200, retry_after_s=5.0)).delay_ms == 0


def test_what_a_success_carries() -> None:
    outcome = end(Report(status=201, result=b"\x01", error=b"\x02", message="m", reason="other"))
    assert outcome == Outcome(
        "A", 9, Fate.SUCCEEDED, "mail", 4, 1, 201, 0, NOW_MS, NOW_MS + 5, "W", result=b"\x01", keep_result=True
    )
    assert end(Report(result=b"\x01"), keep=False).result == NIL


def test_a_result_that_nobody_could_read_again_fails_the_job_for_good() -> None:
    most, more = (Report(result=b"\x91" * levels + b"\xc0") for levels in (NESTING_MAX, NESTING_MAX + 1))
    assert end(most, result_max=1000).result == most.result
    for flow in (None, Flow(as_text(msgpack.packb([{"name": "next"}])))):
        outcome = end(more, result_max=1000, flow=flow)
        assert (outcome.fate, outcome.status, outcome.result, outcome.follows) == (Fate.FAILED, 422, NIL, b"")
        assert outcome.message == "INVALID_RESPONSE: the result nests deeper than 256 levels; return plain values"
    assert end(more, keep=False).fate is Fate.SUCCEEDED, "nobody asked for it"
    given_up = end(Report(status=504), result_max=1000)
    late = [succeed_late(given_up, each, then=b"", finished_at_ms=9, result_bytes_max=1000) for each in (most, more)]
    assert [each is None for each in late] == [False, True]


def test_an_error_value_that_nobody_could_read_again_is_dropped() -> None:
    outcome = end(Report(status=500, message="no", error=b"\x91" * (NESTING_MAX + 1) + b"\xc0"))
    assert (outcome.fate, outcome.error) == (Fate.RETRY, NIL)
    assert outcome.message == "no\n(its error value nests deeper than 256 levels and was dropped)"


def test_what_a_failure_carries() -> None:
    outcome = end(Report(status=422, result=b"\x01", error=b"\x02", message="m"))
    assert (outcome.reason, outcome.error, outcome.message, outcome.result) == ("other", b"\x02", "m", NIL)


def test_limits_of_what_is_kept() -> None:
    assert end(Report(result=b"\x01" * 100)).fate is Fate.SUCCEEDED
    large = end(Report(result=b"\x01" * 101))
    assert (large.fate, large.status, large.result) == (Fate.SUCCEEDED, 200, NIL)
    assert large.message.startswith("RESULT_DROPPED: the result has 101 bytes, 100 can be kept;")
    required = end(Report(result=b"\x01" * 101), keep="required")
    assert (required.fate, required.status, required.result) == (Fate.FAILED, 413, NIL)
    assert end(Report(result=b"\x01" * 100), keep="required").result == b"\x01" * 100
    unsent = end(Report(result_bytes=90))
    assert unsent.message.startswith("RESULT_DROPPED: the result has 90 bytes, more than its worker can send;")
    assert end(Report(result_bytes=90), keep="required").fate is Fate.FAILED
    assert end(Report(result_bytes=90), keep=False).message == ""
    assert end(Report(result=b"\x01" * 101), keep=False).fate is Fate.SUCCEEDED
    assert end(Report(status=500, result=b"\x01" * 101)).status == 500
    long = end(Report(status=500, message="a" + "b" * MESSAGE_LENGTH_MAX))
    assert long.message == "… " + "b" * MESSAGE_LENGTH_MAX
    printed = end(Report(status=500, log="a" + "b" * LOG_BYTES_MAX))
    assert printed.log == "b" * LOG_BYTES_MAX
    printed = end(Report(status=500, log="é" * (LOG_BYTES_MAX // 2) + "b"))
    assert printed.log == "é" * (LOG_BYTES_MAX // 2 - 1) + "b", "bytes, and no half letter"
    printed = end(Report(log="ab" * SUCCESS_LOG_BYTES_MAX, log_from=7))
    assert (printed.log, printed.log_from) == ("ab" * (SUCCESS_LOG_BYTES_MAX // 2), 7 + SUCCESS_LOG_BYTES_MAX)
    heavy = end(Report(status=500, error=b"\x01" * (ERROR_BYTES_MAX + 1), message="m"))
    assert (heavy.error, heavy.message) == (NIL, "m\n(its error value of 65537 bytes was dropped)")


def test_a_clock_that_stepped_back_ends_no_attempt_before_it_began() -> None:
    outcome = end_attempt(
        Held(Job("A", "mail"), 1, 1),
        Report(),
        backoff=Backoff(),
        source=random.Random(1),
        worker="W",
        started_at_ms=NOW_MS,
        finished_at_ms=NOW_MS - 60_000,
        result_bytes_max=1,
    )
    assert outcome.finished_at_ms == NOW_MS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("9" * 300, RETRY_AFTER_S_MAX),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2023 22:12:20 GMT", 0.0),
        ("Tue, 14 Nov 2923 22:12:20 GMT", RETRY_AFTER_S_MAX),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("٧", None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert parse_retry_after(text, NOW_MS) == seconds


@given(st.text(max_size=60) | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ [A-Z+0-9-]{0,6}"))
def test_any_retry_after_is_bounded(text: str) -> None:
    seconds = parse_retry_after(text, NOW_MS)
    assert seconds is None or 0 <= seconds <= RETRY_AFTER_S_MAX
