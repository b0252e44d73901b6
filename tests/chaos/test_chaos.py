"""The short form of the chaos runs, for `make slow`: the same faults and rules as `python -m tests.chaos`."""

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.nemesis import CALM_S, KINDS, WIPE, plan
from tests.chaos.run import run
from tests.chaos.workload import Settings

SECONDS = 15.0  # of faults; with start, drain and the last look it is half a minute
FLOW_SECONDS = 6.0  # of these, with flows; it is 25 s


@pytest.mark.long
@pytest.mark.timeout(240)
def test_under_all_faults_nothing_is_lost_and_every_duplicate_is_explained(tmp_path: Path) -> None:
    seed = random.randrange(1_000_000)
    verdict, problems = run(Settings(seed, SECONDS), tmp_path)
    told = f"{verdict.text()}\nagain: python -m tests.chaos --seed {seed} --seconds {SECONDS:g}; history in {tmp_path}"
    assert not verdict.violations, told
    assert not problems, told
    # It was a run: there was traffic, there were faults, and some of them hurt.
    figures = verdict.figures
    assert figures["acknowledged"] > 1_000
    assert figures["starts"] > figures["acknowledged"] * 0.9
    assert figures["cancelled"] > 5
    assert figures["faults"] >= 2


@pytest.mark.long
@pytest.mark.timeout(240)
def test_under_all_faults_each_job_of_a_flow_comes_once_and_after_its_parents(tmp_path: Path) -> None:
    seed = random.randrange(1_000_000)
    verdict, problems = run(Settings(seed, FLOW_SECONDS, workload="flows"), tmp_path)
    again = f"python -m tests.chaos --workload flows --seed {seed} --seconds {FLOW_SECONDS:g}"
    told = f"{verdict.text()}\nagain: {again}; history in {tmp_path}"
    assert not verdict.violations, told
    assert not problems, told
    figures = verdict.figures
    assert figures["flows"] >= 20
    assert all(figures[f"ran_{how}"] > 0 for how in ("root", "after", "then", "made", "group"))
    assert figures["are_failed"] > 0
    assert figures["faults"] >= 1


def test_with_two_servers_each_of_them_is_struck_and_so_are_the_ways_to_both() -> None:
    targets = {strike.target for strike in plan(3, 600.0, 3, 2, servers=2)}
    assert {"store", "store-1"} <= targets
    assert {f"edge-{i}{server}" for i in range(3) for server in ("", "-1")} <= targets


def test_a_server_is_wiped_while_nothing_else_is_wrong() -> None:
    strikes = plan(3, 300.0, 3, 2, servers=2)
    wipes = [strike for strike in strikes if strike.kind == WIPE]
    assert {strike.target for strike in wipes} == {"store", "store-1"}
    for wipe in wipes:
        others = (other for other in strikes if other is not wipe)
        assert all(o.at_s + o.for_s + CALM_S <= wipe.at_s or o.at_s > wipe.at_s + wipe.for_s for o in others)


def test_a_seed_gives_one_plan_and_every_kind_of_fault_has_its_turn() -> None:
    strikes = plan(3, 300.0, 3, 2)
    assert strikes == plan(3, 300.0, 3, 2)
    assert strikes != plan(4, 300.0, 3, 2)
    seen = Counter((strike.kind, strike.target.partition("-")[0]) for strike in strikes)
    assert set(seen) == set(KINDS)
    assert {s.target for s in strikes} == {f"{part}-{i}" for part in ("daemon", "edge") for i in range(3)} | {
        "store",
        "worker-0",
        "worker-1",
    }
