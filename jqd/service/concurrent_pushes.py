"""Lets a repeat of a push wait for the first one, while both are in progress at this daemon.

This concerns pushes with pushers' own ids. The store may give a reserved id to the same content again, because the
daemon that reserved it may have died. So a push sent several times at once would be written, answered `201` and charged
each time, though there is one job. Therefore a repeat waits until the first push has ended, and only then asks the
store, which recognizes it.
"""

from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager

import trio

from jqd.domain.errors import Overloaded

WAIT_S = 5.0  # then a repeat waits no more: the first push may be held up by a stalled disk
AGAIN_S = 1  # the `Retry-After` of a repeat under an Idempotency-Key that waited in vain
LATE = (
    "this request is being taken already, as it came before under its Idempotency-Key, and that is not over yet: send "
    "it again in a moment, it counts once"
)


class InProgressPush:
    """One push that is in progress, for which its repeats wait."""

    __slots__ = ("ended", "names", "succeeded")

    def __init__(self) -> None:
        self.names: Set[str] = frozenset()
        """The names (pushers' own ids) for which this push is the first in progress."""
        self.ended = trio.Event()
        self.succeeded = False

    def mark_stored(self) -> None:
        """Wake the repeats: all jobs are on disk, and the store knows their names."""
        self.succeeded = True
        self.ended.set()


class ConcurrentPushes:
    """The pushes in progress at this daemon: for each name (pusher's own id) the first one."""

    def __init__(self) -> None:
        self._first: dict[str, InProgressPush] = {}

    @asynccontextmanager
    async def claim_names(self, names: Set[str], *, is_request: bool = False) -> AsyncIterator[InProgressPush]:
        """Wait until this daemon handles no other push with any of these names (pushers' own ids), but at most WAIT_S.
        Then claim the names for this push during the block (`async with`).

        When a push succeeds, all pushes that wait for it continue at once; when it fails, they continue one after
        another. `is_request`: the name stands for a whole request under an Idempotency-Key; then Overloaded is raised
        if the first push takes too long."""
        mine, due = InProgressPush(), names
        with trio.move_on_after(WAIT_S) as waiting:
            while (first := self._any(due)) is not None:
                await first.ended.wait()
                if first.succeeded:
                    due = due - first.names
        if is_request and waiting.cancelled_caught:
            raise Overloaded(LATE, retry_after_s=AGAIN_S)
        mine.names = {name for name in names if self._first.setdefault(name, mine) is mine}
        try:
            yield mine
            mine.succeeded = True
        finally:
            for name in mine.names:
                del self._first[name]
            mine.ended.set()

    def _any(self, names: Set[str]) -> InProgressPush | None:
        return next((first for name in names if (first := self._first.get(name)) is not None), None)
