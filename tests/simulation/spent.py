"""A quota that has no room for a while: nothing that follows a job, and no date of a schedule, may come meanwhile.

over    one came to the store, or was written at least, while no daemon's quota had room for it

What clients push is not bounded by it: they are of the tenant that has none. All of it must come afterwards, through
whatever befalls daemons and store meanwhile (`following.py`, `almanac.py`).
"""

from collections.abc import Iterable
from typing import Any

import trio

from jqd.tenants.quotas import Quota, Quotas
from tests.simulation.plan import SPENT_S

NO_ROOM = Quota(dead=0)  # whatever there is
TENANT = ""  # of all jobs here; in service it has no quota


def spend(daemon: Any) -> None:
    """A daemon begins that knows of the quota, if it still holds."""
    if is_spent():
        daemon.parts.services.feature(Quotas).known[TENANT] = NO_ROOM


async def lift(nodes: Iterable[Any]) -> None:
    """Take it back, at all daemons in one moment."""
    await trio.sleep_until(SPENT_S)
    for node in nodes:
        if node.life is not None and node.life.daemon is not None:
            node.life.daemon.parts.services.feature(Quotas).known.pop(TENANT, None)


def is_spent() -> bool:
    """Whether there is no room now."""
    return trio.current_time() < SPENT_S
