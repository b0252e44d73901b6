import math
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from jqd.domain.dates import INSTANT_MS_MAX
from jqd.domain.errors import Fault
from jqd.domain.fields import FAULTS_MAX
from jqd.domain.job import MAX_RETRY_MAX, TIMEOUT_S_MAX
from jqd.domain.job_spec import DELAY_S_MAX, JobRecord, JobSpec, default_of
from jqd.service import ServiceConfig
from jqd.service.batch import read_array
from jqd.service.job_limits import eligible_at_ms

MIB = 1 << 20
NOW_MS = 1_800_000_000_000

pack = msgspec.msgpack.encode


def faults(**fields: Any) -> list[Fault]:
    """Of a job between two good ones."""
    batch = read_array(pack([{"name": "a"}, {"name": "mail", **fields}, {"name": "b"}]), False, ServiceConfig())
    assert [job.name for job in batch.jobs if job.name in ("a", "b")] == ["a", "b"]
    assert len(batch.jobs) == 3 - bool(batch.refused)
    assert {fault.place for fault in batch.refused} <= {1}
    return batch.refused


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
    {"argument": b"x" * (MIB - 5)},
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
    ({"argument": b"x" * MIB}, "/argument"),
    ({"job_id": ""}, "/job_id"),
    ({"job_id": "."}, "/job_id"),
    ({"job_id": "01MCC5RM000000000000070001"}, "/job_id"),
    ({"replace": True}, "/replace"),
]


@pytest.mark.parametrize("fields", GOOD)
def test_good_jobs_pass(fields):
    assert faults(**fields) == []


@pytest.mark.parametrize(("fields", "pointer"), BAD)
def test_bad_fields_are_named(fields, pointer):
    (fault,) = faults(**fields)
    assert (fault.pointer, bool(fault.detail)) == (pointer, True)
    value = fields[pointer.split("/")[1]]
    if isinstance(value, int | float) and "run_at" not in fields and value is not True:
        assert str(value) in fault.detail, "the value"


def test_all_that_is_wrong_with_a_job_is_told_at_once_up_to_a_bound():
    found = faults(name="", priority=2**40, timeout="long", tags=[""])
    assert [(fault.pointer, fault.detail) for fault in found] == [
        ("/name", "name must be 1 to 128 printable characters, no blank at the ends, not ''"),
        ("/tags/0", "tags/0 must be 1 to 128 printable characters, not ''"),
        ("/priority", "priority must be a 32-bit whole number, -2147483648 to 2147483647, not 1099511627776"),
        ("/timeout", "timeout must be a number of seconds above 0 and at most 2592000, not 'long'"),
    ]
    assert len(faults(tags=["\n"] * 32)) == FAULTS_MAX
    assert len(faults(tags=[""] * 100_000)) == 1


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"then": 5}, "/then"),
        ({"then": "b"}, "/then"),
        ({"then": {"name": ""}}, "/then/name"),
        ({"then": [{"name": "b"}, {"nam": "c"}]}, "/then/1/nam"),
        ({"then": [{"name": "b", "then": {"name": "c", "priority": "x"}}]}, "/then/0/then/priority"),
        ({"then": {"name": "b", "replace": True, "job_id": "x"}}, "/then/replace"),
        ({"then": {"name": "b", "after": ["x"]}}, "/then/after"),
        ({"then": {"name": "b", "on_parent_failure": "run"}}, "/then/on_parent_failure"),
        ({"then": [{"name": "b", "job_id": "x"}, {"name": "c", "job_id": "x"}]}, "/then/1/job_id"),
        ({"then": [{"name": "b"}] * 501}, "/then"),
        ({"parent": "x"}, "/parent"),
        ({"after": ["x", "x"]}, "/after"),
        ({"after": ["x"], "job_id": "x"}, "/after"),
        ({"after": ["x"], "on_parent_failure": "ignore"}, "/on_parent_failure"),
        ({"group": "a/b"}, "/group"),
        ({"unique": " x"}, "/unique"),
        ({"unique": "x", "job_id": "y"}, "/unique"),
        ({"debounce": 1}, "/debounce"),
        ({"while": "waiting"}, "/while"),
        ({"one_result": True}, "/one_result"),
        ({"unique": "x", "debounce": 1}, "/debounce"),
        ({"result_into": "a", "argument": [1]}, "/result_into"),
    ],
)
def test_what_ties_a_job_to_others_is_checked(fields, pointer):
    assert faults(**fields)[0].pointer == pointer


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
    assert eligible_at_ms(fields.get("run_at"), fields.get("delay"), NOW_MS) == at_ms


def test_milliseconds_are_told_from_seconds():
    (found,) = faults(run_at=1_900_000_000_000)
    assert found.detail.endswith("Unix seconds are meant, not milliseconds")


@pytest.mark.parametrize("fields", [fields for fields in GOOD if "argument" not in fields], ids=str)
def test_what_is_taken_is_what_the_journal_reads(fields):
    """The bytes of a push go to disk as they came: both types read the same out of them, also what was left out."""
    told = pack({"name": "mail", "argument": [1], "job_id": "x", **fields})
    taken, journaled = msgspec.msgpack.decode(told, type=JobSpec), msgspec.msgpack.decode(told, type=JobRecord)
    assert {*JobSpec.__struct_fields__} == {*JobRecord.__struct_fields__}
    for field in msgspec.structs.fields(JobSpec):
        one, other = getattr(taken, field.name), getattr(journaled, field.name)
        if isinstance(one, msgspec.Raw):
            one, other = bytes(one), bytes(other)
        if field.name == "then" and one is UNSET:
            one, other = b"\xc0", bytes(other)
        assert other == (default_of(field) if one is UNSET else one)
