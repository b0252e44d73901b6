"""Decides whose request begins next: each address, or tenant, has the same share of every turn of the loop.

In one turn the loop runs whatever is ready. Of somebody with a thousand requests it would run all thousand before
anybody else's next step. So of each only EACH are begun in a turn; the others wait in a line of their own. Who has no
more than EACH requests under way never waits, and pays two look-ups.

While nobody else asks, nothing stands idle for that: the turns follow each other without a pause, and ALONE small
requests are as much as EACH. But a push is five turns of the loop until it is answered, and a turn in which the loop
ends 200 pushes of somebody else takes ten times as long as one that is idle. So while others ask, too, a turn is
followed by a pause, which leaves the loop to them for most of the time. The first in line counts the turns.
"""

import enum
import math
from collections.abc import Awaitable, Callable
from itertools import islice

import trio

from jqd.http.connection_limit import address_of
from jqd.http.exchange import App, Exchange
from jqd.http.request import SOME_BYTES, Request, Response

# Begun in a turn. While 200 connections of one address pushed without a pause, another one's request met 8 of theirs
# until it was answered (median; 12 at the 99th percentile); with 8 it met 15 (24), without turns 240 (500). It costs
# the one who floods some 10 % of what the loop does, for more turns; with 8 some 5 %.
EACH = 4
# While nobody else asks, and with bodies of SOME_BYTES at most, which is as many bytes. Whoever comes then meets some
# 3 ms of them, once in OTHERS_S. To wait in line cost a push of 64 connections a quarter of its time, and 21 shared a
# sync in place of 31.
ALONE = 64
SMALL = EACH / ALONE  # the weight of such a one then; else it is 1
# And while others ask: of the loop others' pushes met 3.1 ms with four (99th percentile), 2.4 with two, alone 0.9.
EACH_BESIDE = 2
WEIGHT_BYTES = 65_536  # of a body: as much work as one more request has
WEIGHT_UNSAID = 256  # of a body whose length is not said: it may be as long as any, 16 MiB
HANDSHAKE = EACH  # of TLS: in how many requests' place one is begun; 0.4 to 0.6 ms of the loop
OTHERS_S = 2.0  # since somebody else asked: who asks once a second is still there
PAUSE_S = 0.001  # behind a turn, while others ask: two requests of one in some 1.5 ms are 1,300 a second
PAUSES = 3  # and so many times what the turn took: on a slow machine the one who floods has a quarter of the loop, too
TOOK_S_MAX = 0.1  # what a turn counts for at most: the process may have been held still
WEIGHT_S_MAX = 0.002  # and for each request's weight, ten times what it takes: the rest of the turn was somebody else's
BODIED = frozenset({"POST", "PUT", "PATCH"})

Whose = Callable[[Request], str]
"""Returns the owner of a request, as far as its head shows it."""


class Urgency(enum.IntEnum):
    """Whether a request must not wait behind others of its owner."""

    NOT = 0
    SMALL = 1
    ANY_SIZE = 2
    """It may be as much work as many requests."""


Urgent = Callable[[Request], Urgency]


def weight_of(asked: Request) -> float:
    """Return how many requests it counts as: a large body is as much work as many others, SMALL are less than one."""
    length = asked.heading.headers.get("content-length", "")
    if length.isdecimal():
        return SMALL if (size := int(length)) <= SOME_BYTES else 1 + size // WEIGHT_BYTES
    return WEIGHT_UNSAID if asked.heading.method in BODIED else SMALL


def by_address(asked: Request) -> str:
    """Return the owner of a request of which only the address is known."""
    return address_of(asked.peer or "")


def not_urgent(_: Request) -> Urgency:
    """Return that a request is not urgent."""
    return Urgency.NOT


class _Waiting:
    """One request in line."""

    __slots__ = ("event", "goes", "leads", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.event = trio.Event()
        self.goes = False
        self.leads = False
        """Whether it counts the turns for all."""


class OtherAddresses:
    """Knows whether several owners ask."""

    __slots__ = ("_changed_s", "_latest")

    def __init__(self) -> None:
        self._latest = ""
        self._changed_s = -math.inf
        """When a request came from another owner than the one before."""

    def note(self, owner: str) -> None:
        if owner != self._latest:
            self._changed_s = trio.current_time() if self._latest else -math.inf
            self._latest = owner

    def ask(self, now_s: float | None = None) -> bool:
        """Return whether requests of several owners came a moment ago."""
        if self._changed_s == -math.inf:
            return False
        now_s = trio.current_time() if now_s is None else now_s
        return now_s - self._changed_s < OTHERS_S


class FairQueue:
    """The waiting requests of one listener, of one kind, by owner."""

    def __init__(
        self,
        each: int = EACH,
        *,
        beside: int = EACH_BESIDE,
        pauses: int = PAUSES,
        others: OtherAddresses | None = None,
        also: OtherAddresses | None = None,
    ) -> None:
        """`each`: requests of an owner that begin in a turn; `beside`: the same while others ask. `others`, `also`:
        where other owners are noted."""
        self._each = each
        self._beside = beside
        self._pauses = pauses
        self.others = others or OtherAddresses()
        self._also = also or self.others
        self._under_way: dict[str, int] = {}
        self._lines: dict[str, dict[_Waiting, None]] = {}
        self._led = False
        self._began_s = 0.0
        """The latest turn."""
        self._weight: float = each
        """Of what was begun in it."""

    def share(self, app: App, whose: Whose = by_address) -> App:
        """Return `app` with its requests begun in turns. `whose`: finds a request's owner."""

        async def begin(asked: Exchange) -> Response | None:
            owner = whose(asked)
            try:
                if not self.enter(owner) and ((weight := weight_of(asked)) > SMALL or self._is_full(owner)):
                    with asked.while_there() as waiting:
                        await self.wait(owner, weight)
                    if waiting.cancelled_caught:
                        return None
                    asked.patient = self.others.ask()
                return await app(asked)
            finally:
                self.leave(owner)

        return begin

    def enter(self, owner: str) -> bool:
        """Count a request of an owner, until `leave`. Returns False: it has to `wait` first."""
        number = self._under_way.get(owner, 0) + 1
        self._under_way[owner] = number
        self.others.note(owner)
        return number <= self._each

    def leave(self, owner: str) -> None:
        """Count a request as answered or given up."""
        number = self._under_way[owner] - 1
        if number:
            self._under_way[owner] = number
        else:
            del self._under_way[owner]

    def _is_full(self, owner: str) -> bool:
        """Return whether a small request of an owner that has more than EACH under way has to wait, too."""
        return self._under_way[owner] > ALONE or self.others.ask()

    async def wait(self, owner: str, weight: float = 1) -> None:
        """Return when its turn has come."""
        me = _Waiting(weight)
        self._lines.setdefault(owner, {})[me] = None
        try:
            if self._led:
                await me.event.wait()
            else:
                self._led = me.leads = True
                self._began_s, self._weight = trio.current_time(), self._each
            while not me.goes:  # so it leads
                self._turn(beside=await self._pause())
        finally:
            self._forget(owner, me)
            if me.leads:
                self._hand_over()

    async def _pause(self) -> bool:
        """Wait for the next turn. Returns whether others ask, too."""
        await trio.lowlevel.checkpoint()
        now_s = trio.current_time()
        if not (self.others.ask(now_s) or self._also.ask(now_s)):
            return False
        took_s = min(now_s - self._began_s, TOOK_S_MAX, self._weight * WEIGHT_S_MAX)
        await trio.sleep(max(PAUSE_S, self._pauses * took_s))
        return True

    def _turn(self, *, beside: bool) -> None:
        """Let the next requests of each line begin: fewer of large ones. `beside`: others ask, too."""
        self._began_s, self._weight = trio.current_time(), 0
        for owner, line in [*self._lines.items()]:
            left: float = min(self._each, self._beside) if beside else self._each
            for waiting in [*islice(line, ALONE)]:
                if left <= 0:
                    break
                weight = max(1, waiting.weight) if beside else waiting.weight
                left -= weight
                self._weight += weight
                waiting.goes = True
                waiting.event.set()
                self._forget(owner, waiting)

    def _hand_over(self) -> None:
        """Let a waiting request lead the turns from here on."""
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


class AddressQueues:
    """All lines of one listener, by kind of request."""

    def __init__(self) -> None:
        self.requests = FairQueue()
        self.urgent = FairQueue(beside=EACH, pauses=0, others=self.requests.others)
        self.reports = FairQueue(others=self.requests.others)
        """What is urgent and large: 10,000 outcomes may be as much work as 10,000 requests."""
        self.handshakes = FairQueue(also=self.requests.others)

    def share(self, app: App, whose: Whose, urgent: Urgent) -> App:
        """Return `app` with its requests begun in turns."""
        soon, large, behind = (line.share(app, whose) for line in (self.urgent, self.reports, self.requests))

        def begin(asked: Exchange) -> Awaitable[Response | None]:
            how = urgent(asked)
            is_large = how is Urgency.ANY_SIZE and weight_of(asked) > 1
            return (large if is_large else soon if how else behind)(asked)

        return begin
