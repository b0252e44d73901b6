"""Whose request is begun next: each address has the same share of every turn of the loop.

In one turn the loop runs whatever is ready. Of an address with a thousand requests it would run all thousand before
anybody else's next step. So of one address only EACH are begun in a turn; the others wait in its own line. Nothing
stands idle for that: while somebody waits, the turns follow each other without a pause, and the first in line counts
them. An address with no more than EACH requests under way never waits, and pays two look-ups.
"""

from itertools import islice

import trio

from jqd.doors.asked import Answer
from jqd.doors.crowd import address_of
from jqd.doors.exchange import App, Exchange

# Begun in a turn. While 200 connections of one address pushed without a pause, another one's request met 8 of theirs
# until it was answered (median; 12 at the 99th percentile); with 8 it met 15 (24), without turns 240 (500). It costs
# the one who floods some 10 % of what the loop does, for more turns; with 8 some 5 %.
EACH = 4


class _Waiting:
    """One request in line."""

    __slots__ = ("event", "goes", "leads")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.goes = False
        self.leads = False
        """Whether it counts the turns for all."""


class Turns:
    """The lines of one door."""

    def __init__(self, each: int = EACH) -> None:
        self._each = each
        self._under_way: dict[str, int] = {}
        self._lines: dict[str, dict[_Waiting, None]] = {}
        self._led = False

    def share(self, app: App) -> App:
        """`app`, whose requests are begun in turn."""

        async def begin(asked: Exchange) -> Answer | None:
            address = address_of(asked.peer or "")
            try:
                if not self.enter(address):
                    await self.wait(address)
                return await app(asked)
            finally:
                self.leave(address)

        return begin

    def enter(self, address: str) -> bool:
        """A request of that address is there, until `leave`; False: it has to `wait` first."""
        number = self._under_way.get(address, 0) + 1
        self._under_way[address] = number
        return number <= self._each

    def leave(self, address: str) -> None:
        """It is answered, or given up."""
        number = self._under_way[address] - 1
        if number:
            self._under_way[address] = number
        else:
            del self._under_way[address]

    async def wait(self, address: str) -> None:
        """Return when it is its turn."""
        me = _Waiting()
        self._lines.setdefault(address, {})[me] = None
        try:
            if self._led:
                await me.event.wait()
            else:
                self._led = me.leads = True
            while not me.goes:  # so it leads
                await trio.lowlevel.checkpoint()
                self._turn()
        finally:
            self._forget(address, me)
            if me.leads:
                self._hand_over()

    def _turn(self) -> None:
        """Let the next of each line go."""
        for address, line in [*self._lines.items()]:
            for waiting in [*islice(line, self._each)]:
                waiting.goes = True
                waiting.event.set()
                self._forget(address, waiting)

    def _hand_over(self) -> None:
        """Whoever waits now counts the turns from here on."""
        following = next((waiting for line in self._lines.values() for waiting in line), None)
        self._led = following is not None
        if following is not None:
            following.leads = True
            following.event.set()

    def _forget(self, address: str, waiting: _Waiting) -> None:
        line = self._lines.get(address, {})
        line.pop(waiting, None)
        if not line:
            self._lines.pop(address, None)
