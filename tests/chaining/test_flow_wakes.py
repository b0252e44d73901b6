"""When the loop of flows looks at once: for a job that begins anew, and for the first child of a store."""

import pytest
import trio

from jqd.domain.flow import Flow
from jqd.domain.job import ChangeKind, Fate
from tests.chaining.flow_room import Room, room
from tests.contract.bench import changed, outcome

__all__ = ["room"]


@pytest.mark.parametrize("flow", [None, Flow(group="g")])
async def test_children_learn_of_a_retry_before_the_end_of_another_parent(
    autojump_clock: None, room: Room, nursery: trio.Nursery, flow: Flow | None
) -> None:
    here, there = room.flows, room.loop(1)
    await nursery.start(here.run)
    await nursery.start(there.run)
    failed, other = room.make(1, flow=flow), room.make(0)
    await room.benches[1].add(failed)
    await room.benches[0].add(other)
    here.note_jobs([await room.child(failed, other)])
    await trio.sleep(3)
    bench = room.benches[1]
    await bench.settle(outcome(await bench.claim_one(await bench.join()), Fate.DEAD))
    there.note_ends()
    await trio.sleep(3.1)
    assert room.released == []
    again = changed(failed, await room.stores[1].reserve_change(failed.id), ChangeKind.RETRY)
    await bench.add(again)
    there.note_jobs([again])
    await trio.sleep(0.1)
    bench = room.benches[0]
    await bench.settle(outcome(await bench.claim_one(await bench.join()), Fate.SUCCEEDED))
    here.note_ends()
    await trio.sleep(0.5)
    assert room.released == [], "for a failure that was taken back"


@pytest.mark.parametrize("has_made", [False, True])
async def test_the_first_child_of_a_store_goes_on_as_soon_as_its_parent_ends(
    autojump_clock: None, nursery: trio.Nursery, has_made: bool
) -> None:
    room = Room(1)
    await room.stores[0].look(fresh=True)
    await nursery.start(room.flows.run)
    parent = await room.parent()
    if has_made:
        await room.stores[0].drop_outbox([b"x"], children=[(parent.id, "other")])
    await trio.sleep(3.0005)
    room.flows.note_jobs([await room.child(parent)])
    await trio.sleep(0.02)
    await room.end()
    room.flows.note_ends()
    await trio.sleep(0.1)
    assert len(room.released) == 1
