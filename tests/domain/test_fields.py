"""What is said of a map that is none of a type."""

from typing import Any, Literal

import msgspec
import pytest

from jqd.cron.schedules import Plan
from jqd.domain.errors import Invalid
from jqd.domain.fields import read
from jqd.domain.job import State
from jqd.domain.job_spec import JobSpec

pack = msgspec.msgpack.encode


class Odd(msgspec.Struct):
    """Types that no job has."""

    kind: Literal["a", "b"] = "a"
    state: State | None = None
    words: list[str] | str = ""
    flag: bool | msgspec.UnsetType = msgspec.UNSET
    inner: dict[str, int] = {}


@pytest.mark.parametrize(
    ("kind", "told", "pointer", "detail"),
    [
        (
            JobSpec,
            {"name": "a", "prioritty": 1},
            "/prioritty",
            "no field 'prioritty'; did you mean 'priority'?",
        ),
        (JobSpec, {"name": "a", "args": 1}, "/args", "did you mean 'argument'?"),
        (JobSpec, {"name": "a", "max_retries": 1}, "/max_retries", "did you mean 'max_retry'?"),
        (JobSpec, {"name": "a", "a/b~c": 1}, "/a~1b~0c", "there are name, argument"),
        (JobSpec, {"name": "a", "x" * 100_000: 1}, "/" + "x" * 64, "there is no field"),
        (JobSpec, {}, "/name", "name is required: 1 to 128 printable characters, no blank at the ends"),
        (JobSpec, {"name": 3}, "/name", "name must be 1 to 128 printable characters, no blank at the ends, not 3"),
        (JobSpec, {"name": "\u3042" * 129}, "/name", "not '" + "\u3042" * 64 + "'… of 129 characters"),
        (JobSpec, {"name": "x" * 10_000}, "/name", "not 10003 bytes"),
        (JobSpec, {"name": "a", "tags": ["b", 3]}, "/tags/1", "tags/1 must be 1 to 128 printable characters, not 3"),
        (
            JobSpec,
            {"name": "a", "tags": ["b"] * 33},
            "/tags",
            "must be an array of at most 32 tags, not an array of 33",
        ),
        (JobSpec, {"name": "a", "priority": "high"}, "/priority", "a 32-bit whole number, -2147483648 to 2147483647"),
        (JobSpec, {"name": "a", "priority": 1.0}, "/priority", "not 1.0"),
        (JobSpec, {"name": "a", "priority": True}, "/priority", "not true"),
        (
            JobSpec,
            {"name": "a", "delay": "5m"},
            "/delay",
            "a number of seconds, 0 to 3162240000, not '5m'",
        ),
        (JobSpec, {"name": "a", "timeout": None}, "/timeout", "not null"),
        (JobSpec, {"name": "a", "timeout": b"1"}, "/timeout", "not bytes"),
        (JobSpec, {"name": "a", "run_at": []}, "/run_at", "or a number of Unix seconds, not an array of 0"),
        (JobSpec, {"name": "a", "backoff": 0}, "/backoff", "above 0, at most 2592000, or an array of up to 32, not 0"),
        (
            JobSpec,
            {"name": "a", "backoff": [1, 0]},
            "/backoff/1",
            "backoff/1 must be a number of seconds above 0, at most 2592000, not 0",
        ),
        (
            JobSpec,
            {"name": "a", "keep_result": 1},
            "/keep_result",
            'keep_result must be true, false or "required", not 1',
        ),
        (JobSpec, [], "", "a map is wanted, not an array of 0"),
        (JobSpec, 3, "", "a map is wanted, not 3"),
        (JobSpec, {1: 2, "name": "a"}, "", "one of its keys is no text"),
        (Odd, {"kind": "c"}, "/kind", "kind must be one of a, b, not 'c'"),
        (Odd, {"state": "lost"}, "/state", "state must be one of waiting, scheduled, blocked, running, "),
        (Odd, {"words": 3}, "/words", "words must be an array or text, not 3"),
        (Odd, {"words": [3]}, "/words/0", "words/0 must be text, not 3"),
        (Odd, {"flag": None}, "/flag", "flag must be true or false, not null"),
        (Odd, {"inner": 3}, "/inner", "inner must be a map, not 3"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_what_is_wrong_is_put_into_words(kind: Any, told: Any, pointer: str, detail: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(pack(told), kind)
    (fault,) = caught.value.faults
    assert fault.pointer == pointer
    assert detail in fault.detail
    assert len(fault.detail) < 400


@pytest.mark.parametrize("value", [b"\xa1\xff", b"\xc1", b"\x91" * 2_000 + b"\xc0"], ids=["utf8", "reserved", "deep"])
def test_what_cannot_be_shown_is_named_all_the_same(value: bytes) -> None:
    with pytest.raises((Invalid, msgspec.DecodeError, UnicodeDecodeError, RecursionError)):
        read(b"\x82\xa4name" + value + b"\xa8priority\xa1x", JobSpec)


def test_one_likeness_is_looked_for_in_each_map():
    """There may be 10,000 of them in a request, and each likeness takes a tenth of a millisecond."""
    with pytest.raises(Invalid) as caught:
        read(pack({"name": "a", "prioritty": 1, "tagz": 2}), JobSpec)
    assert [fault.detail for fault in caught.value.faults] == [
        "there is no field 'prioritty'; did you mean 'priority'?",
        "there is no field 'tagz'",
    ]


def test_a_value_of_the_right_type_that_makes_no_sense_is_told_beside_the_others():
    told = {"job": {"name": 3}, "cron": "0 3 * 99 *", "tz": "Nowhere", "every": "soon", "until": "never"}
    with pytest.raises(Invalid) as refused:
        read(pack(told), Plan)
    assert [fault.pointer for fault in refused.value.faults] == ["/job/name", "/cron", "/every", "/tz", "/until"]
    with pytest.raises(Invalid) as alone:
        read(pack({"job": 1, "cron": None, "until": 2_000_000_000}), Plan)
    assert [fault.pointer for fault in alone.value.faults] == ["/job"]
