"""Requests with large bodies: while others ask, each owner's are processed one at a time."""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from jqd.domain.clock import processor_s
from jqd.http.fairness import EACH, OTHERS_S, PAUSE_S, PAUSES, WEIGHT_BYTES, OtherAddresses
from jqd.http.request import SOME_BYTES

LARGE_BYTES = EACH * WEIGHT_BYTES  # of a body: a turn of its own, and its beginning is the least of it
DISK_RATE = 256 << 20  # bytes a second of the disk, where the pushes of all stand in one line
COSTLY_S = 0.005  # of the loop in one piece: five times as long as others wait behind four small requests
LARGE_S_MAX = 1.0  # the next waits for a large one no longer: it may wait for the store; and it counts for no more


class _Large:
    """The large bodies of one owner."""

    __slots__ = ("began_s", "costly_s", "free_s", "left", "line", "there")

    def __init__(self) -> None:
        self.there = 0
        """Number of large bodies that wait for their turn or are being read."""
        self.line = trio.Lock()
        self.began_s = -math.inf
        """When the latest large body began, by the monotonic clock."""
        self.left = trio.Event()
        """The latest is not under way any more. One before it may be, where it waits for the store."""
        self.left.set()
        self.free_s = -math.inf
        """When the pauses behind all that left are over."""
        self.costly_s = -math.inf
        """Until when less than large ones count as large."""

    def due_s(self) -> float:
        """Return when the owner's next one may begin, at the latest."""
        return self.free_s if self.left.is_set() else max(self.free_s, self.began_s + LARGE_S_MAX)

    def is_over(self, now_s: float) -> bool:
        """Return whether the owner can be forgotten."""
        return not self.there and now_s >= max(self.free_s, self.costly_s)


class LargeBodyQueue:
    """Requests whose large body has come: while others ask, those of each owner go one after the other.

    Of such a one the beginning is the least: it is decoded, checked, and goes to the disk, where everybody's pushes
    stand in one line. So behind each there is a pause, PAUSES times as long as it had of the processor and of the disk.
    Who is alone neither waits nor pauses. Where a smaller one held the loop for long, its owner's count as large for a
    while.
    """

    def __init__(self, cpu_s: Callable[[], float] = processor_s) -> None:
        self.others = OtherAddresses()
        self._cpu_s = cpu_s  # of all threads: large JSON is read in one of its own
        self._owners: dict[str, _Large] = {}

    def counts(self, owner: str, size: int) -> bool:
        """Return whether a body of so many bytes has to wait for a turn."""
        if size > LARGE_BYTES:
            return True
        his = self._owners.get(owner)
        return his is not None and size > SOME_BYTES and trio.current_time() < his.costly_s

    def note(self, owner: str, held_s: float) -> None:
        """Note that an owner's request held the loop for so long."""
        if held_s > COSTLY_S:
            self._of(owner).costly_s = trio.current_time() + OTHERS_S

    async def breathe(self) -> None:
        """Yield the loop between two pieces of work, long enough for others' pushes, which need some ten passes."""
        if self.others.ask():
            await trio.sleep(PAUSE_S)
        else:
            await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def turn(self, owner: str, size: int) -> AsyncIterator[None]:
        """Hold a turn while a body of so many bytes is processed; enters when that may begin."""
        his = self._of(owner)
        his.there += 1
        try:
            began_s = await self._begin(his)
            left, before_s = his.left, self._cpu_s()
            try:
                yield
            finally:
                now_s = trio.current_time()
                took_s = min(now_s - began_s, self._cpu_s() - before_s + size / DISK_RATE, LARGE_S_MAX)
                his.free_s = max(his.free_s, now_s + PAUSES * took_s)
                left.set()
        finally:
            his.there -= 1

    async def _begin(self, his: _Large) -> float:
        """Wait for the owner's turn. Returns the time."""
        async with his.line:
            while self.others.ask(now_s := trio.current_time()) and now_s < (due_s := his.due_s()):
                with trio.move_on_at(due_s):
                    await (trio.sleep_until(due_s) if his.left.is_set() else his.left.wait())
            his.began_s, his.left = now_s, trio.Event()
        return now_s

    def _of(self, owner: str) -> _Large:
        his = self._owners.get(owner)
        if his is None:
            now_s = trio.current_time()
            self._owners = {name: one for name, one in self._owners.items() if not one.is_over(now_s)}
            his = self._owners[owner] = _Large()
        return his
