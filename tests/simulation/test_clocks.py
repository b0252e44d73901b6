"""Every clock jumps, either way, by a second and by an hour, while jobs are limited, dated, expire and are leased."""

from dataclasses import replace

import pytest

from tests.simulation import make_plan, simulate
from tests.simulation.__main__ import describe
from tests.simulation.faults import JUMPS_MS
from tests.simulation.plan import Fault, Plan
from tests.simulation.say import SCHEDULES

WHOSE = ("the store's", "a daemon's", "of the machine of both")
JUMPS = [jump_ms for jump_ms in JUMPS_MS if abs(jump_ms) != 15_000]
MOMENTS_S = (3.0, 9.0, 15.0)  # it jumps, and goes right again while the next may be wrong
SPAN_S = 1.5
HAS = {"limits": True, "schedules": True, "expires": True, "lends": True}


def plan_of(seed: int, whose: int, jump_ms: int) -> Plan:
    plan = make_plan(seed, frozenset({"clock"}), 1, **HAS)
    groups = plan.nodes + 2
    group = (0, 1, groups - 1)[whose]
    part = (group * len(JUMPS_MS) + JUMPS_MS.index(jump_ms) + 0.5) / (groups * len(JUMPS_MS))
    return replace(plan, faults=tuple(Fault(at_s, "clock", 0, SPAN_S, part) for at_s in MOMENTS_S))


@pytest.mark.parametrize("jump_ms", JUMPS)
@pytest.mark.parametrize("whose", range(len(WHOSE)), ids=WHOSE)
def test_every_promise_holds_under_a_clock_that_jumps(whose: int, jump_ms: int) -> None:
    seed = len(JUMPS) * whose + JUMPS.index(jump_ms)
    report = simulate(seed, plan=plan_of(seed, whose, jump_ms))
    assert not report.violations, describe(seed, report)


def test_these_runs_have_all_that_goes_by_a_date() -> None:
    plans = [plan_of(seed, seed % len(WHOSE), JUMPS[0]) for seed in range(len(WHOSE) * len(JUMPS))]
    for plan in plans:
        assert {say.name for say in plan.says} & set(SCHEDULES)
        assert any(say.limit for say in plan.says)
    assert any(work.expires_s for plan in plans for work in plan.works)
    assert any(work.delay_s for plan in plans for work in plan.works)
    assert all(plan.lends for plan in plans)
