"""A parent under its pusher's own id that is acknowledged and lags behind in its lane has not ended."""

import random

import trio

from jqd.chaining.flows import COMPLAIN_S, REST_S, Flows
from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import Change, ChangeKind, Job
from jqd.store import NameJournaled, NameWanted
from tests.chaining.flow_room import one_round
from tests.contract.bench import StoreBench


def flows_of(bench: StoreBench, released: list[tuple[str, str]]) -> Flows:
    async def release(child: str, failed: str, _: str) -> bool:
        released.append((child, failed))
        await trio.lowlevel.checkpoint()
        return True

    return Flows(0, [bench.store], lambda _: True, release, clock=bench.clock, source=random.Random(1))


async def test_a_named_parent_that_is_on_its_way_is_waited_for_and_told_of(bench: StoreBench) -> None:
    released: list[tuple[str, str]] = []
    flows, parent = flows_of(bench, released), bench.make(name="mine")
    (given,) = await bench.store.reserve_names([NameWanted("mine", parent.id, "d", False)])
    child = bench.make(flow=Flow(after=("mine",)), eligible_at_ms=BLOCKED_MS)
    await bench.add(child)  # of the lane of jobs, with a later id
    await one_round(flows)
    assert released == []
    bench.clock.advance(REST_S + 1)
    await one_round(flows)
    assert not released
    assert not flows.complaint
    bench.clock.advance(COMPLAIN_S)
    await one_round(flows)
    assert flows.complaint == f"job {child.id} and 0 others wait for jobs that are not in the store yet"
    change = Change(given.revision, given.revision, ChangeKind.NEW, "d")
    await bench.add(Job(parent.id, "mail", name="mine", change=change))
    bench.clock.advance(REST_S + 1)
    await one_round(flows)
    assert not released, "now it is known, and has not ended"
    assert not flows.complaint
    await bench.cancel(f"{parent.id}@{given.revision}")
    await one_round(flows)
    assert released == [(child.id, parent.id)]


async def test_such_a_parent_that_is_named_by_jqds_id_is_no_less_waited_for(bench: StoreBench) -> None:
    """The members of a group are named so; jobs without ids of their own overtake it in another lane."""
    released: list[tuple[str, str]] = []
    flows, parent = flows_of(bench, released), bench.make(name="mine")
    (given,) = await bench.store.reserve_names([NameWanted("mine", parent.id, "d", False)])
    await bench.store.confirm_names([NameJournaled("mine", parent.id, "d", given.revision)])
    child = bench.make(flow=Flow(after=(parent.id,)), eligible_at_ms=BLOCKED_MS)
    await bench.add(child)
    await bench.push()
    for _ in range(3):
        await one_round(flows)
        bench.clock.advance(REST_S + 1)
    assert released == []
    change = Change(given.revision, given.revision, ChangeKind.NEW, "d")
    await bench.add(Job(parent.id, "mail", name="mine", change=change))
    await one_round(flows)
    assert released == []
    await bench.cancel(f"{parent.id}@{given.revision}")
    await one_round(flows)
    assert released == [(child.id, parent.id)]


async def test_an_own_id_that_nobody_has_is_of_a_job_that_ended(bench: StoreBench) -> None:
    released: list[tuple[str, str]] = []
    flows = flows_of(bench, released)
    child = bench.make(flow=Flow(after=("gone",)), eligible_at_ms=BLOCKED_MS)
    await bench.add(child)
    await one_round(flows)
    assert released == [(child.id, "")]
