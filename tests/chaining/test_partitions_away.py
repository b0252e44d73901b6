"""A partition that is away holds up no jobs but those that have to do with it."""

import random
from typing import Any

import pytest
import trio

from jqd.chaining.flows import Flows
from jqd.domain.errors import StoreAway
from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import Job
from jqd.domain.jobid import ALPHABET
from jqd.store.links import WatchPair
from tests.contract.bench import StoreBench


class Away:
    """A partition of the store that does not answer."""

    identity = "away"

    async def watch_parents(self, _: object) -> Any:
        raise StoreAway("it does not answer")

    note_parents = watch_parents


def make(bench: StoreBench, home: int, **fields: Any) -> Job:
    return Job(bench.ids.take(1, ALPHABET[home]).first, "mail", **fields)


async def test_children_here_are_asked_for_and_told_of_ends_while_another_partition_is_away(bench: StoreBench) -> None:
    released: list[str] = []

    async def release(child: str, _: str, __: str) -> bool:
        released.append(child)
        await trio.lowlevel.checkpoint()
        return True

    stores: Any = [bench.store, Away()]
    flows = Flows(0, stores, lambda _: True, release, clock=bench.clock, source=random.Random(1))
    parent, there = make(bench, 0), make(bench, 1)
    children = [make(bench, 0, flow=Flow(after=(of.id,)), eligible_at_ms=BLOCKED_MS) for of in (there, parent)]
    await bench.add(parent, *children)
    with pytest.raises(StoreAway):
        await flows.one_round()
    far = make(bench, 1)
    await bench.store.watch_parents([WatchPair(far.id, "", parent.id, "")])
    await bench.cancel(parent.id)
    with pytest.raises(StoreAway):
        await flows.one_round()
    assert released == [children[1].id]
