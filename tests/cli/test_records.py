"""Records in words: what MessagePack has and JSON lacks, and arguments on one line that mean themselves again."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jqd.cli.argument import value
from jqd.cli.records import Record, line, payload
from jqd.domain.job import Fate, Job
from jqd.domain.record import Lane
from jqd.domain.settings import Setting
from tests.cli.books import AT_MS, outcome
from tests.cli.test_argument import JSON


def pack(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


@settings(max_examples=50, deadline=None)
@given(
    JSON | st.text() | st.dictionaries(st.sampled_from(["$bytes", "$map", "a"]), st.binary() | st.text(), max_size=2)
)
def test_a_payload_pushed_again_is_the_same_argument(meant: Any) -> None:
    told = payload(pack(meant))
    assert "\n" not in told
    assert "\r" not in told
    assert told.isprintable()
    assert told.strip()
    assert pack(value(told, "it")) == pack(meant)


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("hello, world", "hello, world"),
        ("a|b # c", "a|b # c"),
        ("größer 面", "größer 面"),
        ("", '""'),
        (" ", '" "'),
        ("12", '"12"'),
        ("null", '"null"'),
        ("1" * 60, '"' + "1" * 60 + '"'),
        ("two\nlines", '"two\\nlines"'),
        ("\x1b[2J", '"\\u001b[2J"'),
        ("del\x7f", '"del\\u007f"'),
        ("c1 \x9b ü", '"c1 \\u009b \\u00fc"'),
        ({"a": ["ü\n"]}, '{"a": ["ü\\n"]}'),
        (None, "null"),
        (b"\0\xff", '{"$bytes": "AP8="}'),
        (msgspec.msgpack.Ext(5, b"x"), '{"$msgpack": "1AV4"}'),
        (float("nan"), '{"$msgpack": "y3/4AAAAAAAA"}'),
    ],
)
def test_a_payload_is_text_where_that_means_itself_and_json_elsewhere(argument: Any, told: str) -> None:
    assert payload(pack(argument)) == told
    assert line(Job("ID", "type", pack(argument))) == f"ID|type|{told}"


@pytest.mark.parametrize(
    "raw",
    [
        b"\xa2\xff\xfe",  # a string that is no UTF-8
        b"\x91" * 5_000 + b"\xc0",  # deeper than anybody decodes
        b"\xd6\xff\xff\xff\xff",  # cut off
    ],
)
def test_what_cannot_be_decoded_is_shown_whole(raw: bytes) -> None:
    shown = json.loads(Record(5, Lane.JOBS, AT_MS, Job("ID", "t", raw)).as_json())["argument"]
    assert list(shown) == ["$msgpack"]
    assert json.loads(payload(raw)) == shown


def test_a_record_says_all_there_is() -> None:
    job = Job(
        "ID",
        "mail",
        pack({1: b"x"}),
        created_at_ms=AT_MS,
        eligible_at_ms=AT_MS + 60_000,
        name="mine",
        tags=("a", "b"),
        priority=-3,
        max_retry=2,
        timeout=1.5,
        keep_result=True,
    )
    assert json.loads(Record(118, Lane.JOBS, AT_MS, job).as_json()) == {
        "position": 118,
        "lane": "jobs",
        "at": "2027-01-15T08:00:00.000Z",
        "job_id": "ID",
        "name": "mail",
        "argument": {"$msgpack": "gQHEAXg="},
        "priority": -3,
        "max_retry": 2,
        "timeout": 1.5,
        "keep_result": True,
        "eligible_at": "2027-01-15T08:01:00.000Z",
        "expires_at": None,
        "chosen_id": "mine",
        "tags": ["a", "b"],
        "backoff": None,
    }
    ended = outcome("ID", Fate.DEAD, attempt=3, fence=9, error=pack("e"), message="m", finished_at_ms=AT_MS)
    ended = msgspec.structs.replace(ended, snoozes=2, interruptions=3, log="said")
    assert json.loads(Record(200, Lane.OUTCOMES, AT_MS, ended).as_json()) == {
        "position": 200,
        "lane": "outcomes",
        "at": "2027-01-15T08:00:00.000Z",
        "job_id": "ID",
        "name": "t",
        "fate": "dead",
        "priority": 0,
        "attempt": 3,
        "status": 200,
        "delay_ms": 0,
        "started_at": None,
        "finished_at": "2027-01-15T08:00:00.000Z",
        "worker": "",
        "reason": "",
        "error": "e",
        "message": "m",
        "result": None,
        "keep_result": False,
        "fence": 9,
        "snoozes": 2,
        "interruptions": 3,
        "log": "said",
    }
    assert json.loads(Record(300, Lane.CANCELS, AT_MS, "ID").as_json())["job_id"] == "ID"


def test_a_date_beyond_the_calendar_is_a_number() -> None:
    shown = json.loads(Record(0, Lane.JOBS, 1, Job("ID", "t", eligible_at_ms=1 << 62)).as_json())
    assert shown["eligible_at"] == str(1 << 62)


def test_no_record_of_a_rule_shows_what_a_worker_is_told_in_secret() -> None:
    options = {"headers": {"Authorization": "hush"}, "secrets": ["hush"], "format": "json"}
    body = pack({"options": options, "versions": [{"number": 1, "options": options}], "secrets": []})
    told = Record(0, Lane.RULES, AT_MS, Setting("handler", "mail", 7, AT_MS, msgspec.Raw(body))).as_json()
    assert "hush" not in told
    assert told.count("(not shown)") == 4
    assert '"secrets":[]' in told
