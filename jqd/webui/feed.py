"""Tells open pages when to look again: one stream of a daemon's counters for all pages with the same rights.

A page's browser holds one stream. At a tick it brings the page anew (live.py).
Ticks come a second apart while the counters change, and every few seconds otherwise, for ages grow meanwhile; also
while no daemon answers, so that pages come back by themselves.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from jqd.client import JqdClientError
from jqd.domain.log import get_logger
from jqd.webui.api import Api

QUIET_S = 5.0  # between ticks while nothing changes, and between tries of a daemon that refuses or is away
LISTENERS_MAX = 1_000  # open pages of one process
PAGES_A_S = 200  # brought anew at most: 0.25 ms each, a twentieth of a core; of 500 pages each every 2.5 s then

_log = get_logger("webui")


class Feed:
    """The ticks for pages of the same rights; `run` while somebody listens."""

    def __init__(self) -> None:
        self.apis: deque[Api] = deque()
        """One for each listener. The first is used; any may be closed by the end of its login."""
        self.is_over = False
        """Nothing ticks any more: whoever listens asks for another feed."""
        self._next = trio.Event()
        self.stop = trio.CancelScope()
        self._ticked_s = trio.current_time()

    async def wait_tick(self) -> None:
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
            is_due = known is None or trio.current_time() >= self._ticked_s + self.listeners / PAGES_A_S
            if is_due and (counts != known or counts is None):
                known = counts
                self.tick()

    def tick(self) -> None:
        self._ticked_s = trio.current_time()
        self._next.set()
        self._next = trio.Event()


class Feeds:
    """All feeds of this process, by identity."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._feeds: dict[object, Feed] = {}
        self.is_closing = False

    def close(self) -> None:
        """Wake all listeners, which see that it is the end."""
        self.is_closing = True
        for feed in self._feeds.values():
            feed.tick()

    @property
    def listeners(self) -> int:
        return sum(feed.listeners for feed in self._feeds.values())

    @property
    def is_full(self) -> bool:
        return self.listeners >= LISTENERS_MAX

    @asynccontextmanager
    async def listen(self, api: Api) -> AsyncIterator[Feed]:
        """Give the feed of these rights; it ends with its last listener."""
        feed = self._feeds.get(api.identity)
        if feed is None or feed.is_over:
            feed = self._feeds[api.identity] = Feed()
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
