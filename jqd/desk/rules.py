"""Saying rules: journaled and synced before they hold here, then told to all."""

from collections.abc import Callable, Mapping

import trio

from jqd.desk.desk import Desk
from jqd.words.errors import NotYet
from jqd.words.record import Lane, encode_rules

LEARNED_S = 5.0  # a request waits no longer at the start: reading gigabytes of journal takes seconds, an answer of a
# store that is there less than one

Make = Callable[[], Mapping[tuple[str, str], bytes]]
"""(kind, name) → body of what is to be said, nil to delete; called when nobody else is saying anything."""


async def say(desk: Desk, make: Make) -> None:
    """Say rules, all or none. They are on disk when this returns, and hold here.

    The store learns of them when it is there, the other daemons soon after. Raises NotYet, JournalRefused, and what
    `make` raises.
    """
    rules, journal = desk.workers.rules, desk.journal
    await _learned(rules.loaded, "this daemon still reads what its journal says of workers; try again in a moment")
    async with rules.saying:
        made = rules.make(make(), now_ms=desk.clock.wall_ms(), origin=journal.ids.journal)
        if made:
            position = journal.write(Lane.RULES, len(made), encode_rules(made))
            await journal.wsync(position, shielded=True)
            rules.take(made)


async def told(desk: Desk) -> None:
    """Wait until all is known here that was said anywhere, for what goes on from there. Raises NotYet."""
    why = "this daemon has not heard from the store since it began, so it may not know what was said at other ones"
    await _learned(desk.workers.rules.told, f"{why}; try again when the store is back, or at another daemon")


async def _learned(event: trio.Event, why: str) -> None:
    with trio.move_on_after(LEARNED_S):
        await event.wait()
    if not event.is_set():  # a process that stood still is late, also where nothing is waited for
        raise NotYet(why)
