"""Whole clusters from a seed: all promises hold, and a seed is the same run everywhere."""

import itertools
import os
import subprocess
import sys
from typing import Any

import pytest
import trio

from jqd.domain.jobid import partition_of_name
from tests.simulation import loop, make_plan, simulate
from tests.simulation.__main__ import describe, main
from tests.simulation.bugs import MISTAKES, planted
from tests.simulation.flow_plan import LARGE_BYTES
from tests.simulation.matter import AGAIN, DELETE, EDIT, LOOK, OTHER, PUSH, REPLACE, RETRY
from tests.simulation.node import without_edge
from tests.simulation.plan import KEPT_KINDS, PARTITIONS_MAX, SPREAD_TYPES, TRIM
from tests.simulation.say import DELETE as SAY_DELETE
from tests.simulation.say import DRAIN, FAREWELL, GO_ON, PAUSE, RESUME
from tests.simulation.say import PUT as SAY_PUT
from tests.simulation.world import World

SEEDS = 60  # `make campaign` goes on from there
SHORT_SEEDS = 5  # of each change; seeds of planted mistakes have a run without them, too (test_mistakes.py)
PLANS = 500
APART_SEEDS = 10  # over two partitions, and over three
APART_PLANS = 20
WHATS = frozenset({PUSH, AGAIN, OTHER, REPLACE, EDIT, RETRY, DELETE, LOOK})
OF_NAMES = frozenset({AGAIN, OTHER, REPLACE})
APART_SHORT = 5
CHUNK = 5  # seeds of one test, so that processes share them evenly


def chunks(seeds: int, short: int) -> list[Any]:
    """The first seed of each test; those behind the short form are for the long one."""
    return [pytest.param(first, marks=[pytest.mark.long] * (first >= short)) for first in range(0, seeds, CHUNK)]


@pytest.mark.parametrize("first", chunks(SEEDS, SHORT_SEEDS))
def test_every_promise_holds_whatever_happens(first: int) -> None:
    for seed in range(first, first + CHUNK):
        report = simulate(seed)
        assert not report.violations, describe(seed, report)


@pytest.mark.parametrize("first", chunks(APART_SEEDS, APART_SHORT))
@pytest.mark.parametrize("partitions", [2, pytest.param(3, marks=pytest.mark.long)])
def test_every_promise_holds_over_partitions(first: int, partitions: int) -> None:
    for seed in range(first, first + CHUNK):
        report = simulate(seed, plan=make_plan(seed, partitions=partitions))
        assert not report.violations, describe(seed, report, partitions=partitions)


def test_in_some_runs_a_partition_is_absent_and_in_some_journals_are_short() -> None:
    plans = [make_plan(seed, partitions=partitions) for seed in range(APART_PLANS) for partitions in (2, 3)]
    absent = [plan.absent for plan in plans if plan.absent is not None]
    assert len(absent) > len(plans) / 5
    assert set(absent) == {0, 1, 2}
    assert any(TRIM in plan.kinds for plan in plans)
    assert {fault.partition for plan in plans for fault in plan.faults} == {None, 0, 1, 2}


def test_some_plain_runs_are_over_partitions_and_have_limits_that_hold_over_all_of_them() -> None:
    plans = [make_plan(seed) for seed in range(PLANS)]
    apart = [plan for plan in plans if plan.partitions > 1]
    assert PLANS * 0.03 < len(apart) < PLANS * 0.1
    assert {plan.partitions for plan in apart} == {2, 3}
    limited = [plan for plan in apart if any(say.limit for say in plan.says)]
    assert len(limited) > len(apart) / 2, "not where one of them is absent"


def test_in_half_of_the_runs_jobs_have_names_and_are_changed_in_every_way() -> None:
    plans = [make_plan(seed) for seed in range(PLANS)]
    changed = [plan for plan in plans if plan.matters]
    assert PLANS * 0.4 < len(changed) < PLANS * 0.6
    orders = [(bool(matter.name), order.what) for plan in changed for matter in plan.matters for order in matter.orders]
    assert set(orders) == {(True, what) for what in WHATS} | {(False, what) for what in WHATS if what not in OF_NAMES}
    assert any(set(KEPT_KINDS) <= plan.kinds for plan in plans)
    assert all(plan.works[number].jobtype for plan in changed for matter in plan.matters for number in matter.contents)


def test_in_some_runs_workers_handlers_and_schedules_come_and_go_and_jobtypes_are_paused() -> None:
    kinds: dict[str, list[set[str]]] = {}
    for plan in (make_plan(seed) for seed in range(PLANS)):
        for kind in {say.key[0] for say in plan.says}:
            kinds.setdefault(kind, []).append({say.what for say in plan.says if say.key[0] == kind})
    whats = {kind: set().union(*all_said) for kind, all_said in kinds.items()}
    words = {SAY_PUT, SAY_DELETE, FAREWELL}
    changes = {SAY_PUT, SAY_DELETE, PAUSE, RESUME}
    assert whats == {
        "worker": words,
        "handler": words,
        "schedule": changes,
        "pause": {PAUSE, RESUME},
        "drain": {DRAIN, GO_ON},
        "constraint": {SAY_PUT, SAY_DELETE},
    }
    assert all(PLANS * 0.08 < len(runs) < PLANS * 0.25 for runs in kinds.values())


def test_in_some_runs_jobs_expire_and_others_follow_them_or_wait_for_them() -> None:
    plans = [make_plan(seed) for seed in range(PLANS)]
    for has in (lambda work: work.expires_s > 0, lambda work: bool(work.follows), lambda work: bool(work.after)):
        assert PLANS * 0.08 < sum(any(map(has, plan.works)) for plan in plans) < PLANS * 0.25
    followers = [plan.works[number] for plan in plans for work in plan.works for number in work.follows]
    assert any(work.follows for work in followers), "some are followed themselves"
    assert not all(work.follows for work in followers)


def test_some_runs_have_flows_of_every_kind() -> None:
    plans = [plan for plan in (make_plan(seed) for seed in range(PLANS)) if any(work.takes for work in plan.works)]
    assert PLANS * 0.04 < len(plans) < PLANS * 0.12
    works = [work for plan in plans for work in plan.works]
    assert any(work.by_name and work.after for work in works)
    assert any(work.result_bytes == LARGE_BYTES for work in works)
    for has in ("own_id", "group", "says_then", "retries", "deletes"):
        assert any(getattr(work, has) for work in works), has
    chained = [plan.works[number] for plan in plans for work in plan.works if work.says_then for number in work.follows]
    assert any(work.follows for work in chained), "some have a `then` in their `then`"
    closes = [len(group.closes) for plan in plans for group in plan.groups]
    assert {1, 2} == set(closes)


def test_all_partitions_have_jobs() -> None:
    for partitions in range(2, PARTITIONS_MAX + 1):
        assert {partition_of_name(name, partitions) for name in SPREAD_TYPES} == set(range(partitions))


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Here and in another one, which orders by hashes otherwise."""
    say = "from tests.simulation import simulate\nfor seed in (4, 9): print(simulate(seed).digest)"
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    there = subprocess.run(
        [sys.executable, "-c", say],
        env={**os.environ, "PYTHONHASHSEED": other},
        capture_output=True,
        check=True,
        text=True,
    )
    assert there.stdout == "".join(f"{simulate(seed).digest}\n" for seed in (4, 9))


def test_a_seed_is_the_same_run_on_a_slow_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    before = simulate(9).digest
    monkeypatch.setattr("jqd.domain.array_split.thread_s", itertools.count(step=0.01).__next__)
    assert simulate(9).digest == before


def test_a_daemon_that_two_would_start_at_once_is_started_once() -> None:
    """Once all is mended, and by what killed it: two of them had one directory, and one began again without an end."""

    async def start_twice(queue: loop.RunQueue) -> list[str]:
        async with trio.open_nursery() as outside:
            world = World(make_plan(0, frozenset()), queue, outside)
            for _ in range(2):
                world.nemesis._start(world.nodes[0])
            await trio.sleep(1.0)
            outside.cancel_scope.cancel()
        return [what for _, what, *_ in world.history.events if what in ("boot", "over")]

    with without_edge(0):
        assert loop.run(start_twice, 0, log=None) == ["boot"]


def test_the_command_says_how_many_seeds_were_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--from", "7", "--partitions", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 seeds from 7, ")
    assert said.endswith("0 seeds with a broken promise\n")


def test_a_broken_promise_is_told_with_what_shows_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    mistake = MISTAKES["cancel-early"]
    kinds = ",".join(sorted(mistake.kinds))
    with planted("cancel-early"):
        tries = (main(["--seeds", "1", "--from", str(mistake.seed + n), "--kinds", kinds]) for n in range(20))
        assert 1 in tries, "as many seeds as it takes"
        again = next(line for line in capsys.readouterr().out.splitlines() if "again:" in line)
        command = again.partition("tests.simulation ")[2].split()
        assert main(command) == 1
    said = capsys.readouterr().out
    assert "VIOLATION cancel" in said
    assert "recovery.through" in said, "the daemons' log stands between the events"


def test_a_kind_of_fault_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--kinds", "wipe,plague"])
    assert "plague" in capsys.readouterr().err


def test_a_line_behind_workers_that_hang_is_given_its_time() -> None:
    """One job of a type at a time may run there, and several hang for half a minute each."""
    seed = 800003369
    assert make_plan(seed).in_line_s > 90
    assert simulate(seed).violations == []
