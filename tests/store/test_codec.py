"""Rows survive the way there and back; anything else is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.errors import StoreRefused
from jqd.domain.job import PRIORITY_MAX, PRIORITY_MIN, Fate, Job, Outcome
from jqd.domain.jobid import IdSource, parse_id
from jqd.store import codec
from jqd.store.codec import Unreadable
from jqd.store.keys import Keys
from jqd.testing.clock import ManualClock

KEYS = Keys("jqd")
texts = st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=40) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
jobs = st.builds(
    Job,
    id=texts,
    jobtype=texts,
    argument=values.map(msgspec.msgpack.encode),
    priority=st.integers(PRIORITY_MIN, PRIORITY_MAX),
    max_retry=st.integers(0, 1000),
    timeout=st.floats(0.001, 1e6),
    keep_result=st.booleans(),
    created_at_ms=st.integers(0, 2**48),
    eligible_at_ms=st.integers(0, 2**48),
    name=texts,
    tags=st.lists(texts, max_size=3).map(tuple),
    backoff=st.floats(0.001, 1e6) | st.lists(st.floats(0.001, 1e6), max_size=3).map(tuple),
    traceparent=texts,
)


@given(jobs)
def test_a_job_survives(job: Job) -> None:
    row = codec.encode_job(job)
    assert row.endswith(job.argument)
    assert codec.decode_job(KEYS, job.id, row) == job


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(row: bytes) -> None:
    for decode in (codec.decode_job, codec.decode_tries):
        try:
            decode(KEYS, "x", row)
        except (StoreRefused, Unreadable) as error:  # the former: it says another version of the format
            assert "{jqd:0}:" in str(error)  # noqa: PT017 - most bytes are refused, some few may be read


@given(jobs, st.data())
def test_a_cut_row_is_refused(job: Job, data: st.DataObject) -> None:
    row = codec.encode_job(job)
    cut = data.draw(st.integers(0, len(row) - 1))
    with pytest.raises(Unreadable):
        codec.decode_job(KEYS, job.id, row[:cut])
    with pytest.raises(Unreadable):
        codec.decode_job(KEYS, job.id, row + b"\x00")


def test_an_outcome_is_kept_without_its_result() -> None:
    outcome = Outcome("id", 1, Fate.SUCCEEDED, "mail", 0, 1, result=b"\x07", error=b"\xc4\x01\xff")
    read = codec.decode_outcome(KEYS, "outcome", "id", codec.encode_outcome(outcome))
    assert read == msgspec.structs.replace(outcome, result=b"\xc0")


@pytest.mark.parametrize("value", [None, "7", 7.5, b"seven", b"", b"1e999", b"nan", []])
def test_numbers_are_checked(value: object) -> None:
    with pytest.raises(Unreadable, match="fence"):
        codec.whole(KEYS, "fence", value)


@pytest.mark.parametrize(("value", "number"), [(7, 7), (b"7", 7), (b"-7", -7), (b"1.8e+15", 1_800_000_000_000_000)])
def test_numbers_are_read(value: object, number: int) -> None:
    assert codec.whole(KEYS, "fence", value) == number


def test_texts_are_checked() -> None:
    with pytest.raises(Unreadable, match="UTF-8"):
        codec.text(KEYS, "types", b"\xff")
    with pytest.raises(Unreadable, match="list"):
        codec.list_of(KEYS, "types", b"OK")


def test_a_row_of_another_version_is_refused() -> None:
    row = codec.encode_job(Job("1", "mail", b"\x01"))
    assert row[1] == codec.ROW_VERSION
    for other in (b"\x97\x02" + row[2:], b"\x91\x02\xc0"):
        with pytest.raises(StoreRefused, match="has version 2, this jqd reads 1") as refused:
            codec.decode_job(KEYS, "1", other)
        assert not isinstance(refused.value, Unreadable), "it is no rubbish"


def test_what_says_nothing_is_left_out_of_a_row() -> None:
    """A waiting job costs memory for as long as it waits."""
    made = IdSource(journal=1, salt=1, clock=ManualClock()).take(1).first
    parts = parse_id(made)
    assert parts is not None
    row = codec.encode_job(Job(made, "mail", b"\xc0", timeout=30.0, created_at_ms=parts.at_ms + 3))
    assert len(row) == len("mail") + 9
