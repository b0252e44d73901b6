"""Pushes by pushers' own ids that are under way at this daemon: the same at the same moment waits for the first.

A name that is only reserved the store gives to the same content once more, for who had it may be gone. So the same push
made several times at once would be written, told `201` and paid for each time, though there is one job. Who comes
second asks the store when the first is over, and hears that it is a repeat.
"""

from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager

import trio

WAIT_S = 5.0  # a disk that stands still holds up the first; what comes after it goes on, and is told so itself


class Push:
    """One that is under way."""

    __slots__ = ("names", "over", "taken")

    def __init__(self) -> None:
        self.names: Set[str] = frozenset()
        """That it came first with."""
        self.over = trio.Event()
        self.taken = False


class Underway:
    """Of each name the push that came first."""

    def __init__(self) -> None:
        self._first: dict[str, Push] = {}

    @asynccontextmanager
    async def turn(self, names: Set[str]) -> AsyncIterator[None]:
        """Push these names (`with`) when nobody else does. If the first is taken, all who waited go on at once."""
        mine, due = Push(), names
        with trio.move_on_after(WAIT_S):
            while (first := self._any(due)) is not None:
                await first.over.wait()
                if first.taken:
                    due = due - first.names
        mine.names = {name for name in names if self._first.setdefault(name, mine) is mine}
        try:
            yield
            mine.taken = True
        finally:
            for name in mine.names:
                del self._first[name]
            mine.over.set()

    def _any(self, names: Set[str]) -> Push | None:
        return next((first for name in names if (first := self._first.get(name)) is not None), None)
