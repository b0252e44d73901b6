"""The model of flows holds its promises in random walks, and finds each mistake that is planted in it."""

import pytest

from tests.model.flows import BUGS, violations

WALKS = 30  # a second or two; a campaign walks thousands: `python -m tests.model.flows`
SEEDS = {
    "copy_always": 22,
    "copy_never": 233,
    "copy_none": 233,
    "drop_outbox_first": 61,
    "drop_stale_success": 155,
    "late_new": 56,
    "no_ask_again": 143,
    "no_stage": 78,
    "old_asker": 58,
    "old_content": 40,
    "old_parent": 16,
    "old_release": 28,
    "watch_tells": 2378,
    "whole_afterwards": 7403,
}
"""The walk that finds a mistake, of those that few find."""


@pytest.mark.parametrize("many", [False, True], ids=["one kind of fault", "all at once"])
def test_walks_break_no_promise(many: bool) -> None:
    assert violations(WALKS, 1, many=many) == []


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_mistake_is_found(bug: str) -> None:
    first = SEEDS.get(bug, 1)
    found = (violations(1, number, frozenset({bug})) for number in range(first, first + WALKS))
    assert any(found), bug
