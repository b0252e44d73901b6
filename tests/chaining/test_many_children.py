"""Of one parent's many children those that cannot go on hold up no others, nor keep the loop awake."""

import random
from collections import Counter
from collections.abc import Callable, Collection

import pytest
import trio

from jqd.chaining import flows as flows_module
from jqd.chaining.flows import LOOK_S, REST_S, Flows
from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import Job
from jqd.store.links import CHILDREN
from tests.chaining.flow_room import one_round
from tests.contract.bench import StoreBench

FREE = 30


class Tried:
    """A daemon that lets go on whom it may, and counts how often it tried."""

    def __init__(self, bench: StoreBench, stuck: Collection[str]) -> None:
        self.times: Counter[str] = Counter()
        self.stuck = stuck
        self.flows = Flows(0, [bench.store], lambda _: True, self._release, clock=bench.clock, source=random.Random(1))

    async def _release(self, child: str, _: str, __: str) -> bool:
        self.times[child] += 1
        await trio.lowlevel.checkpoint()
        return child not in self.stuck

    async def until_it_rests(self) -> float:
        for _ in range(20):
            if wait_s := await one_round(self.flows):
                return wait_s
        raise AssertionError("it never rests")


def children_of(bench: StoreBench, parent: Job) -> list[Job]:
    flow = Flow(after=(parent.id,))
    return [bench.make("sum", flow=flow, eligible_at_ms=BLOCKED_MS) for _ in range(CHILDREN + FREE)]


async def ended(bench: StoreBench, count: int = 1) -> tuple[list[str], Callable[[], Tried]]:
    """Ids of the children of so many parents that ended, in their order, and what makes a daemon by which the first
    CHILDREN of each cannot go on."""
    every: list[str] = []
    stuck: set[str] = set()
    parents = [bench.make() for _ in range(count)]
    asking = Tried(bench, ())
    for parent in parents:
        kids = children_of(bench, parent)
        await bench.add(parent, *kids)
        every += (its := sorted(kid.id for kid in kids))
        stuck.update(its[:CHILDREN])
        await asking.until_it_rests()
    for parent in parents:
        await bench.cancel(parent.id)
    assert not asking.times
    return every, lambda: Tried(bench, stuck)


async def test_children_behind_many_that_cannot_go_on_do_and_then_it_rests(bench: StoreBench) -> None:
    every, daemon = await ended(bench)
    one = daemon()
    assert await one.until_it_rests() == LOOK_S
    assert one.times == Counter(every), "each once"
    bench.clock.advance(REST_S)
    one.times.clear()
    assert await one.until_it_rests() == LOOK_S
    assert one.times == Counter(every[:CHILDREN]), "those that are left, once more"
    one.stuck = ()
    bench.clock.advance(REST_S)
    await one.until_it_rests()
    one.times.clear()
    bench.clock.advance(REST_S)
    await one.until_it_rests()
    assert not one.times


async def test_daemons_that_take_turns_rest_too(bench: StoreBench) -> None:
    every, daemon = await ended(bench)
    both = [daemon(), daemon()]
    waits = [await one_round(each.flows) for _ in range(4) for each in both]
    assert min(waits[-2:]) > 0
    tried = both[0].times + both[1].times
    assert tried.keys() == set(every)
    assert max(tried.values()) <= len(both)
    for each in both:
        each.times.clear()
    for each in both[::-1]:  # whoever looks next begins with the first, wherever it was
        bench.clock.advance(REST_S)
        await each.until_it_rests()
        assert each.times == Counter(every[:CHILDREN])


async def test_more_walks_than_are_remembered_at_once_come_to_an_end(
    bench: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows_module, "WALKS", 1)
    every, daemon = await ended(bench, 3)
    one = daemon()
    await one.until_it_rests()
    assert one.times.keys() == set(every)
