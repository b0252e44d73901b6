"""A simulation that cannot find a planted mistake proves nothing."""

import pytest

from jqd.testing.sim import simulate
from jqd.testing.sim.bugs import MISTAKES, hunt, plan_of
from jqd.testing.sim.mistake import in_scripts
from jqd.testing.store import SCRIPTS

OF_THE_MODEL = 11  # mistakes that the model of the protocol was checked with
# One seed of a hundred finds these: after any change of the code that is half a minute for each.
RARE = frozenset({"applied-elsewhere", "deleted-forgotten", "hand-over-forgotten", "not-synced", "older-lease-stays"})


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in RARE)) for name in MISTAKES])
def test_the_mistake_is_found_by_its_name_and_is_gone_after(name: str) -> None:
    found = hunt(name)
    assert found is not None, f"nobody finds that {MISTAKES[name].what}"
    seed, _ = found
    assert simulate(seed, plan=plan_of(name, seed)).violations == [], "the seed is good without it"


def test_all_mistakes_of_the_model_are_planted() -> None:
    assert len(MISTAKES) > OF_THE_MODEL
    assert set(MISTAKES) >= RARE


def test_a_mistake_in_lua_that_is_not_there_any_more_is_not_planted() -> None:
    _, _, plant = in_scripts("return what_nobody_wrote", "return nil")
    with pytest.raises(LookupError, match="what_nobody_wrote"):
        plant(SCRIPTS)
