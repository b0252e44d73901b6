"""One limit of open files, three takers: the parts never add up to more, and nobody is left with nothing unsaid."""

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jqd.domain.descriptors import INCOMING_MAX, PART_MIN, open_files_max, share_out
from jqd.domain.errors import ConfigError


@given(limit=st.integers(0, 2_000_000), partitions=st.integers(1, 32))
def test_the_parts_fit_into_the_limit_or_the_limit_is_refused(limit: int, partitions: int) -> None:
    try:
        shares = share_out(limit, partitions=partitions)
    except ConfigError as error:
        wanted = int(str(error).rsplit(" to ", 1)[1].split()[0])
        assert limit < wanted, "it says how many would do"
        share_out(wanted, partitions=partitions)
    else:
        assert sum(shares) <= limit
        assert shares.reserve >= 64
        assert shares.workers >= PART_MIN
        assert PART_MIN <= shares.incoming <= INCOMING_MAX


def test_the_usual_limits() -> None:
    assert share_out(1_024) == (96, 464, 464)
    assert share_out(1 << 20).incoming == INCOMING_MAX


def test_the_limit_is_the_soft_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 524_288))
    assert open_files_max() == 1_024
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert open_files_max() == 1 << 20
