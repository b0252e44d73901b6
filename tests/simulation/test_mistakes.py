"""Each mistake that is planted is found by its name, and its seed is good without it; of rare ones see test_bugs.py."""

from collections.abc import Iterable
from zlib import crc32

import pytest

from tests.simulation.bugs import MISTAKES
from tests.simulation.test_bugs import RARE, find_and_take_out

EACH = 16  # one in so many is looked for with each change, the others in `make slow`: 2 to 20 s of the processor each
COMMON = [name for name in MISTAKES if name not in RARE]


def with_each_change(names: Iterable[str]) -> set[str]:
    """Return those that are looked for with each change: by their names, so that one more changes no other."""
    return {name for name in names if crc32(name.encode()) % EACH == 0}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name not in with_each_change([name]))) for name in COMMON],
)
def test_the_mistake_is_found_by_its_name_and_is_gone_after(name: str) -> None:
    find_and_take_out(name)


def test_one_more_mistake_changes_none_of_those_that_are_looked_for_with_each_change() -> None:
    before = with_each_change(COMMON)
    assert len(COMMON) / EACH / 2 <= len(before) <= 2 * len(COMMON) / EACH
    assert with_each_change(["a new one", *COMMON]) - {"a new one"} == before
