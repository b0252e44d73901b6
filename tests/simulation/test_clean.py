"""What finds a planted mistake finds nothing without it: else it would be no proof."""

import pytest

from tests.simulation import simulate
from tests.simulation.bugs import MISTAKES, plan_of

EACH = 6  # one in so many is tried with each change, the others in `make slow`: a second of the processor for each


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * bool(at % EACH)) for at, name in enumerate(sorted(MISTAKES))]
)
def test_the_seed_of_a_mistake_is_good_without_it(name: str) -> None:
    seed = MISTAKES[name].seed
    assert simulate(seed, plan=plan_of(name, seed)).violations == []
