"""The short form of `python -m tests.crash.kill`: the first sync, the first rotation, and a point of a seed."""

from pathlib import Path

import pytest

from tests.crash.kill import CALLS, LIVES, Point, all_points, each, run_chain, sample, why_not

SEED = 20_263
FIRST_SYNC = [Point("writev", 1), Point("fdatasync", 1), Point("rename", 1), Point("fdatasync", 2)]
FIRST_ROTATION = [Point("rename", 2)]


@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
@pytest.mark.timeout(240)
def test_killed_at_a_system_call_no_acknowledged_job_is_lost(tmp_path: Path) -> None:
    reached = run_chain([*FIRST_SYNC, *FIRST_ROTATION, *sample(1, SEED)], tmp_path / "book")
    assert set(FIRST_SYNC) <= set(reached)


def test_the_long_form_goes_on_while_points_are_reached() -> None:
    chains = all_points(["fsync", "rename"], 1)
    first = next(chains)
    assert first == [Point("fsync", n) for n in range(1, LIVES + 1)]
    assert chains.send(3)[0] == Point("fsync", LIVES + 1)
    assert chains.send(0)[0] == Point("rename", 1)
    with pytest.raises(StopIteration):
        chains.send(0)


def test_a_sample_is_the_same_for_the_same_seed_and_goes_on_whatever_was_reached() -> None:
    drawn = sample(25, SEED)
    assert drawn == sample(25, SEED) != sample(25, SEED + 1)
    assert {point.call for point in drawn} == set(CALLS)
    chains = each([drawn[:10], drawn[10:]])
    assert next(chains) == drawn[:10]
    assert chains.send(0) == drawn[10:]
