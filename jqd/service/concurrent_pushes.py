"""Pushes by pushers' own ids that are under way at this daemon: the same at the same moment waits for the first.

A name that is only reserved the store gives to the same content once more, for who had it may be gone. So the same push
made several times at once would be written, told `201` and paid for each time, though there is one job. Who comes
second asks the store when the first is over, and hears that it is a repeat.

A request under a key is the same as a whole, so who comes second need not ask: what stands for the first stands for it.
That is worth most where a client sends one array of 10,000 jobs again and again, because the store is slow.
"""

from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager

import trio

from jqd.domain.errors import Overloaded

WAIT_S = 5.0  # a disk that stands still holds up the first; what comes after it goes on, and is told so itself
REPEATS_MAX = 32  # of one request, that wait: each has its jobs in memory, of an array of 10,000 some 6 MB
AGAIN_S = 1  # later: the first has not been answered for seconds, by its disk or by the store


class Turn:
    """A push that is under way."""

    __slots__ = ("heard", "names", "over", "repeats", "stands", "taken")

    def __init__(self) -> None:
        self.names: Set[str] = frozenset()
        """That it came first with."""
        self.over = trio.Event()
        self.taken = False
        self.repeats = 0
        """That wait for it."""
        self.stands: Set[int | None] | None = None
        """Of a request: the places of it that are not taken, once all others are on the disk and known to the store."""
        self.heard: Set[int | None] | None = None
        """What that was of the same request that came before, and was waited for."""

    def stand(self, refused: Set[int | None]) -> None:
        """All of the request but these places is safe: who waits hears it now."""
        self.stands, self.taken = refused, True
        self.over.set()


class ConcurrentPushes:
    """Of each name the push that came first."""

    def __init__(self) -> None:
        self._first: dict[str, Turn] = {}

    @asynccontextmanager
    async def turn(self, names: Set[str]) -> AsyncIterator[Turn]:
        """Push these names (`with`) when nobody else does. If the first is taken, all who waited go on at once."""
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
        """The same of a whole request: one is pushed at a time, and who waited may have `heard` that it stands.

        Raises Pressed for too many of the same, and where the first takes too long.
        """
        mine = Turn()
        with trio.move_on_after(WAIT_S) as late:
            while mine.heard is None and (first := self._first.get(name)) is not None:
                if first.repeats >= REPEATS_MAX:
                    raise _pressed()
                first.repeats += 1
                try:
                    await first.over.wait()
                finally:
                    first.repeats -= 1
                mine.heard = first.stands
        if late.cancelled_caught:
            raise _pressed()
        if mine.heard is not None:
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
