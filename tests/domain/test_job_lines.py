"""Lines that ask for new jobs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.followers import FOLLOWERS_BYTES_MAX, FOLLOWERS_MAX
from jqd.domain.job_lines import Followers, is_job, job_of


@pytest.mark.parametrize(
    ("line", "job"),
    [
        (b"J: mail|ann", {"name": "mail", "argument": "ann"}),
        (b"#J: mail|ann", {"name": "mail", "argument": "ann"}),
        (b"J: mail|a|b: c \r\n", {"name": "mail", "argument": "a|b: c "}),
        (b"J:  mail |", {"name": "mail", "argument": ""}),
        (b"J: mail", {"name": "mail"}),
        ("J: é|ü".encode(), {"name": "é", "argument": "ü"}),
        (b"J: mail|\xff\x00", {"name": "mail", "argument": b"\xff\x00"}),
        (b"J: |x", {"name": "", "argument": "x"}),
    ],
)
def test_a_line_is_a_job_and_its_payload_stays_as_it_stands(line: bytes, job: dict[str, Any]) -> None:
    assert is_job(line)
    assert job_of(line) == job


@pytest.mark.parametrize("line", [b"J:mail|x", b"j: mail|x", b" J: mail|x", b"# J: mail|x", b"200 J: mail|x", b""])
def test_others_are_none(line: bytes) -> None:
    assert not is_job(line)


NAMES = [b"a", b"mail".ljust(2_200), b"\xff" * 2_000, "é".encode() * 900, b""]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 300_000), st.integers(1, 600)), max_size=4))
def test_jobs_are_dropped_only_where_those_that_are_kept_are_refused(asked: list[tuple[bytes, int, int]]) -> None:
    """Names were counted with the blanks around them, so of 500 jobs of a `%-2200s` the last 24 were never pushed."""
    followers, lines = Followers(), 0
    for name, size, times in asked:
        for _ in range(times if size < 3_000 else 3):
            followers.add(b"J: " + name + b"|" + b"x" * size)
            lines += 1
    size = len(msgspec.msgpack.encode(followers.jobs))
    assert len(followers.jobs) == lines or len(followers.jobs) > FOLLOWERS_MAX or size > FOLLOWERS_BYTES_MAX
