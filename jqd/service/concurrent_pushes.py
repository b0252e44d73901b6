"""Lets a repeat of a push wait for the first one, while both are in progress at this daemon.

This concerns pushes with pushers' own ids. The store may give a reserved id to the same content again, because the
daemon that reserved it may have died. So a push sent several times at once would be written, answered `201` and charged
each time, though there is one job. Therefore a repeat waits until the first push has ended, and only then asks the
store, which recognizes it.

A repeat of a request under an Idempotency-Key does not ask the store: it gets the answer of the first request. That
saves most when a client sends one array of 10,000 jobs again and again because the store is slow.
"""

from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager

import trio

from jqd.domain.errors import Overloaded

WAIT_S = 5.0  # then a repeat waits no more: the first push may be held up by a stalled disk
REPEATS_MAX = 32  # of one request that wait: each has its jobs in memory, some 6 MB for 10,000
AGAIN_S = 1  # the `Retry-After` of a repeat that waited in vain, or has no room to wait


class InProgressPush:
    """One push that is in progress, and the repeats that wait for it."""

    __slots__ = ("ended", "names", "refused", "refused_by_first", "repeats", "succeeded")

    def __init__(self) -> None:
        self.names: Set[str] = frozenset()
        """The names (pushers' own ids) for which this push is the first in progress."""
        self.ended = trio.Event()
        self.succeeded = False
        """Whether the push succeeded."""
        self.repeats = 0
        """Number of repeats that wait for this push."""
        self.refused: Set[int | None] | None = None
        """Indexes in the request of the refused jobs. Set when all other jobs are on disk and known to the store."""
        self.refused_by_first: Set[int | None] | None = None
        """Set if this is a repeat that waited: the `refused` of the first push."""

    def mark_stored(self, refused: Set[int | None]) -> None:
        """Mark the push as safely stored, and wake its repeats. `refused`: indexes in the request of the refused
        jobs."""
        self.refused, self.succeeded = refused, True
        self.ended.set()


class ConcurrentPushes:
    """The pushes in progress at this daemon: for each name (pusher's own id) the first one."""

    def __init__(self) -> None:
        self._first: dict[str, InProgressPush] = {}

    @asynccontextmanager
    async def claim_names(self, names: Set[str]) -> AsyncIterator[InProgressPush]:
        """Wait until this daemon handles no other push with any of these names (pushers' own ids), but at most WAIT_S.
        Then claim the names for this push during the block (`async with`).

        The caller calls `settle` of the yielded Turn when the push is safely stored; a block that ends without this
        counts as a failed push. When a push succeeds, all pushes that wait for it continue at once; when it fails, they
        continue one after another."""
        mine, due = InProgressPush(), names
        with trio.move_on_after(WAIT_S):
            while (first := self._any(due)) is not None:
                await first.ended.wait()
                if first.succeeded:
                    due = due - first.names
        async with self._pushing(mine, names):
            yield mine

    @asynccontextmanager
    async def claim_request(self, name: str) -> AsyncIterator[InProgressPush]:
        """Claim a request with an Idempotency-Key during the block. If the same request is in progress at this daemon,
        wait for it. When it has succeeded, the yielded push has `refused_by_first` set, and the caller need not push.
        `name`: the key and the request's digest.

        Raises Overloaded if too many repeats of the request wait, or the first one takes too long."""
        mine = InProgressPush()
        with trio.move_on_after(WAIT_S) as late:
            while mine.refused_by_first is None and (first := self._first.get(name)) is not None:
                if first.repeats >= REPEATS_MAX:
                    raise _pressed()
                first.repeats += 1
                try:
                    await first.ended.wait()
                finally:
                    first.repeats -= 1
                mine.refused_by_first = first.refused
        if late.cancelled_caught:
            raise _pressed()
        if mine.refused_by_first is not None:
            yield mine
            return
        async with self._pushing(mine, {name}):
            yield mine

    @asynccontextmanager
    async def _pushing(self, mine: InProgressPush, names: Set[str]) -> AsyncIterator[None]:
        mine.names = {name for name in names if self._first.setdefault(name, mine) is mine}
        try:
            yield
            mine.succeeded = True
        finally:
            for name in mine.names:
                del self._first[name]
            mine.ended.set()

    def _any(self, names: Set[str]) -> InProgressPush | None:
        return next((first for name in names if (first := self._first.get(name)) is not None), None)


def _pressed() -> Overloaded:
    why = "this request is being taken already, as it came before under its Idempotency-Key, and that is not over yet"
    return Overloaded(f"{why}: send it again in a moment, it counts once", retry_after_s=AGAIN_S)
