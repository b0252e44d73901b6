"""Each mistake that is planted is found by its name, and its seed is good without it; of rare ones see test_bugs.py."""

import pytest

from tests.simulation.bugs import MISTAKES
from tests.simulation.test_bugs import RARE, find_and_take_out

EACH = 4  # one in so many is looked for with each change, the others in `make slow`: two seconds of the processor each
COMMON = [name for name in MISTAKES if name not in RARE]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * bool(at % EACH)) for at, name in enumerate(COMMON)]
)
def test_the_mistake_is_found_by_its_name_and_is_gone_after(name: str) -> None:
    find_and_take_out(name)
