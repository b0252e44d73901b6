"""Opens the store: its connections, and the object that has all methods.

Three connections stay open (pipeline.py): one for calls that apply records of journals, in order; one for heartbeats;
one for all other calls. The server serves connections in turn, so a call waits for at most one call of each other
connection. redis-py opens them, in a thread, and makes rare calls. Every answer has a timeout, and no call is repeated
here.
"""

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import Any, TypeVar

import redis
import trio
from redis.backoff import NoBackoff
from redis.retry import Retry

from jqd.domain.errors import ConfigError, StoreAway, StoreChanged, StoreMisplaced, StoreRefused
from jqd.domain.log import get_logger
from jqd.domain.record import Lane
from jqd.store import codec
from jqd.store.config import StoreConfig
from jqd.store.discover import Finder, finder_of
from jqd.store.durable import CALL_S, Durability, Mark
from jqd.store.functions import OTHERS_MAX, PREFIX, call_on, others, shipped
from jqd.store.keys import Keys
from jqd.store.pipeline import Pipeline, Words
from jqd.store.scripts import OtherServer, translate
from jqd.store.store import Store
from jqd.store.types import Owner, Renewed, StoreLook

HEART_CALLS = 1  # heartbeats at once: each follows the one before
LANE_CALLS = 3 * len(Lane)  # in flight: of each lane one being applied, one queued at the server, one on its way
OPENING = 2  # connections opened at once, each in a thread
SLOW_S = 1.0  # a call takes some milliseconds; a lease ends after a few seconds without renewals
SLOW_EVERY_S = 60.0  # between two log lines on slow calls
URL_SCHEMES = ("redis://", "rediss://", "unix://")
MORE_SCHEMES = ("redis+cluster://", "redis+sentinel://", "rediss+cluster://", "rediss+sentinel://")

_FACT = re.compile(r"^(\w+):(.*?)\r?$", re.MULTILINE)

T = TypeVar("T")


class Accepted:
    """The server and the life of the store that `look` accepted. All connections of a store share it."""

    def __init__(self, run_id: str = "", life: str = "", seal: str = "") -> None:
        self.run_id, self.seal = run_id, seal
        self.identity = f"{run_id}.{life}"
        self.changed = ""
        """Why no call is sent before the next `look`; "": calls are sent."""


class Connection:
    """Makes calls to the accepted server: calls that apply a lane's records in order, and up to `calls_max` other calls
    at once."""

    def __init__(
        self, config: StoreConfig, keys: Keys, calls_max: int, now_ms: Callable[[], int] | None, finder: Finder | None
    ) -> None:
        self._config, self._keys, self._calls_max, self._finder = config, keys, calls_max, finder
        self._limiter = trio.CapacityLimiter(OPENING)
        self._now_ms = now_ms
        self._accepted = Accepted()
        self._slow_at_s = -SLOW_EVERY_S
        self._log = get_logger("store")
        self._client, self._link, self._lanes = self._make()

    @property
    def identity(self) -> str:
        return self._accepted.identity

    @property
    def seal(self) -> str:
        return self._accepted.seal

    def accept(self, accepted: Accepted) -> None:
        """Send all further calls to the accepted server: each new connection checks that this server answers before it
        sends anything.

        Calls in flight end on their old connections, which are then closed."""
        client, *links = self._client, self._link, self._lanes
        self._accepted = accepted
        self._client, self._link, self._lanes = self._make()
        client.connection_pool.disconnect(inuse_connections=False)
        for link in links:
            link.retire()

    def _make(self) -> tuple["redis.Redis", Pipeline, Pipeline]:
        client = _client(self._config, self._accepted.run_id, self._finder)
        pool: Any = client.connection_pool

        def connect() -> Any:
            connection = pool.connection_class(**pool.connection_kwargs)
            connection.connect()
            return connection

        open_one = partial(trio.to_thread.run_sync, connect, limiter=self._limiter, abandon_on_cancel=False)
        link, lanes = (
            Pipeline(open_one, calls_max, self._config.timeout_s, shipped().load_words())
            for calls_max in (self._calls_max, LANE_CALLS)
        )
        return client, link, lanes

    def refuse(self, reason: str) -> None:
        """Refuse all calls until `accept` is called again. `reason`: the message of the errors that the calls raise."""
        self._accepted.changed = reason

    async def call(self, name: str, *arguments: Any) -> object:
        """Call a function of the library at the server, and return its answer. Raises StoreAway, StoreChanged,
        StoreRefused and the function's own errors."""
        return await self._run(self._link, name, arguments)

    async def call_behind(self, name: str, *arguments: Any) -> object:
        """Call a function of the library at the server, after all earlier calls of this method, and return its answer.
        The call is sent before the earlier calls are answered."""
        return await self._run(self._lanes, name, arguments)

    async def info(self, *sections: str) -> dict[str, str]:
        """Return the facts in the server's INFO. Raises StoreAway, StoreRefused."""
        return _facts(await self._send(self._link, "info", ("INFO", *sections)))

    async def _run(self, link: Pipeline, name: str, arguments: tuple[Any, ...]) -> object:
        arguments = (self._now_ms() if self._now_ms is not None else 0, *arguments)
        return await self._send(link, name, shipped().words(self._keys, name, arguments))

    async def _send(self, link: Pipeline, name: str, words: Words) -> object:
        began_s = trio.current_time()
        with self._refusing_others():
            try:
                answer = await link.call(words)
            except redis.RedisError as error:
                raise translate(error, name, self._keys) from error
        took_s = trio.current_time() - began_s
        if took_s > SLOW_S and began_s > self._slow_at_s + SLOW_EVERY_S:
            self._slow_at_s = began_s
            self._log.warning("store.slow", call=name, took_s=round(took_s, 3))
        return answer

    async def on_one(self, work: Callable[["redis.Redis", Mark], T]) -> T:
        make: Callable[[], redis.Redis] = self._client.client
        mark = shipped().words(self._keys, "mark", (0,))

        def run() -> T:
            try:
                with make() as one:
                    return work(one, partial(call_on, one, mark))
            except redis.RedisError as error:
                raise translate(error, "wait_durable", self._keys) from error

        with self._refusing_others():
            return await trio.to_thread.run_sync(run, limiter=self._limiter, abandon_on_cancel=False)

    async def drop_old_libraries(self) -> None:
        """Delete libraries of other jqd versions if there are too many. A daemon that still uses one loads it again."""
        listed = await self._send(self._link, "function list", ("FUNCTION", "LIST", "LIBRARYNAME", PREFIX + "*"))
        old = others(listed)
        for name in old if len(old) > OTHERS_MAX else ():
            try:
                await self._link.call(("FUNCTION", "DELETE", name))
            except redis.RedisError as error:
                if str(error) != "Library not found":  # that one was deleted by another daemon
                    raise translate(error, "function delete", self._keys) from error

    @contextmanager
    def _refusing_others(self) -> Iterator[None]:
        """Run a call in the `with` block. If the block raises StoreChanged, because another store answered, then every
        later call raises it before anything is sent, until the next `look`."""
        accepted = self._accepted
        if accepted.changed:
            raise StoreChanged(accepted.changed)
        try:
            yield
        except StoreChanged as error:
            accepted.changed = str(error)
            raise

    async def expect_in_place(self) -> None:
        """Raise StoreChanged if the store has moved to another server, although the present one still answers.

        A master that is cut off from the others answers until it learns that another one was promoted.
        """
        accepted, here = self._accepted, getattr(self._client.connection_pool.connection_class, "last", None)
        if self._finder is None or here is None:
            return
        try:
            found = await trio.to_thread.run_sync(self._finder.find, limiter=self._limiter, abandon_on_cancel=False)
        except redis.RedisError:
            return  # nobody knows (all sentinels may be down): go on with the present server
        if found != here:
            accepted.changed = f"the store is at {found} by now, not at {here} any more: a failover"
            raise StoreChanged(accepted.changed)

    def close(self) -> None:
        """Close all connections. No call may be in flight."""
        self._client.connection_pool.disconnect()
        for link in (self._link, self._lanes):
            link.close()


class RedisStore(Store):
    """The store in Redis or Valkey. Open it with `open_store`."""

    def __init__(self, config: StoreConfig, *, now_ms: Callable[[], int] | None = None) -> None:
        """`now_ms` replaces the server's clock in tests. Raises ConfigError for a URL that is not understood."""
        keys = Keys(config.prefix, config.partition)
        self._finder = finder = finder_of(config.url, keys)
        self._bulk = Connection(config, keys, config.connections_max, now_ms, finder)
        self._beat = Connection(config, keys, HEART_CALLS, now_ms, finder)
        # A call that waits for replicas would block other calls on its connection.
        patient = replace(config, timeout_s=config.timeout_s + CALL_S)
        self._waiting = Connection(patient, keys, 1, now_ms, finder)
        self._durability = Durability(self._waiting)
        self._config, self._keys, self._now_ms = config, keys, now_ms
        super().__init__(config, keys, self._bulk, self._beat)

    async def look(self, *, fresh: bool, highest: int = 0, before: int = 0) -> StoreLook:
        probe = Connection(self._config, self._keys, 1, self._now_ms, self._finder)
        try:
            facts = await probe.info("server", "replication")
            run_id, history = facts.get("run_id", ""), _copied_from(facts)
            if facts.get("role") != "master":
                raise StoreAway(
                    f"the server at the store's address is a {facts.get('role')}, not a master: a failover? "
                    "It is asked again until it is promoted, or the address leads to another one"
                )
            probe.accept(Accepted(run_id))
            about = (int(fresh), self._config.place, highest, before)
            answer = await probe.call("look", token_hex(8), run_id, history, *about)
            await self._drop_old_libraries(probe)
        except StoreMisplaced as error:
            # Before the first look calls go to any server. Send none to this one.
            for connection in (self._bulk, self._beat, self._waiting):
                connection.refuse(str(error))
            raise
        finally:
            probe.close()
        life, settled, fence, seal, since = codec.list_of(self._keys, "life", answer)
        accepted = Accepted(run_id, *(codec.text(self._keys, "life", each) for each in (life, seal)))
        if run_id != self._bulk.identity.partition(".")[0]:
            self._durability.forget()
        for connection in (self._bulk, self._beat, self._waiting):
            connection.accept(accepted)
        numbers = (codec.whole(self._keys, key, number or 0) for key, number in (("fence", fence), ("life", since)))
        return StoreLook(accepted.identity, settled == accepted.identity.encode(), *numbers)

    async def _drop_old_libraries(self, probe: Connection) -> None:
        try:
            await probe.drop_old_libraries()
        except StoreRefused as error:  # not fatal: it costs some megabytes
            get_logger("store").warning("store.libraries_kept", error=str(error))

    async def renew_sysid(self, owner: Owner, *, through: bool, settle: bool = False, restored: bool = True) -> Renewed:
        """See Store. Also raises StoreChanged if the store has moved to another server than the one that was asked."""
        try:
            answer = await super().renew_sysid(owner, through=through, settle=settle, restored=restored)
        except StoreChanged:
            raise
        except StoreAway:
            await self._beat.expect_in_place()
            raise
        try:
            await self._beat.expect_in_place()
        except StoreChanged:
            self._is_renewed = False  # the caller does not get this answer's cancels: ask for them again
            raise
        return answer

    async def new_life(self, identity: str) -> None:
        await self._bulk.call("new_life", identity.rpartition(".")[2], token_hex(8))

    async def wait_durable(
        self,
        replicas: int = 0,
        timeout_s: float = 5.0,
        where: Collection[int] | None = None,
        *,
        or_accepted: bool = False,
    ) -> bool:
        return await self._durability.wait(max(replicas, self._replicas), timeout_s, or_accepted=or_accepted)

    @property
    def durability_rule(self) -> str:
        return f"{self._durability.rule}{'; and a replica must have it' if self._replicas else ''}"

    @property
    def _replicas(self) -> int:
        """The fewest replicas that must have a record, even if a caller asks for fewer: a failover loses records that
        no replica had."""
        return 1 if self._finder is not None and self._finder.replicated else 0

    def close(self) -> None:
        """Close all connections. No call may be in flight."""
        for connection in (self._bulk, self._beat, self._waiting):
            connection.close()


def _copied_from(facts: Mapping[str, Any]) -> str:
    """Return the id and the end of the replication history that this server continued when it ceased to be a replica;
    "": it never was a replica.

    The id of the server's own history would not do: a server gets a new one with its first replica, a backup, or after
    an hour without replicas.
    """
    before = str(facts.get("master_replid2", ""))
    return f"{before}:{facts.get('second_repl_offset', '')}" if before.strip("0") else ""


@asynccontextmanager
async def open_store(config: StoreConfig, *, now_ms: Callable[[], int] | None = None) -> AsyncIterator[RedisStore]:
    """Yield a store that connects when it is first used, and again whenever its server comes back.

    Raises ConfigError for a URL that is not understood. While the server is away, every method raises StoreAway.
    """
    store = RedisStore(config, now_ms=now_ms)
    try:
        yield store
    finally:
        store.close()


def _facts(answer: object) -> dict[str, str]:
    """Return the facts in a server's INFO."""
    return dict(_FACT.findall(answer.decode(errors="replace") if isinstance(answer, bytes) else ""))


def _client(config: StoreConfig, run_id: str, finder: Finder | None = None) -> "redis.Redis":
    """Return a client whose connections lead to the server with that run id; "": to any server."""
    finder = finder or finder_of(config.url, Keys(config.prefix, config.partition))
    if finder is None and not config.url.startswith(URL_SCHEMES):
        given = "" if "@" in config.url else f"{config.url!r} "  # it may have a password
        hint = f"; did you mean 'redis://{config.url}'?" if given and "://" not in config.url else ""
        raise ConfigError(f"store.url {given}must begin with one of {', '.join((*URL_SCHEMES, *MORE_SCHEMES))}{hint}")

    def greet(connection: Any) -> None:
        connection.on_connect()
        connection.send_command("INFO", "server", "replication")
        facts = _facts(connection.read_response())
        if facts.get("run_id") != run_id:
            raise OtherServer("another server answers there than before, or it was started anew; look who it is")
        if facts.get("role") != "master":
            raise OtherServer("the server has become a copy of another one, whose data takes the place of its own")

    try:
        pool = redis.BlockingConnectionPool.from_url(
            finder.url if finder is not None else config.url,
            max_connections=1,
            timeout=config.timeout_s,
            socket_timeout=config.timeout_s,
            socket_connect_timeout=config.timeout_s,
            retry=Retry(NoBackoff(), 0),  # the caller decides what may be repeated
            protocol=2,
            client_name="jqd",
            redis_connect_func=greet if run_id else None,
            **({} if finder is None else {"connection_class": finder.connections()}),
        )
    except ValueError as error:
        raise ConfigError(f"store.url is not understood: {error}") from error
    return redis.Redis(connection_pool=pool)
