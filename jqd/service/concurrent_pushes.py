"""Pushes with pushers' own ids that are under way at this daemon: a repetition waits for the first.

The store gives a name that is only reserved to the same content once more, for who reserved it may be gone. So the same
push made several times at once would be written, answered `201` and charged each time, though there is one job. The
second asks the store when the first is over, and finds that it is a repeat.

A request under an Idempotency-Key is the same as a whole, so the second need not ask: the answer of the first holds for
it. That is worth most where a client sends one array of 10,000 jobs again and again, because the store is slow.
"""

from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager

import trio

from jqd.domain.errors import Overloaded

WAIT_S = 5.0  # a disk that stands still holds up the first; what comes after it goes on, and finds that out itself
REPEATS_MAX = 32  # of one request, that wait: each has its jobs in memory, of an array of 10,000 some 6 MB
AGAIN_S = 1  # later: the first has not been answered for seconds, by its disk or by the store


class Turn:
    """One push that is under way."""

    __slots__ = ("first_refused", "names", "over", "refused", "repeats", "taken")

    def __init__(self) -> None:
        self.names: Set[str] = frozenset()
        """The names for which this is the first push."""
        self.over = trio.Event()
        self.taken = False
        self.repeats = 0
        """Repeats that wait for it."""
        self.refused: Set[int | None] | None = None
        """Of a request: the places of it that are not taken, once all others are on the disk and known to the store."""
        self.first_refused: Set[int | None] | None = None
        """`refused` of the first push, which this repeat waited for."""

    def settle(self, refused: Set[int | None]) -> None:
        """Mark the push as safe, but for these places: repetitions go on now."""
        self.refused, self.taken = refused, True
        self.over.set()


class ConcurrentPushes:
    """The pushes under way: each name's first one."""

    def __init__(self) -> None:
        self._first: dict[str, Turn] = {}

    @asynccontextmanager
    async def turn(self, names: Set[str]) -> AsyncIterator[Turn]:
        """Hold these names (`with`) while one push is under way.

        If the first push succeeds, all waiting ones go on at once.
        """
        mine, due = Turn(), names
        with trio.move_on_after(WAIT_S):
            while (first := self._any(due)) is not None:
                await first.over.wait()
                if first.taken:
                    due = due - first.names
        async with self._pushing(mine, names):
            yield mine

    @asynccontextmanager
    async def request(self, name: str) -> AsyncIterator[Turn]:
        """As `turn`, for a whole request under a key: one is pushed at a time; a repetition that waited has
        `first_refused`.

        Raises Overloaded for too many of the same, and where the first takes too long.
        """
        mine = Turn()
        with trio.move_on_after(WAIT_S) as late:
            while mine.first_refused is None and (first := self._first.get(name)) is not None:
                if first.repeats >= REPEATS_MAX:
                    raise _pressed()
                first.repeats += 1
                try:
                    await first.over.wait()
                finally:
                    first.repeats -= 1
                mine.first_refused = first.refused
        if late.cancelled_caught:
            raise _pressed()
        if mine.first_refused is not None:
            yield mine
            return
        async with self._pushing(mine, {name}):
            yield mine

    @asynccontextmanager
    async def _pushing(self, mine: Turn, names: Set[str]) -> AsyncIterator[None]:
        mine.names = {name for name in names if self._first.setdefault(name, mine) is mine}
        try:
            yield
            mine.taken = True
        finally:
            for name in mine.names:
                del self._first[name]
            mine.over.set()

    def _any(self, names: Set[str]) -> Turn | None:
        return next((first for name in names if (first := self._first.get(name)) is not None), None)


def _pressed() -> Overloaded:
    why = "this request is being taken already, as it came before under its Idempotency-Key, and that is not over yet"
    return Overloaded(f"{why}: send it again in a moment, it counts once", retry_after_s=AGAIN_S)
