"""Tells open pages when to render again. One stream of a daemon's counters serves all pages with the same rights.

Each open page has an event stream (live.py). A tick asks it to render its page again, at a start time that `Pacing`
assigns. Equal pages share their API calls, but 500 different pages each make their own. Start times are so far apart
that all pages together cost a daemon and this process a fixed share of time, however many are open.

Ticks come every second while the counters change, and otherwise every QUIET_S, because pages show ages. They also come
while no daemon answers, so that pages recover by themselves.
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
OF_SESSION_MAX = 50  # open pages of one login: no person watches more
OF_TENANT_MAX = LISTENERS_MAX // 4  # open pages of all logins of one tenant, to leave room for others

CALLS_A_S = 50  # calls to daemons: half a millisecond each, 3 % of a core
PAGES_A_S = 200  # pages sent: 0.25 ms each, a twentieth of a core; 500 equal pages are renewed every 2.5 s

_log = get_logger("webui")


class Pacing:
    """Limits how often pages are rendered: assigns each rendering in this process a start time."""

    def __init__(self) -> None:
        self.free_s = 0.0
        """Earliest start of the next rendering, by trio's clock."""

    def turn(self, calls: int) -> "Turn":
        """Reserve the next free time slot, for a rendering that will make about `calls` API calls."""
        return Turn(self, calls)

    async def wait(self, calls: int) -> None:
        """Reserve the next time slot for `calls` API calls, and wait until it begins."""
        if (left_s := self.turn(calls).left_s) > 0:
            await trio.sleep(left_s)


class Turn:
    """A time slot reserved for rendering one page. Its estimated length grows with the number of API calls."""

    def __init__(self, pace: Pacing, calls: int) -> None:
        self._pace, self._cost_s, now_s = pace, _cost_s(calls), trio.current_time()
        self.due_s = max(now_s, pace.free_s)
        self.wait_s = self.due_s - now_s
        pace.free_s = self.due_s + self._cost_s

    @property
    def left_s(self) -> float:
        return self.due_s - trio.current_time()

    def end(self, calls: int) -> None:
        """Correct the slot's length by the number of API calls really made, which moves later slots."""
        self._pace.free_s += _cost_s(calls) - self._cost_s


def _cost_s(calls: int) -> float:
    return max(1 / PAGES_A_S, calls / CALLS_A_S)


class Feed:
    """Asks all open pages with the same rights to render again (a tick). `run` runs while such pages listen."""

    def __init__(self, pace: Pacing) -> None:
        self._pace = pace
        self.ticks = 0
        self.apis: deque[Api] = deque()
        """One API client for each listening page. The first is used; a logout closes the client of its session."""
        self.is_over = False
        """Whether this feed has ended, so that listening pages need a new one."""
        self._next = trio.Event()
        self.stop = trio.CancelScope()
        self._ticked_s = trio.current_time()

    async def wait_tick(self, seen: int | None = None) -> None:
        """Wait for the next tick. `seen`: value of `ticks` that the caller knows; returns at once if it has changed."""
        if seen in (None, self.ticks):
            await self._next.wait()

    @property
    def listeners(self) -> int:
        return len(self.apis)

    async def run(self) -> None:
        """Send ticks until no page listens: when the daemon's counters change, and at intervals, even while the daemon
        is away, refuses or is silent."""
        try:
            with self.stop:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._tick_by_time)
                    await self._follow_always()
        except Exception as error:  # noqa: BLE001 - it would end the application for everybody
            _log.error("webui.feed_failed", exc_info=error)
        finally:
            self.is_over = True
            self.tick()

    async def _follow_always(self) -> None:
        while self.apis:  # without listeners `stop` is cancelled
            try:
                await self._follow()
            except JqdClientError as error:
                _log.debug("webui.feed_ended", why=str(error))
            self.tick()
            await trio.sleep(QUIET_S)
            await self._pace.wait(1)  # a daemon may refuse the streams of many tenants: ask not too often
            self.apis.rotate()  # use another client: the login of the first may have ended

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
    """The feeds of this process: each tells all open pages with the same rights (`Api.identity`) when to render
    again."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._feeds: dict[object, Feed] = {}
        self.pace = Pacing()
        self._of = Counter[object]()
        """Number of open pages by session id, and by tenant."""
        self.closing = trio.Event()

    @property
    def is_closing(self) -> bool:
        return self.closing.is_set()

    def close(self) -> None:
        """Wake the streams of all open pages, which then end."""
        self.closing.set()
        for feed in self._feeds.values():
            feed.tick()

    @property
    def listeners(self) -> int:
        return sum(feed.listeners for feed in self._feeds.values())

    def has_room(self, session: Session) -> bool:
        """Return whether a session may open one more page: one login, one tenant and this process each have a limit.
        The first page of a login may exceed the limit of the process, because a single token, by its hundred logins,
        could use that up."""
        mine = 0 if session.is_open else self._of[session.session_id]
        has_place = self.listeners < LISTENERS_MAX or (not mine and not session.is_open)
        return has_place and mine < OF_SESSION_MAX and self._of[_tenant(session)] < OF_TENANT_MAX

    @asynccontextmanager
    async def listen_for(self, session: Session, api: Api) -> AsyncIterator[Feed]:
        """Yield the feed for an open page, and count the page for its session and tenant."""
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
        """Yield the feed for the rights of `api`. Starts it for the first listener, and ends it after the last."""
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
    """Return the key under which `Feeds._of` counts the open pages of the session's tenant. It equals no session id."""
    return "tenant", session.me.tenant
