"""The model of a store that comes back holds its promises in random walks, and finds each mistake planted in it."""

import pytest

from tests.model.restart import BUGS, violations

WALKS = 120  # a second or two; a campaign walks thousands: `python -m tests.model.restart`
SEEDS = {"sent_is_heard": 301, "waited_by_now": 951}
"""The walk from which on a mistake is found, of those that few find."""


def test_walks_break_no_promise() -> None:
    assert violations(2 * WALKS, 1) == []


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_mistake_is_found(bug: str) -> None:
    first = SEEDS.get(bug, 1)
    found = (violations(1, number, frozenset({bug})) for number in range(first, first + 8 * WALKS))
    assert any(found), bug
