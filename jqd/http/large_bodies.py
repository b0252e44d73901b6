"""Slows down requests with large bodies: while several owners send requests, the large bodies of each owner are
processed one at a time."""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from jqd.domain.clock import processor_s
from jqd.http.fairness import EACH, OTHERS_S, PAUSE_S, PAUSES, WEIGHT_BYTES, RecentOwners
from jqd.http.request import SOME_BYTES

LARGE_BYTES = EACH * WEIGHT_BYTES  # a larger body counts as large
DISK_RATE = 256 << 20  # assumed bytes a second of the disk, for which the pushes of all owners wait in one line
COSTLY_S = 0.005  # holding the loop so long at once is costly: five times as long as four small requests
LARGE_S_MAX = 1.0  # the next large body waits no longer for one under way, which may wait for the store


class _Large:
    """What is known of one owner's large bodies: how many there are, and until when the next one must wait."""

    __slots__ = ("began_s", "costly_s", "free_s", "left", "line", "there")

    def __init__(self) -> None:
        self.there = 0
        """Number of large bodies that wait or are being processed."""
        self.line = trio.Lock()
        self.began_s = -math.inf
        """When processing of the latest large body began, by trio's clock."""
        self.left = trio.Event()
        """Set when the latest large body has been processed. An earlier one may still wait for the store."""
        self.left.set()
        self.free_s = -math.inf
        """Until when the owner must pause because of the large bodies that have been processed."""
        self.costly_s = -math.inf
        """Until when the owner's smaller bodies count as large, too."""

    def due_s(self) -> float:
        """Return when the owner's next large body may begin, by trio's clock: after the pause that the owner's earlier
        large bodies cost it. If the latest of them is still being processed, not before LARGE_S_MAX after that one
        began."""
        return self.free_s if self.left.is_set() else max(self.free_s, self.began_s + LARGE_S_MAX)

    def is_over(self, now_s: float) -> bool:
        """Return whether this state can be dropped: the owner has no large bodies under way, its pause is over, and its
        smaller bodies count as large no longer."""
        return not self.there and now_s >= max(self.free_s, self.costly_s)


class LargeBodyQueue:
    """Lets the large bodies of each owner be processed one after the other, while several owners send requests.

    `fairness` limits how many requests begin. But a large body is much work after that: it is decoded, checked, and
    written to the disk that all pushes share. So after each large body its owner pauses, PAUSES times as long as the
    processor and disk time that the body took. A single owner neither waits nor pauses. If one of an owner's smaller
    bodies blocked the event loop for long, its smaller bodies count as large for a while.
    """

    def __init__(self, cpu_s: Callable[[], float] = processor_s) -> None:
        self.owners = RecentOwners()
        self._cpu_s = cpu_s  # of all threads, as large JSON is decoded in a thread
        self._owners: dict[str, _Large] = {}

    def counts(self, owner: str, size: int) -> bool:
        """Return whether a body of `size` bytes counts as large for this owner."""
        if size > LARGE_BYTES:
            return True
        known = self._owners.get(owner)
        return known is not None and size > SOME_BYTES and trio.current_time() < known.costly_s

    def note(self, owner: str, held_s: float) -> None:
        """Tell the queue for how many seconds a request of an owner blocked the event loop at once. After more than
        COSTLY_S, the owner's smaller bodies count as large for OTHERS_S."""
        if held_s > COSTLY_S:
            self._of(owner).costly_s = trio.current_time() + OTHERS_S

    async def breathe(self) -> None:
        """Let other tasks run between two steps of long work. If several owners send requests, wait for PAUSE_S, so
        that the pushes of other owners are handled."""
        if self.owners.are_several():
            await trio.sleep(PAUSE_S)
        else:
            await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def turn(self, owner: str, size: int) -> AsyncIterator[None]:
        """A context manager: waits until a large body of `size` bytes may be processed, which is done in the `with`
        block. After the block its owner has to pause, the longer the more work the block was."""
        bodies = self._of(owner)
        bodies.there += 1
        try:
            began_s = await self._begin(bodies)
            left, before_s = bodies.left, self._cpu_s()
            try:
                yield
            finally:
                now_s = trio.current_time()
                took_s = min(now_s - began_s, self._cpu_s() - before_s + size / DISK_RATE, LARGE_S_MAX)
                bodies.free_s = max(bodies.free_s, now_s + PAUSES * took_s)
                left.set()
        finally:
            bodies.there -= 1

    async def _begin(self, bodies: _Large) -> float:
        """Wait until the owner's next large body may begin. Returns the time at which it does."""
        async with bodies.line:
            while self.owners.are_several(now_s := trio.current_time()) and now_s < (due_s := bodies.due_s()):
                with trio.move_on_at(due_s):
                    await (trio.sleep_until(due_s) if bodies.left.is_set() else bodies.left.wait())
            bodies.began_s, bodies.left = now_s, trio.Event()
        return now_s

    def _of(self, owner: str) -> _Large:
        bodies = self._owners.get(owner)
        if bodies is None:
            now_s = trio.current_time()
            self._owners = {name: each for name, each in self._owners.items() if not each.is_over(now_s)}
            bodies = self._owners[owner] = _Large()
        return bodies
