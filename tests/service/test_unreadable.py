"""Rules that cannot be read: each is said once and counts as deleted, whatever its kind."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw
from structlog.testing import capture_logs

from jqd.domain.cron_expression import Recurrence
from jqd.domain.schedules import Schedule, body_of
from jqd.domain.settings import NIL, Rule, Rules
from tests.api.whole import Whole

KINDS = (
    "audit",
    "ban",
    "constraint",
    "drain",
    "fired",
    "halt",
    "handler",
    "options",
    "pause",
    "quota",
    "schedule",
    "token",
    "view",
    "worker",
)


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


def bad(kind: str, revision: int = 5) -> Rule:
    return Rule(kind, "x", revision, 1_000, Raw(b"\x91\xc3"))


async def test_every_kind_that_is_taken_has_a_reader(edge: Whole) -> None:
    rules = edge.workers.rules
    assert {*KINDS} >= {*rules._readers} >= {*rules._watchers}
    with capture_logs() as log:
        for kind in rules._readers:
            assert rules.take([bad(kind)]) == [], "what nobody can read is told to nobody"
            rule = rules.get(kind, "x")
            assert rule is not None
            assert (rule.revision, bytes(rule.body)) == (5, NIL)
    said = [(row["event"], row["kind"], row["log_level"]) for row in log if row["event"] == "rules.unreadable"]
    assert said == [("rules.unreadable", kind, "error") for kind in rules._readers]
    (complaint,) = rules.complaints()
    assert complaint.endswith(f"; say it once more (and {len(said) - 1} more; the log has all)")
    for path in ("workers", "handlers", "schedules", "quotas", "constraints", "tokens", "audit", "types"):
        assert (await edge.call("GET", f"/v1/{path}")).status == 200, path


async def test_what_is_said_once_more_holds_and_is_no_complaint() -> None:
    rules, read = Rules(), list[Any]()
    rules.read("pause", lambda rule: msgspec.msgpack.decode(rule.body, type=str))
    rules.watch("pause", lambda rule: read.append(rule.revision if not rule.is_deleted else None))
    rules.take([bad("pause")])
    assert rules.complaints()[0].startswith("pause 'x' cannot be read, and holds for nothing: Expected `str`")
    (good,) = rules.make({("pause", "x"): msgspec.msgpack.encode("y")}, now_ms=0, origin=1)
    assert good.revision > 5
    assert rules.take([good]) == [good]
    assert rules.take([bad("pause")]) == []
    assert rules.complaints() == []
    assert read == [None, good.revision]


async def test_a_schedule_whose_job_cannot_be_pushed_is_none(edge: Whole) -> None:
    job = Raw(msgspec.msgpack.encode({"name": "n", "timeout": "1d"}))
    body = Raw(body_of(Schedule(job, Recurrence(every_ms=1000))))
    edge.workers.rules.take([Rule("schedule", "n", 9, 0, body)])
    assert (await edge.call("GET", "/v1/schedules")).body["schedules"] == []
    assert "timeout" in edge.workers.rules.complaints()[0]
