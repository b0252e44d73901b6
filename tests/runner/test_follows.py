"""What is to follow a success: jobs of its worker, and those that its pusher wants."""

from typing import Any

import msgpack
import pytest

from jqd.domain.dates import iso
from jqd.domain.flow import THEN_TOO_LARGE, Flow, as_text
from jqd.domain.followers import FOLLOWERS_BYTES_MAX, FOLLOWERS_MAX
from jqd.domain.job import SNOOZE, Fate, Outcome
from jqd.domain.results import RESULT_DROPPED
from jqd.runner.outcome import (
    INVALID_JOBS,
    Report,
    succeed_late,
)
from tests.runner.reports import NOW_MS, end


def ended_with_then(then: list[dict[str, Any]], **said: Any) -> Outcome:
    return end(Report(**said), flow=Flow(as_text(msgpack.packb(then))))


def test_what_the_pusher_wants_to_follow_gets_the_result() -> None:
    then: list[dict[str, Any]] = [
        {"name": "b"},
        {"name": "c", "argument": 7},
        {"name": "d", "argument": {"x": 1}, "result_into": "y"},
        {"name": "e", "result_into": "y"},
    ]
    won = ended_with_then(then, result=msgpack.packb([1, 2]), follows=msgpack.packb([{"name": "own"}]))
    _, jobs = msgpack.unpackb(won.follows)
    assert [(job["name"], job["job_id"], job.get("argument")) for job in jobs] == [
        ("own", "A.0", None),
        ("b", "A.1", [1, 2]),
        ("c", "A.2", 7),
        ("d", "A.3", {"x": 1, "y": [1, 2]}),
        ("e", "A.4", {"y": [1, 2]}),
    ]
    assert not any("result_into" in job for job in jobs)
    assert ended_with_then(then, status=500).follows == b""
    late = succeed_late(
        end(Report(status=504)), Report(), then=msgpack.packb([{"name": "b"}]), finished_at_ms=9, result_bytes_max=9
    )
    assert late is not None
    assert late.follows


def test_a_result_that_surely_does_not_fit_is_not_copied_into_each_job(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[bytes] = []
    monkeypatch.setattr("jqd.runner.outcome.with_result", lambda job, result: copies.append(result))
    then = [{"name": "b"}] * 500
    won = ended_with_then(then, result=msgpack.packb("x" * 500_000))
    assert (won.fate, copies) == (Fate.SUCCEEDED, [])
    _, jobs = msgpack.unpackb(won.follows)
    assert [job["after"] for job in jobs] == [["A"]] * 500, "they read it from their parent"


def test_what_follows_goes_on_with_the_trace_of_its_parent_unless_it_names_one() -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    follows = msgpack.packb(
        [{"name": "own"}, {"name": "other", "traceparent": "its"}, {"name": "c", "traceparent": None}]
    )
    won = end(Report(follows=follows), traceparent=own)
    late = succeed_late(
        end(Report(status=504)), Report(follows=follows), then=b"", finished_at_ms=9, result_bytes_max=9, trace=own
    )
    assert late is not None
    for each in (won, late):
        assert [job["traceparent"] for job in msgpack.unpackb(each.follows)[1]] == [own, "its", own]
    assert "traceparent" not in msgpack.unpackb(end(Report(follows=msgpack.packb([{"name": "a"}]))).follows)[1][0]


@pytest.mark.parametrize(
    "said",
    [
        {"follows": msgpack.packb([{"name": "own"}] * FOLLOWERS_MAX)},
        {"follows": msgpack.packb([{"name": "own", "argument": b"x" * FOLLOWERS_BYTES_MAX}])},
    ],
)
def test_a_success_that_nothing_can_follow_for_its_size_fails_by_name(said: dict[str, Any]) -> None:
    lost = ended_with_then([{"name": "b"}, {"name": "c"}], **said)
    assert (lost.fate, lost.follows, lost.message.split(":")[0]) == (Fate.FAILED, b"", INVALID_JOBS)


@pytest.mark.parametrize(
    "said",
    [
        {"result": msgpack.packb(b"x" * FOLLOWERS_BYTES_MAX)},
        {"result_bytes": 5_000_000},
        {"result": msgpack.packb(b"x" * (FOLLOWERS_BYTES_MAX // 2)), "follows": msgpack.packb([{"name": "own"}])},
    ],
)
def test_a_result_that_is_too_large_to_be_handed_on_fails_no_success(said: dict[str, Any]) -> None:
    """Who wants it waits for it, and so fails by name; the others follow."""
    then: list[dict[str, Any]] = [{"name": "b"}, {"name": "c", "argument": 7}, {"name": "d", "result_into": "x"}]
    won = ended_with_then(then, **said)
    assert won.fate is Fate.SUCCEEDED
    assert won.message.startswith((THEN_TOO_LARGE, RESULT_DROPPED))
    jobs = [job for job in msgpack.unpackb(won.follows)[1] if job["name"] != "own"]
    assert [(job["name"], job.get("after"), job.get("one_result"), job.get("argument")) for job in jobs] == [
        ("b", ["A"], True, None),
        ("c", None, None, 7),
        ("d", ["A"], True, None),
    ]


def test_what_has_an_argument_of_its_own_follows_a_result_of_any_size() -> None:
    own: list[dict[str, Any]] = [{"name": "b", "argument": 1}]
    for said in ({"result": msgpack.packb(b"x" * FOLLOWERS_BYTES_MAX)}, {"result_bytes": 5_000_000}):
        won = ended_with_then(own, **said)
        assert won.fate is Fate.SUCCEEDED
        assert [job["argument"] for job in msgpack.unpackb(won.follows)[1]] == [1]


def test_a_late_success_is_none_without_what_follows_it() -> None:
    given_up = end(Report(status=504), keep=False)
    many, large = (
        Report(follows=msgpack.packb([{"name": "own"}] * FOLLOWERS_MAX)),
        Report(result=msgpack.packb(b"x" * FOLLOWERS_BYTES_MAX)),
    )
    then = msgpack.packb([{"name": "b"}])
    assert succeed_late(given_up, many, then=then, finished_at_ms=9, result_bytes_max=9) is None
    late = succeed_late(given_up, large, then=then, finished_at_ms=9, result_bytes_max=9)
    assert late is not None
    assert late.message.startswith(THEN_TOO_LARGE)
    assert succeed_late(given_up, large, then=b"", finished_at_ms=9, result_bytes_max=9) is not None


def test_what_follows_a_success_is_part_of_it_and_of_nothing_else() -> None:
    follows = msgpack.packb([{"name": "next"}, {"name": "b", "job_id": "own", "delay": 2, "run_at": None}])
    won = end(Report(follows=follows))
    assert msgpack.unpackb(won.follows) == [
        "",
        [
            {"name": "next", "job_id": "A.0", "parent": "A"},
            {"name": "b", "job_id": "own", "parent": "A", "run_at": iso(NOW_MS + 2005)},
        ],
    ]
    late = succeed_late(
        end(Report(status=504)), Report(follows=follows), then=b"", finished_at_ms=NOW_MS + 5, result_bytes_max=9
    )
    assert late is not None
    assert late.follows == won.follows
    for report in (Report(status=500, follows=follows), Report(reason=SNOOZE, follows=follows)):
        assert end(report, wrong="all").follows == b""
        assert end(report, wrong="all").fate is Fate.RETRY, "nobody looks at it"
    refused = end(Report(follows=follows), wrong="jobs/0/name: odd")
    assert (refused.fate, refused.status) == (Fate.FAILED, 422), "it would say the same again"
    assert "INVALID_JOBS" in refused.message
    assert "jobs/0/name: odd" in refused.message
