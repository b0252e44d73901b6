"""Decides whose request begins next: all owners (addresses, or tenants) have equal shares of the event loop.

In one pass the event loop runs all tasks that are ready. If one owner has a thousand requests, the loop would run all
of them before the next step of anybody else's. So requests are begun in *turns*: EACH of an owner in a turn, while its
other requests wait in a line. A request of an owner with at most EACH under way never waits, and costs two look-ups.

While only one owner sends requests, turns follow each other without a pause, and ALONE small requests begin in each.
While several owners do, a pause follows each turn, in which the loop is free for the other owners: a push takes five
passes of the loop, and a pass in which 200 pushes of another owner end takes ten times as long as an idle one.

The task of one waiting request starts the turns for all that wait. When its own request begins, it passes this duty to
another waiting task.
"""

import enum
import math
from collections.abc import Awaitable, Callable
from itertools import islice

import trio

from jqd.http.connection_limit import address_of
from jqd.http.exchange import App, Exchange
from jqd.http.request import SOME_BYTES, Request, Response

# Requests of an owner begun in a turn. While 200 connections of one address pushed without a pause, another address's
# request met 8 of theirs before its answer (median; 12 at the 99th percentile); with EACH = 8 it met 15 (24), without
# turns 240 (500). The additional turns cost the flooding address some 10 % of its throughput; with 8 some 5 %.
EACH = 4
# Small requests of an owner begun in a turn while nobody else asks: with bodies of SOME_BYTES, as many bytes as EACH of
# WEIGHT_BYTES. Another owner that comes meets them for some 3 ms, once in OTHERS_S. If they waited like others, a push
# of 64 connections would take a quarter longer, and 21 of them would share a sync instead of 31.
ALONE = 64
SMALL = EACH / ALONE  # the weight of a small request
# Requests of an owner begun in a turn while others ask. Of the loop's time, others' pushes met 3.1 ms with four (99th
# percentile), 2.4 with two, and 0.9 without a flood.
EACH_IF_SEVERAL = 2
WEIGHT_BYTES = 65_536  # of a body that are as much work as one request
WEIGHT_UNSAID = 256  # the weight of a body of unknown length: that of the longest possible one, 16 MiB
HANDSHAKE = EACH  # the weight of a TLS handshake, which takes 0.4 to 0.6 ms of the loop
OTHERS_S = 2.0  # an owner counts as sending requests for so long after each: so one with a request a second counts
PAUSE_S = 0.001  # the least pause after a turn while others ask: two requests in some 1.5 ms are 1,300 a second
PAUSES = 3  # a pause is so many times as long as the turn before it: so the flooding owner has a quarter of the loop
TOOK_S_MAX = 0.1  # the most that a turn counts for: the process may have been stopped in between
WEIGHT_S_MAX = 0.002  # the most that a turn counts for per weight, ten times what a request takes
BODIED = frozenset({"POST", "PUT", "PATCH"})

Whose = Callable[[Request], str]
"""A function that returns the owner of a request, by its head."""


class Urgency(enum.IntEnum):
    """Whether a request goes before other waiting requests of its owner."""

    NOT = 0
    SMALL = 1
    ANY_SIZE = 2
    """Urgent, although one such request may be as much work as many others."""


Urgent = Callable[[Request], Urgency]


def weight_of(asked: Request) -> float:
    """Return as how many ordinary requests a request counts, by the length of its body. A small one counts as SMALL,
    less than one."""
    length = asked.heading.headers.get("content-length", "")
    if length.isdecimal():
        return SMALL if (size := int(length)) <= SOME_BYTES else 1 + size // WEIGHT_BYTES
    return WEIGHT_UNSAID if asked.heading.method in BODIED else SMALL


def by_address(asked: Request) -> str:
    """Return the client's address as the owner of a request: a `Whose` for servers that know nothing else of their
    clients."""
    return address_of(asked.peer or "")


def not_urgent(_: Request) -> Urgency:
    """Return that a request is not urgent: an `Urgent` for servers without urgent requests."""
    return Urgency.NOT


class _Waiting:
    """A request that waits until it may begin."""

    __slots__ = ("event", "goes", "leads", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.event = trio.Event()
        self.goes = False
        """Whether the request may begin now."""
        self.leads = False
        """Whether the request's task starts the turns for all that wait."""


class RecentOwners:
    """Tells whether requests of more than one owner came within the last OTHERS_S."""

    __slots__ = ("_changed_s", "_latest")

    def __init__(self) -> None:
        self._latest = ""
        self._changed_s = -math.inf
        """When the owner of a request last differed from the owner of the request before it."""

    def note(self, owner: str) -> None:
        if owner != self._latest:
            self._changed_s = trio.current_time() if self._latest else -math.inf
            self._latest = owner

    def are_several(self, now_s: float | None = None) -> bool:
        """Return whether requests of more than one owner came within the last OTHERS_S."""
        if self._changed_s == -math.inf:
            return False
        now_s = trio.current_time() if now_s is None else now_s
        return now_s - self._changed_s < OTHERS_S


class FairQueue:
    """Begins requests of one kind in turns: a few of each owner at a time, so that owners get equal shares. Waiting
    requests are in one line per owner."""

    def __init__(
        self,
        each: int = EACH,
        *,
        each_if_several: int = EACH_IF_SEVERAL,
        pauses: int = PAUSES,
        owners: RecentOwners | None = None,
        other_owners: RecentOwners | None = None,
    ) -> None:
        """`each`: how many requests of an owner begin in a turn. `each_if_several`: how many begin in a turn while
        several owners send requests. `pauses`: length of the pause after a turn, in multiples of the turn. `owners`:
        records the owners of this queue's requests. `other_owners`: records the owners of another queue's requests,
        which count as well."""
        self._each = each
        self._each_if_several = each_if_several
        self._pauses = pauses
        self.owners = owners or RecentOwners()
        self._other_owners = other_owners or self.owners
        self._under_way: dict[str, int] = {}
        self._lines: dict[str, dict[_Waiting, None]] = {}
        self._led = False
        self._began_s = 0.0
        """When the latest turn began, by trio's clock."""
        self._weight: float = each
        """The total weight of the requests that were begun in the latest turn."""

    def share(self, app: App, whose: Whose = by_address) -> App:
        """Wrap an application, so that its requests begin in turns, a few of each owner at a time. `whose`: returns a
        request's owner."""

        async def begin(asked: Exchange) -> Response | None:
            owner = whose(asked)
            try:
                if not self.enter(owner) and ((weight := weight_of(asked)) > SMALL or self._is_full(owner)):
                    with asked.while_there() as waiting:
                        await self.wait(owner, weight)
                    if waiting.cancelled_caught:
                        return None
                return await app(asked)
            finally:
                self.leave(owner)

        return begin

    def enter(self, owner: str) -> bool:
        """Count a request of an owner as under way, until `leave`. Returns False if the owner has more than `each`
        under way, so that the request may have to `wait` before it begins."""
        number = self._under_way.get(owner, 0) + 1
        self._under_way[owner] = number
        self.owners.note(owner)
        return number <= self._each

    def leave(self, owner: str) -> None:
        """Count a request of an owner as under way no longer: it was answered or given up."""
        number = self._under_way[owner] - 1
        if number:
            self._under_way[owner] = number
        else:
            del self._under_way[owner]

    def _is_full(self, owner: str) -> bool:
        """Return whether even a small request of an owner has to wait: the owner has more than ALONE requests under
        way, or several owners send requests. Asked only if the owner has more than `each` under way."""
        return self._under_way[owner] > ALONE or self.owners.are_several()

    async def wait(self, owner: str, weight: float = 1) -> None:
        """Wait until a request of an owner may begin in one of the turns. `weight`: as how many ordinary requests it
        counts."""
        me = _Waiting(weight)
        self._lines.setdefault(owner, {})[me] = None
        try:
            if self._led:
                await me.event.wait()
            else:
                self._led = me.leads = True
                self._began_s, self._weight = trio.current_time(), self._each
            while not me.goes:  # this task starts the turns now
                self._turn(several=await self._pause())
        finally:
            self._forget(owner, me)
            if me.leads:
                self._hand_over()

    async def _pause(self) -> bool:
        """Pause before the next turn, for some time if several owners send requests. Returns whether they do."""
        await trio.lowlevel.checkpoint()
        now_s = trio.current_time()
        if not (self.owners.are_several(now_s) or self._other_owners.are_several(now_s)):
            return False
        took_s = min(now_s - self._began_s, TOOK_S_MAX, self._weight * WEIGHT_S_MAX)
        await trio.sleep(max(PAUSE_S, self._pauses * took_s))
        return True

    def _turn(self, *, several: bool) -> None:
        """Start a turn: let the first requests in each owner's line begin, up to a total weight for each owner.
        `several`: whether several owners send requests."""
        self._began_s, self._weight = trio.current_time(), 0
        for owner, line in [*self._lines.items()]:
            left: float = min(self._each, self._each_if_several) if several else self._each
            for waiting in [*islice(line, ALONE)]:
                if left <= 0:
                    break
                weight = max(1, waiting.weight) if several else waiting.weight
                left -= weight
                self._weight += weight
                waiting.goes = True
                waiting.event.set()
                self._forget(owner, waiting)

    def _hand_over(self) -> None:
        """Pass the duty to start turns to another waiting request's task, if there is one."""
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


class OwnerQueues:
    """The queues of a listener, one for each kind of request, and one for TLS handshakes."""

    def __init__(self) -> None:
        self.requests = FairQueue()
        self.urgent = FairQueue(each_if_several=EACH, pauses=0, owners=self.requests.owners)
        self.reports = FairQueue(owners=self.requests.owners)
        """The queue for urgent requests with large bodies: a report of 10,000 outcomes may be as much work as 10,000
        requests."""
        self.handshakes = FairQueue(other_owners=self.requests.owners)

    def share(self, app: App, whose: Whose, urgent: Urgent) -> App:
        """Wrap an application, so that each request waits in the queue for its urgency. `whose`: returns a request's
        owner. `urgent`: returns its urgency."""
        soon, large, behind = (line.share(app, whose) for line in (self.urgent, self.reports, self.requests))

        def begin(asked: Exchange) -> Awaitable[Response | None]:
            how = urgent(asked)
            is_large = how is Urgency.ANY_SIZE and weight_of(asked) > 1
            return (large if is_large else soon if how else behind)(asked)

        return begin
