"""Opens the store: clients, their threads, and the object that has all methods.

redis-py's blocking client runs in threads under limiters of our own; every answer has a timeout, nothing is sent twice
behind our back. A call that is cancelled still finishes in its thread, so its connection is never left half read.
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from secrets import token_hex
from typing import Any, TypeVar

import redis
import trio
from redis.backoff import NoBackoff
from redis.retry import Retry

from jqd.clock import SystemClock
from jqd.errors import ConfigError, StoreAway
from jqd.store import codec
from jqd.store.durable import Durability
from jqd.store.interface import Look
from jqd.store.jobs import JobMethods, StoreConfig
from jqd.store.keys import Keys
from jqd.store.scripts import OtherServer, Scripts, translate
from jqd.store.sysid import SysidMethods

__all__ = ["RedisStore", "StoreConfig", "open_store"]

HEART_CONNECTIONS = 1  # renewals follow one another; they never wait behind bulk calls
URL_SCHEMES = ("redis://", "rediss://", "unix://")

T = TypeVar("T")


class Identity:
    """Which server and which life of it was accepted; shared by all connections of a store."""

    def __init__(self) -> None:
        self.run_id = ""
        """Empty: anything is accepted."""
        self.identity = "."
        """run id and life id."""


class Connection:
    """Calls from trio, done in threads; at most `connections` at once, all to the accepted server."""

    def __init__(self, config: StoreConfig, keys: Keys, connections: int, now_ms: Callable[[], int] | None) -> None:
        self._config, self._keys, self._connections = config, keys, connections
        self._limiter = trio.CapacityLimiter(connections)
        self._now_ms = now_ms
        self.accept(Identity())

    @property
    def identity(self) -> str:
        """Which life of which server was accepted."""
        return self._accepted.identity

    def accept(self, accepted: Identity) -> None:
        """From now on talk to this server only: every new connection asks who answers before anything is sent."""
        before = getattr(self, "_client", None)
        self._accepted = accepted
        self._client = _client(self._config, self._connections, accepted.run_id)
        self._scripts = Scripts(self._client, self._keys)
        if before is not None:
            before.connection_pool.disconnect(inuse_connections=False)

    async def call(self, name: str, *arguments: Any) -> object:
        """Run a script. Raises StoreAway, StoreChanged, StoreRefused and the script's own errors."""
        now_ms = self._now_ms() if self._now_ms is not None else 0
        return await self._in_thread(partial(self._scripts.call, name, (now_ms, *arguments)))

    async def info(self, *sections: str) -> dict[str, object]:
        """Facts about the server. Raises StoreAway, StoreRefused."""
        return await self._in_thread(partial(self._scripts.info, *sections))

    async def on_one(self, work: "Callable[[redis.Redis], T]") -> T:
        """Blocking work on a connection of its own. Raises StoreAway, StoreChanged, StoreRefused."""

        def run() -> T:
            try:
                make: Callable[[], redis.Redis] = self._client.client
                with make() as one:
                    return work(one)
            except redis.RedisError as error:
                raise translate(error, "durability", self._keys) from error

        return await self._in_thread(run)

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
        self._config, self._keys, self._now_ms = config, keys, now_ms
        self._durability = Durability(self._bulk.on_one, keys["life"], SystemClock())
        JobMethods.__init__(self, config, keys, self._bulk)
        SysidMethods.__init__(self, keys, self._bulk, self._beat)

    async def look(self, *, fresh: bool) -> Look:
        """See Store."""
        probe = Connection(self._config, self._keys, 1, self._now_ms)
        try:
            facts = await probe.info("server", "replication")
            accepted = Identity()
            accepted.run_id = str(facts.get("run_id", ""))
            if facts.get("role") != "master":
                raise StoreAway(
                    f"the server at the store's address is a {facts.get('role')}, not a master: a failover?"
                )
            probe.accept(accepted)
            answer = await probe.call("look", token_hex(8), accepted.run_id, int(fresh))
        finally:
            probe.close()
        life, settled = (*codec.list_of(self._keys, "life", answer), None)[:2]
        accepted.identity = f"{accepted.run_id}.{codec.text(self._keys, 'life', life)}"
        if accepted.run_id != self._bulk.identity.partition(".")[0]:
            self._durability.forget()
        self._bulk.accept(accepted)
        self._beat.accept(accepted)
        return Look(accepted.identity, settled == accepted.identity.encode())

    async def new_life(self, identity: str) -> None:
        """See Store."""
        await self._bulk.call("new_life", identity.rpartition(".")[2], token_hex(8))

    async def wait_durable(self, replicas: int = 0, timeout_s: float = 5.0) -> bool:
        """See Store."""
        return await self._durability.wait(replicas, timeout_s)

    @property
    def durability_rule(self) -> str:
        """See Store."""
        return str(self._durability.rule)

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


def _client(config: StoreConfig, connections: int, run_id: str) -> "redis.Redis":
    """A client whose connections lead to the server with that run id, or to any."""
    if not config.url.startswith(URL_SCHEMES):
        raise ConfigError(f"store.url must begin with one of {', '.join(URL_SCHEMES)}")

    def greet(connection: Any) -> None:
        connection.on_connect()
        connection.send_command("INFO", "server")
        found = re.search(rb"run_id:(\w+)", bytes(connection.read_response()))
        if found is None or found[1] != run_id.encode():
            raise OtherServer(f"another server answers at {connection.repr_pieces()[:2]} than before, or it restarted")

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
            redis_connect_func=greet if run_id else None,
        )
    except ValueError as error:
        raise ConfigError(f"store.url is not understood: {error}") from error
    return redis.Redis(connection_pool=pool)
