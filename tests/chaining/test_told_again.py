"""Parents that their daemon tells again after their children: retention copied them to the end of its journal."""

import msgspec

from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import Job
from jqd.domain.record import Lane
from jqd.store import Owner
from tests.chaining.flow_room import Room, one_round
from tests.contract.bench import JOURNAL

DAY_MS = 86_400_000


async def emptied() -> tuple[Room, Owner, Job, Job]:
    """A settled store to which one daemon has told the child, and not its parent."""
    room = Room(1)
    (store,), (bench,) = room.stores, room.benches
    parent = bench.make(eligible_at_ms=room.clock.wall_ms() + 2 * DAY_MS)
    child = bench.make(jobtype="sum", flow=Flow(after=(parent.id,)), eligible_at_ms=BLOCKED_MS)
    room.made[child.id] = child
    await store.look(fresh=True)
    owner = await store.reserve_sysid("one", True, through=False)
    assert (await store.renew_sysid(owner, through=True, settle=True, restored=False)).settled
    await store.skip(JOURNAL, Lane.JOBS, 0, 1_000, gone=True)
    await store.apply_jobs(JOURNAL, 1_000, 2_000, [child])
    return room, owner, parent, child


async def test_a_child_waits_for_a_parent_that_comes_behind_it(autojump_clock: None) -> None:
    room, owner, parent, child = await emptied()
    (store,) = room.stores
    await one_round(room.flows)
    assert room.released == [], "its parent may be told still"
    await store.apply_jobs(JOURNAL, 2_000, 3_000, [msgspec.structs.replace(parent, copied=(10, 10))])
    await store.renew_sysid(owner, through=True)
    room.clock.advance(5)
    await one_round(room.flows)
    assert room.released == [], "it waits"
    await room.benches[0].cancel(parent.id)
    room.clock.advance(5)
    await one_round(room.flows)
    assert room.released == [child.id]


async def test_a_parent_that_nobody_told_is_gone(autojump_clock: None) -> None:
    room, owner, _, child = await emptied()
    await one_round(room.flows)
    await room.stores[0].renew_sysid(owner, through=True)
    room.clock.advance(5)
    await one_round(room.flows)
    assert room.released == [child.id]
