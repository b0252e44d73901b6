"""Where the walk along a shelf goes on, on which some wait for the quota and some for something else."""

import random

import pytest
import trio

from jqd.chaining.outbox import SHELF_LOOK_S, SHELF_S
from tests.chaining.test_outbox import Room


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("at_once", [20, 1_000])
async def test_none_on_a_shelf_is_passed_that_waits_for_the_quota_only(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, seed: int, at_once: int
) -> None:
    """Those that waited for a partition behind the first without room were counted as if they stood before it: so many
    places on the walk went on, past some that only waited for room."""
    monkeypatch.setattr("jqd.chaining.outbox.ENTRIES", 10)
    monkeypatch.setattr("jqd.chaining.outbox.FROM_SHELF_AT_ONCE", at_once)
    room = Room()
    await room.store.look(fresh=True)
    await nursery.start(room.outbox.run)
    acme = [b"acme %02d" % number for number in range(40)]
    room.pushes.room, room.pushes.waits = 0, set(random.Random(seed).sample(acme, 20))
    await room.put(*acme)
    await room.store.put_off("acme", (await room.store.get_outbox(1_000, 1 << 20)).entries, SHELF_S)
    can_go = [one for one in acme if one not in room.pushes.waits]
    await trio.sleep(3 * SHELF_S)
    for count in range(1, len(can_go) + 1):
        room.pushes.room = 1
        for _ in range(5):  # the front is looked at first; what waits may need some walks
            if room.pushes.room:
                await trio.sleep(SHELF_S + SHELF_LOOK_S)
        assert room.pushes.taken == can_go[:count]
