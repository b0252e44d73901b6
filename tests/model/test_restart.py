"""The model of a store that comes back holds its promises in random walks, and finds each mistake planted in it."""

import pytest

from tests.model.restart import BUGS, RARE, violations

WALKS = 40  # a second or two; a campaign walks thousands: `python -m tests.model.restart`


def test_walks_break_no_promise() -> None:
    assert violations(2 * WALKS, 1) == []


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug not in RARE])
def test_a_planted_mistake_is_found(bug: str) -> None:
    found = (violations(1, number, frozenset({bug})) for number in range(1, 1 + 8 * WALKS))
    assert any(found), bug
