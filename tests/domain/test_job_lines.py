"""Lines that ask for new jobs."""

from typing import Any

import pytest

from jqd.domain.job_lines import is_job, job_of


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
