"""When the loop purges again."""

import itertools
import random
from typing import Any

import trio

from jqd.loops.purge import AGAIN_S, PURGE_EVERY_S, Purge
from jqd.store import Purged


async def test_a_purge_goes_on_soon_where_it_only_put_some_behind_others(
    autojump_clock: None, nursery: trio.Nursery
) -> None:
    """Where a partition is away its jobs owe their ends: these stood in front, and hid the others for five seconds."""
    answers, times = [Purged(2, 1), Purged(0, 3), Purged(0, 3), Purged(1, 0), Purged(0, 0)], list[float]()

    class Store:
        async def purge(self, limit: int) -> Purged:
            await trio.lowlevel.checkpoint()
            times.append(trio.current_time())
            return answers.pop(0) if answers else Purged(0, 0)

    store: Any = Store()
    await nursery.start(Purge(store=store, source=random.Random(1)).run)
    await trio.sleep(3 * PURGE_EVERY_S)
    waits = [round(later - sooner, 2) for sooner, later in itertools.pairwise(times)]
    assert waits[:4] == [0, AGAIN_S, AGAIN_S, 0]
    assert waits[4] > AGAIN_S
