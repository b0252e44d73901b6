"""Opens the store: clients, their threads, and the object that has all methods.

redis-py's blocking client runs in threads under limiters of our own; every answer has a timeout, nothing is sent twice
behind our back. A call that is cancelled still finishes in its thread, so its connection is never left half read.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import redis
import trio
from redis.backoff import NoBackoff
from redis.retry import Retry

from jqd.errors import ConfigError
from jqd.store.jobs import JobMethods, StoreConfig
from jqd.store.keys import Keys
from jqd.store.scripts import Scripts
from jqd.store.sysid import SysidMethods

__all__ = ["RedisStore", "StoreConfig", "open_store"]

HEART_CONNECTIONS = 1  # renewals follow one another; they never wait behind bulk calls
URL_SCHEMES = ("redis://", "rediss://", "unix://")

T = TypeVar("T")


class Connection:
    """Calls from trio, done in threads; at most `connections` at once."""

    def __init__(self, config: StoreConfig, keys: Keys, connections: int, now_ms: Callable[[], int] | None) -> None:
        self._client = _client(config, connections)
        self._scripts = Scripts(self._client, keys)
        self._limiter = trio.CapacityLimiter(connections)
        self._now_ms = now_ms

    async def call(self, name: str, *arguments: Any) -> object:
        """Run a script. Raises StoreAway, StoreRefused and the script's own errors."""
        now_ms = self._now_ms() if self._now_ms is not None else 0
        return await self._in_thread(partial(self._scripts.call, name, (now_ms, *arguments)))

    async def info(self, *sections: str) -> dict[str, object]:
        """Facts about the server. Raises StoreAway, StoreRefused."""
        return await self._in_thread(partial(self._scripts.info, *sections))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=False)

    def close(self) -> None:
        """Close all connections. Nothing may be under way."""
        self._client.close()
        self._client.connection_pool.disconnect()


class RedisStore(JobMethods, SysidMethods):
    """The store in Redis or Valkey. Open it with `open_store`."""

    def __init__(self, config: StoreConfig, *, now_ms: Callable[[], int] | None = None) -> None:
        """`now_ms` replaces the server's own clock, for tests. Raises ConfigError for a URL nobody understands."""
        keys = Keys(config.prefix)
        self._bulk = Connection(config, keys, config.connections_max, now_ms)
        self._beat = Connection(config, keys, HEART_CONNECTIONS, now_ms)
        JobMethods.__init__(self, config, keys, self._bulk)
        SysidMethods.__init__(self, keys, self._bulk, self._beat)

    def close(self) -> None:
        """Close all connections. Nothing may be under way."""
        self._bulk.close()
        self._beat.close()


@asynccontextmanager
async def open_store(config: StoreConfig, *, now_ms: Callable[[], int] | None = None) -> AsyncIterator[RedisStore]:
    """A store that connects when it is first used, and again whenever the server is back.

    Raises ConfigError for a URL that is not understood; a server that is away shows in each method as StoreAway.
    """
    store = RedisStore(config, now_ms=now_ms)
    try:
        yield store
    finally:
        store.close()


def _client(config: StoreConfig, connections: int) -> "redis.Redis":
    if not config.url.startswith(URL_SCHEMES):
        raise ConfigError(f"store.url must begin with one of {', '.join(URL_SCHEMES)}")
    try:
        pool = redis.BlockingConnectionPool.from_url(
            config.url,
            max_connections=connections,
            timeout=config.timeout_s,
            socket_timeout=config.timeout_s,
            socket_connect_timeout=config.timeout_s,
            retry=Retry(NoBackoff(), 0),  # trying again is the caller's business: it knows what may be repeated
            protocol=2,
            client_name="jqd",
        )
    except ValueError as error:
        raise ConfigError(f"store.url is not understood: {error}") from error
    return redis.Redis(connection_pool=pool)
