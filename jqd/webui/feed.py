"""Tells open pages when to look again: one stream of a daemon's counters for all pages with the same rights.

A page's browser holds one stream. At a tick it brings the page anew (live.py), when it is its turn: pages that show the
same share their calls, and where 500 show 500 different things each look costs its calls, so they take turns, in the
order in which they asked for one. Together they cost a daemon and this process so much a second, however many.
Ticks come a second apart while the counters change, and every few seconds otherwise, for ages grow meanwhile; also
while no daemon answers, so that pages come back by themselves.
"""

from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from jqd.client import JqdClientError
from jqd.domain.log import get_logger
from jqd.webui.api import Api
from jqd.webui.sessions import Session

QUIET_S = 5.0  # between ticks while nothing changes, and between tries of a daemon that refuses or is away
LISTENERS_MAX = 1_000  # open pages of one process
OF_SESSION_MAX = 50  # of one login: no person looks at more
OF_TENANT_MAX = LISTENERS_MAX // 4  # of all logins of one tenant: the others have room

CALLS_A_S = 50  # to daemons: half a millisecond each, 3 % of a core
PAGES_A_S = 200  # brought anew: 0.25 ms each, a twentieth of a core; of 500 pages that show the same each every 2.5 s

_log = get_logger("webui")


class Pacing:
    """The turns of all pages of one process."""

    def __init__(self) -> None:
        self.free_s = 0.0
        """When the next turn may begin."""

    def turn(self, calls: int) -> "Turn":
        """Return the turn of a look that is to make so many calls."""
        return Turn(self, calls)

    async def wait(self, calls: int) -> None:
        """Wait for such a turn, and take it."""
        if (left_s := self.turn(calls).left_s) > 0:
            await trio.sleep(left_s)


class Turn:
    """A place in the row; it is given back by `end` where nothing was made of it."""

    def __init__(self, pace: Pacing, calls: int) -> None:
        self._pace, self._cost_s, now_s = pace, _cost_s(calls), trio.current_time()
        self.due_s = max(now_s, pace.free_s)
        self.wait_s = self.due_s - now_s
        pace.free_s = self.due_s + self._cost_s

    @property
    def left_s(self) -> float:
        return self.due_s - trio.current_time()

    def end(self, calls: int) -> None:
        """Tell how many calls were made."""
        self._pace.free_s += _cost_s(calls) - self._cost_s


def _cost_s(calls: int) -> float:
    return max(1 / PAGES_A_S, calls / CALLS_A_S)


class Feed:
    """The ticks for pages of the same rights; `run` while somebody listens."""

    def __init__(self, pace: Pacing) -> None:
        self._pace = pace
        self.ticks = 0
        self.apis: deque[Api] = deque()
        """One for each listener. The first is used; any may be closed by the end of its login."""
        self.is_over = False
        """Whether this feed has ended: its listeners take another feed."""
        self._next = trio.Event()
        self.stop = trio.CancelScope()
        self._ticked_s = trio.current_time()

    async def wait_tick(self, seen: int | None = None) -> None:
        """Wait for the next tick; `seen`: for the one after so many."""
        if seen in (None, self.ticks):
            await self._next.wait()

    @property
    def listeners(self) -> int:
        return len(self.apis)

    async def run(self) -> None:
        """Follow the counters, and tick by time whatever becomes of that: a daemon may be away, or refuse, or be
        silent."""
        try:
            with self.stop:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._tick_by_time)
                    await self._follow_always()
        except Exception as error:  # noqa: BLE001 - it would end the application, with the pages of everybody
            _log.error("webui.feed_failed", exc_info=error)
        finally:
            self.is_over = True
            self.tick()

    async def _follow_always(self) -> None:
        while self.apis:  # else nobody listens any more, and `stop` is cancelled
            try:
                await self._follow()
            except JqdClientError as error:
                _log.debug("webui.feed_ended", why=str(error))
            self.tick()
            await trio.sleep(QUIET_S)
            await self._pace.wait(1)  # a daemon refuses most where many tenants look
            self.apis.rotate()  # maybe the login of that one has ended

    async def _tick_by_time(self) -> None:
        while True:
            await trio.sleep_until(self._ticked_s + QUIET_S)
            if trio.current_time() >= self._ticked_s + QUIET_S:
                self.tick()

    async def _follow(self) -> None:
        known: object = None
        async for event in self.apis[0].client.counters():
            counts = event.data.get("store") and {**event.data["store"], "used_memory": None}
            if counts != known or counts is None:
                known = counts
                self.tick()

    def tick(self) -> None:
        self.ticks += 1
        self._ticked_s = trio.current_time()
        self._next.set()
        self._next = trio.Event()


class Feeds:
    """All feeds of this process, by identity."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._feeds: dict[object, Feed] = {}
        self.pace = Pacing()
        self._of = Counter[object]()
        """Listeners by session, and by tenant."""
        self.closing = trio.Event()

    @property
    def is_closing(self) -> bool:
        return self.closing.is_set()

    def close(self) -> None:
        """Wake all listeners, which see that it is the end."""
        self.closing.set()
        for feed in self._feeds.values():
            feed.tick()

    @property
    def listeners(self) -> int:
        return sum(feed.listeners for feed in self._feeds.values())

    def has_room(self, session: Session) -> bool:
        """Return whether one more page of that login may be open. Its first one may, however many others have: one
        token has a hundred logins."""
        mine = 0 if session.is_open else self._of[session.session_id]
        has_place = self.listeners < LISTENERS_MAX or (not mine and not session.is_open)
        return has_place and mine < OF_SESSION_MAX and self._of[_tenant(session)] < OF_TENANT_MAX

    @asynccontextmanager
    async def listen_for(self, session: Session, api: Api) -> AsyncIterator[Feed]:
        """As `listen`, and count it as one of that session."""
        whose = [session.session_id, *([_tenant(session)] if session.me.tenant else ())]
        self._of.update(whose)
        try:
            async with self.listen(api) as feed:
                yield feed
        finally:
            self._of.subtract(whose)
            for each in whose:
                if not self._of[each]:
                    del self._of[each]

    @asynccontextmanager
    async def listen(self, api: Api) -> AsyncIterator[Feed]:
        """Give the feed of these rights; it ends with its last listener."""
        feed = self._feeds.get(api.identity)
        if feed is None or feed.is_over:
            feed = self._feeds[api.identity] = Feed(self.pace)
            self._nursery.start_soon(feed.run)
        feed.apis.append(api)
        try:
            yield feed
        finally:
            feed.apis.remove(api)
            if not feed.listeners:
                feed.stop.cancel()
                if self._feeds.get(api.identity) is feed:
                    del self._feeds[api.identity]


def _tenant(session: Session) -> tuple[str, str]:
    """Return a key that no session has."""
    return "tenant", session.me.tenant
