"""Saying rules: journaled and synced before they hold here, then told to all."""

from collections.abc import Mapping

import trio

from jqd.desk.desk import Desk
from jqd.words.errors import NotYet
from jqd.words.record import Lane, encode_rules
from jqd.words.rules import Rule

LOADED_S = 5.0  # a request waits no longer for the journal to be read at the start; gigabytes take seconds


async def say(desk: Desk, bodies: Mapping[tuple[str, str], bytes]) -> list[Rule]:
    """Say rules, all or none: (kind, name) → body, nil to delete. They are on disk when this returns, and hold here.

    The store learns of them when it is there, the other daemons soon after. Raises NotYet, JournalRefused.
    """
    rules, journal = desk.workers.rules, desk.journal
    with trio.move_on_after(LOADED_S) as waiting:
        await rules.loaded.wait()
    if waiting.cancelled_caught:
        raise NotYet("this daemon still reads what its journal says of workers; try again in a moment")
    made = rules.make(bodies, now_ms=desk.clock.wall_ms(), origin=journal.ids.journal)
    position = journal.write(Lane.RULES, len(made), encode_rules(made))
    await journal.wsync(position, shielded=True)
    rules.take(made)
    return made
