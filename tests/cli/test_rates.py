"""The flag --rate of constraints: what is wrong with it is told in the words that were typed."""

import pytest

from jqd.cli.constraints import _rate
from jqd.cli.exits import Usage


@pytest.mark.parametrize("text", ["10/fortnight", "10/1fortnight", "10", "x/s", "10/"])
def test_a_rate_that_is_none_is_told_as_it_was_typed(text: str) -> None:
    with pytest.raises(Usage, match="10/s, 100/m or 3/90s") as told:
        _rate(text, 0)
    assert f"--rate {text!r} is none" in str(told.value)


def test_a_rate_is_jobs_in_a_time() -> None:
    assert _rate("10/s", 2) == {"limit": 10, "per_s": 1.0, "burst": 2}
    assert _rate("3/90s", 0) == {"limit": 3, "per_s": 90.0, "burst": 0}
