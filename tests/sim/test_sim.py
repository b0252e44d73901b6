"""Whole clusters from a seed: all promises hold, and a seed is the same run everywhere."""

import os
import subprocess
import sys

import pytest

from jqd.testing.sim import simulate
from jqd.testing.sim.__main__ import describe

SEEDS = 500
CHUNK = 10  # seeds of one test, so that processes share them evenly


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_holds_whatever_happens(first: int) -> None:
    for seed in range(first, first + CHUNK):
        report = simulate(seed)
        assert not report.violations, describe(seed, report)


def test_a_seed_is_the_same_run_in_every_process() -> None:
    say = "from jqd.testing.sim import simulate\nfor seed in (1, 4, 9, 17): print(simulate(seed).digest)"
    said = {
        subprocess.run(
            [sys.executable, "-c", say],
            env={**os.environ, "PYTHONHASHSEED": number},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for number in ("1", "2")
    }
    here = "".join(f"{simulate(seed).digest}\n" for seed in (1, 4, 9, 17))
    assert said == {here}
