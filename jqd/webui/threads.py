"""API clients whose calls run in a bounded number of threads, of all sessions together."""

from collections.abc import Sequence
from typing import Any

import trio

from jqd.client import AsyncClient
from jqd.webui.config import TIMEOUT_S

THREADS_MAX = 384  # of calls to daemons; the unit's TasksMax leaves room for names to be looked up, and more


class BoundedClient(AsyncClient):
    """An API client whose threads also count among those of the whole UI. A call waits until there is room; without
    this bound the system would refuse a thread, to any session, when many wait for a daemon that does not answer."""

    def __init__(self, urls: Sequence[str], token: str | None, threads: trio.CapacityLimiter) -> None:
        """`threads`: bounds the threads of all clients that have it."""
        super().__init__(urls, timeout_s=TIMEOUT_S, token=token)
        both: Any = [_Both(own, threads) for own in (self._limiter, self._lookers)]
        self._limiter, self._lookers = both


class _Both:
    """A limiter of threads that takes a token from each of two: from the client's own, then from the shared one. So the
    queue for the shared one has few calls of each client."""

    def __init__(self, own: Any, shared: trio.CapacityLimiter) -> None:
        self._own, self._shared = own, shared

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        await self._own.acquire_on_behalf_of(borrower)
        try:
            await self._shared.acquire_on_behalf_of(borrower)
        except BaseException:  # also if the task was cancelled
            self._own.release_on_behalf_of(borrower)
            raise

    def release_on_behalf_of(self, borrower: object) -> None:
        self._shared.release_on_behalf_of(borrower)
        self._own.release_on_behalf_of(borrower)
