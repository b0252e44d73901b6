import math
from typing import Any

import msgspec
import pytest

from jqd.desk.limits import (
    DELAY_S_MAX,
    FAULTS_MAX,
    FIELDS,
    eligible_at_ms,
    explain,
    faults,
    longest_if_good,
)
from jqd.words.dates import INSTANT_MS_MAX
from jqd.words.job import MAX_RETRY_MAX, TIMEOUT_S_MAX
from jqd.words.record import PushedJob

MIB = 1 << 20
NOW_MS = 1_800_000_000_000


def job(**fields: Any) -> PushedJob:
    return PushedJob(**{"name": "mail", **fields})


GOOD: list[dict[str, Any]] = [
    {},
    {"name": "x" * 128},
    {"name": "\u30e1\u30fc\u30eb \u9001\u4fe1"},
    {"priority": -(2**31)},
    {"priority": 2**31 - 1},
    {"max_retry": 0},
    {"max_retry": MAX_RETRY_MAX},
    {"timeout": 0.001},
    {"timeout": TIMEOUT_S_MAX},
    {"delay": 0.0},
    {"delay": DELAY_S_MAX},
    {"run_at": 0},
    {"run_at": 1.5e9},
    {"run_at": "2030-01-31T08:00:00Z"},
    {"run_at": "2030-01-31T08:00:00.5+09:00"},
    {"tags": ("a",) * 32},
    {"tags": ("a" * 128,)},
    {"argument": msgspec.Raw(b"x" * MIB)},
]

BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "/name"),
    ({"name": "x" * 129}, "/name"),
    ({"name": "a\nb"}, "/name"),
    ({"name": "a\x00"}, "/name"),
    ({"name": "a\u202eb"}, "/name"),
    ({"priority": 2**31}, "/priority"),
    ({"priority": -(2**31) - 1}, "/priority"),
    ({"max_retry": -1}, "/max_retry"),
    ({"max_retry": MAX_RETRY_MAX + 1}, "/max_retry"),
    ({"timeout": 0.0}, "/timeout"),
    ({"timeout": -1.0}, "/timeout"),
    ({"timeout": math.nan}, "/timeout"),
    ({"timeout": math.inf}, "/timeout"),
    ({"timeout": TIMEOUT_S_MAX + 1}, "/timeout"),
    ({"delay": -0.001}, "/delay"),
    ({"delay": math.nan}, "/delay"),
    ({"delay": math.inf}, "/delay"),
    ({"delay": 1.0, "run_at": 1.0}, "/delay"),
    ({"run_at": -1.0}, "/run_at"),
    ({"run_at": math.nan}, "/run_at"),
    ({"run_at": math.inf}, "/run_at"),
    ({"run_at": 1e18}, "/run_at"),
    ({"run_at": 2**64 - 1}, "/run_at"),
    ({"run_at": 253_402_300_800}, "/run_at"),
    ({"run_at": "9999-12-31T23:59:59-23:59"}, "/run_at"),
    ({"run_at": "0001-01-01T00:00:00+14:00"}, "/run_at"),
    ({"run_at": "1969-12-31T23:59:59.999Z"}, "/run_at"),
    ({"run_at": "tomorrow"}, "/run_at"),
    ({"run_at": "2030-01-31T08:00:00"}, "/run_at"),
    ({"tags": ("a",) * 33}, "/tags"),
    ({"tags": ("a", "")}, "/tags/1"),
    ({"tags": ("a" * 129,)}, "/tags/0"),
    ({"tags": ("a\tb",)}, "/tags/0"),
    ({"argument": msgspec.Raw(b"x" * (MIB + 1))}, "/argument"),
    ({"job_id": ""}, "/job_id"),
    ({"job_id": "."}, "/job_id"),
    ({"job_id": "01MCC5RM000000000000070001"}, "/job_id"),
    ({"replace": True}, "/replace"),
]


@pytest.mark.parametrize("fields", GOOD)
def test_good_jobs_pass(fields):
    assert faults(job(**fields), MIB) == []
    longest = max(3, len(job(**fields).argument))
    assert longest_if_good([job(argument=msgspec.Raw(b"abc")), job(**fields)], MIB) == longest


@pytest.mark.parametrize(("fields", "pointer"), BAD)
def test_bad_fields_are_named(fields, pointer):
    found = faults(job(**fields), MIB)
    assert [fault.pointer for fault in found] == [pointer]
    assert found[0].detail
    assert longest_if_good([job(), job(**fields), job()], MIB) is None


def test_what_is_told_of_one_job_is_bounded():
    assert len(faults(job(tags=("",) * 32, name="", priority=2**40), MIB)) == FAULTS_MAX
    assert len(faults(job(tags=("",) * 1_000_000), MIB)) == 1


@pytest.mark.parametrize(
    ("fields", "at_ms"),
    [
        ({}, 0),
        ({"delay": 0.0}, 0),
        ({"delay": 1.25}, NOW_MS + 1250),
        ({"run_at": 1_900_000_000}, 1_900_000_000_000),
        ({"run_at": 1_900_000_000.25}, 1_900_000_000_250),
        ({"run_at": "2030-03-17T17:46:40Z"}, 1_900_000_000_000),
        ({"run_at": "2030-03-18T02:46:40.250+09:00"}, 1_900_000_000_250),
        ({"run_at": "9999-12-31T23:59:59.9999Z"}, INSTANT_MS_MAX),
        ({"run_at": "1970-01-01T14:00:00+14:00"}, 0),
        ({"run_at": 0}, 0),
    ],
    ids=str,
)
def test_dates_are_resolved_once(fields, at_ms):
    assert eligible_at_ms(job(**fields), NOW_MS) == at_ms


def test_milliseconds_are_told_from_seconds():
    (found,) = faults(job(run_at=1_900_000_000_000), MIB)
    assert found.detail.endswith("Unix seconds are meant, not milliseconds")


@pytest.mark.parametrize(
    ("told", "pointer", "part"),
    [
        ({"name": "a", "prioritty": 1}, "/prioritty", "did you mean 'priority'?"),
        ({"name": "a", "args": 1}, "/args", "did you mean 'argument'?"),
        ({"name": "a", "max_retries": 1}, "/max_retries", "did you mean 'max_retry'?"),
        ({"name": "a", "a/b~c": 1}, "/a~1b~0c", "there are name, argument"),
        ({"name": "a", "then": {}}, "/then", "not supported yet"),
        ({}, "/name", "name is required"),
        ({"name": 3}, "/name", "text is wanted, not a whole number"),
        ({"name": "a", "tags": ["b", 3]}, "/tags/1", "text is wanted"),
        ({"name": "a", "priority": "high"}, "/priority", "a whole number is wanted, not text"),
        ({"name": "a", "priority": 1.0}, "/priority", "not a number with a decimal point"),
        ({"name": "a", "priority": True}, "/priority", "a whole number is wanted, not true or false"),
        ({"name": "a", "delay": "5m"}, "/delay", "a number of seconds is wanted, not text"),
        ({"name": "a", "timeout": None}, "/timeout", "a number of seconds is wanted, not null"),
        ({"name": "a", "run_at": []}, "/run_at", "a number or text is wanted, not an array"),
        ([], "", "a map is wanted, not an array"),
        ({"name": "a", "x" * 100_000: 1}, "/" + "x" * 64, "there is no field"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_a_decoder_is_put_into_words(told, pointer, part):
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=PushedJob)
    where, detail, _ = explain(str(caught.value), FIELDS)
    assert where == pointer
    assert part in detail
    assert len(detail) < 400
