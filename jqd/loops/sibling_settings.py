"""Sends settings that the store does not have yet to the other daemon processes on this port.

    saved here ──journal──▶ store ──────────▶ the others, within a second (settings.py)
                    └───────────────────────▶ the others, while the store is away

Otherwise a revoked token would still work at the other processes. Each process journals the settings that it gets, so
they need not be sent again after a restart.
"""

from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing

import trio

from jqd.domain.beat import rest
from jqd.domain.errors import JournalDamaged, JournalStuck
from jqd.domain.log import get_logger
from jqd.domain.record import Lane
from jqd.domain.settings import SettingTable
from jqd.journal import Journal
from jqd.loops.settings import FOLLOW_S

SYNC_S = 2.0  # at the start: by then a store that is there has said what it has of our journal

Send = Callable[[int, bytes], Awaitable[bool]]
"""Sends a frame of settings to the process of that number. Returns whether its journal has them."""


class SiblingSettings:
    """Sends each process the settings of our journal that the store lacks, once."""

    def __init__(
        self, *, journal: Journal, settings: SettingTable, partitions: int, siblings: Collection[int], send: Send
    ) -> None:
        self._journal, self._settings, self._send = journal, settings, send
        self._partitions, self._siblings = range(partitions), siblings
        self._sent: dict[tuple[int, int], int] = {}
        """(process, start of a segment) → position up to which the process has the settings of that segment."""
        self._log = get_logger("settings")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await self._settings.loaded.wait()
        with trio.move_on_after(SYNC_S):
            await self._settings.synced.wait()
        while True:
            await rest(FOLLOW_S)
            await self.look()

    async def look(self) -> None:
        """Send new settings to all processes that lack them. A process that does not answer gets them later."""
        journal = self._journal
        end, stored = journal.end, min(journal.read_point(Lane.RULES, number) for number in self._partitions)
        self._sent = {key: position for key, position in self._sent.items() if position > stored}
        if journal.reached(Lane.RULES, stored) >= end:
            return
        async with trio.open_nursery() as nursery:
            for sibling in self._siblings:
                nursery.start_soon(self._send_all, sibling, stored, end)

    async def _send_all(self, sibling: int, stored: int, end: int) -> None:
        """Send a process the settings that it lacks, the newest segment first: an unreadable segment takes seconds."""
        for segment in self._journal.segments[::-1]:
            key, stop = (sibling, segment.first), min(segment.end, end)
            start = max(stored, self._sent.get(key, segment.first))
            if self._journal.reached(Lane.RULES, start) < stop and not await self._send_range(key, start, stop):
                return

    async def _send_range(self, key: tuple[int, int], start: int, stop: int) -> bool:
        """Send the settings between two positions of a segment. Returns False if the process does not answer."""
        try:
            async with aclosing(self._journal.read_range(Lane.RULES, start, stop)) as pieces:
                async for slices in pieces:
                    for piece in slices:
                        if not await self._send(key[0], piece.body):
                            return False
                        self._sent[key] = piece.end
        except JournalStuck:
            return True  # the journal has logged it; the next look tries again
        except JournalDamaged as error:
            self._log.error("settings.unreadable", error=str(error))  # logged at the start, too
        self._sent[key] = stop
        return True
