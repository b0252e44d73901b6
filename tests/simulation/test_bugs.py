"""A simulation that cannot find a planted mistake proves nothing."""

import pytest
import trio

from jqd.service import handlers, pauses, workers
from jqd.testing.store import LIBRARY
from tests.harness.bugs import Bug
from tests.simulation import simulate
from tests.simulation.bugs import MISTAKES, hunt, plan_of, planted
from tests.simulation.mistake import Real, in_scripts

OF_THE_MODEL = 11  # mistakes that the model of the protocol was checked with
# One seed of thirty finds these, or fewer: after any change of the code that is ten to thirty seconds for each.
RARE = frozenset(
    {
        "applied-elsewhere",
        "deleted-forgotten",
        "ended-by-fence",
        "follower-by-chance",
        "followers-left-behind",
        "hand-over-forgotten",
        "late-endings-dropped",
        "newest-content",
        "note-before-job",
        "pause-at-look",
        "trust-the-first",
        "void-answers",
    }
)
ASKED_AS_IT_BREAKS = 16  # with this seed of `not-synced` a client asks a daemon in the very step in which that breaks


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(RARE))
def test_a_mistake_that_few_seeds_find_is_found_by_its_name_and_is_gone_after(name: str) -> None:
    find_and_take_out(name)


def find_and_take_out(name: str) -> None:
    found = hunt(name)
    assert found is not None, f"nobody finds that {MISTAKES[name].what}"
    seed, _ = found
    assert simulate(seed, plan=plan_of(name, seed)).violations == [], "the seed is good without it"


def test_all_mistakes_of_the_model_are_planted() -> None:
    assert len(MISTAKES) > OF_THE_MODEL
    assert set(MISTAKES) >= RARE


def _broken(real: Real) -> Real:
    async def say(*_: object) -> None:
        await trio.lowlevel.checkpoint()
        raise AttributeError("it has no such field")

    return say


def test_a_mistake_on_which_daemons_break_is_no_mistake_that_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code around `not-synced` was another one, and for days nobody found it any more."""
    broken = tuple(Bug("it breaks", owner, "save", _broken) for owner in (handlers, workers, pauses))
    monkeypatch.setitem(MISTAKES, "not-synced", MISTAKES["not-synced"]._replace(parts=broken, seed=ASKED_AS_IT_BREAKS))
    with pytest.raises(TypeError, match=r"not-synced is planted wrong.*ended by itself: AttributeError"):
        hunt("not-synced")


def test_each_mistake_finds_its_place_in_the_code_as_it_is_now() -> None:
    """Also those that only a long run looks for: else nobody sees for weeks that they are planted nowhere."""
    for name in MISTAKES:
        with planted(name):
            pass


def test_a_mistake_in_lua_that_is_not_there_any_more_is_not_planted() -> None:
    _, _, plant = in_scripts("return what_nobody_wrote", "return nil")
    with pytest.raises(LookupError, match="what_nobody_wrote"):
        plant(LIBRARY)
