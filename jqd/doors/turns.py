"""Whose request is begun next: each address, or each tenant, has the same share of every turn of the loop.

In one turn the loop runs whatever is ready. Of somebody with a thousand requests it would run all thousand before
anybody else's next step. So of each only EACH are begun in a turn; the others wait in a line of their own. Nothing
stands idle for that: while somebody waits, the turns follow each other without a pause, and the first in line counts
them. Who has no more than EACH requests under way never waits, and pays two look-ups.
"""

from collections.abc import Callable
from itertools import islice

import trio

from jqd.doors.asked import Answer, Asked
from jqd.doors.crowd import address_of
from jqd.doors.exchange import App, Exchange

# Begun in a turn. While 200 connections of one address pushed without a pause, another one's request met 8 of theirs
# until it was answered (median; 12 at the 99th percentile); with 8 it met 15 (24), without turns 240 (500). It costs
# the one who floods some 10 % of what the loop does, for more turns; with 8 some 5 %.
EACH = 4


Whose = Callable[[Asked], str]
"""Who makes a request, as far as that can be known by its head."""


def by_address(asked: Asked) -> str:
    """Of whom nothing else is known."""
    return address_of(asked.peer or "")


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

    def share(self, app: App, whose: Whose = by_address) -> App:
        """`app`, whose requests are begun in turn. `whose`: who has a line."""

        async def begin(asked: Exchange) -> Answer | None:
            owner = whose(asked)
            try:
                if not self.enter(owner):
                    await self.wait(owner)
                return await app(asked)
            finally:
                self.leave(owner)

        return begin

    def enter(self, owner: str) -> bool:
        """A request of theirs is there, until `leave`; False: it has to `wait` first."""
        number = self._under_way.get(owner, 0) + 1
        self._under_way[owner] = number
        return number <= self._each

    def leave(self, owner: str) -> None:
        """It is answered, or given up."""
        number = self._under_way[owner] - 1
        if number:
            self._under_way[owner] = number
        else:
            del self._under_way[owner]

    async def wait(self, owner: str) -> None:
        """Return when it is its turn."""
        me = _Waiting()
        self._lines.setdefault(owner, {})[me] = None
        try:
            if self._led:
                await me.event.wait()
            else:
                self._led = me.leads = True
            while not me.goes:  # so it leads
                await trio.lowlevel.checkpoint()
                self._turn()
        finally:
            self._forget(owner, me)
            if me.leads:
                self._hand_over()

    def _turn(self) -> None:
        """Let the next of each line go."""
        for owner, line in [*self._lines.items()]:
            for waiting in [*islice(line, self._each)]:
                waiting.goes = True
                waiting.event.set()
                self._forget(owner, waiting)

    def _hand_over(self) -> None:
        """Whoever waits now counts the turns from here on."""
        following = next((waiting for line in self._lines.values() for waiting in line), None)
        self._led = following is not None
        if following is not None:
            following.leads = True
            following.event.set()

    def _forget(self, owner: str, waiting: _Waiting) -> None:
        line = self._lines.get(owner, {})
        line.pop(waiting, None)
        if not line:
            self._lines.pop(owner, None)
