"""Finds the server that has the store now, in a Cluster or behind Sentinels.

    redis+cluster://user:password@host:port,host:port        rediss+… speaks TLS to all of them
    redis+sentinel://user:password@host:port,host:port/service/0?sentinel_username=…&sentinel_password=…

All keys of the store have one hash tag, so the store is on one master at a time, used like any single server. This
master is looked up for each connection: all seeds (the servers in the URL) are asked at once, and the answer with the
latest failover counts. `connect.py` notices when a connection leads to another server than before; recovery follows.
"""

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.retry import Retry

from jqd.domain.address import PORT_MAX, Address, parse
from jqd.domain.errors import ConfigError
from jqd.store.keys import Keys

ASK_S = 1.0  # for one answer; a slower seed counts as gone
SEEDS_MAX = 16  # asked at once, each in a thread
NOWHERE = "found.invalid"  # stands in a URL until the server is found; RFC 2606: no host has such a name

FORMS = {"cluster": "redis+cluster://host:port,host:port", "sentinel": "redis+sentinel://host:port,host:port/service/0"}

_SCHEME = re.compile(r"(rediss?)\+(cluster|sentinel)")
_LINE = re.compile(rb"^(\w+):(\w+)", re.MULTILINE)

Command = Callable[..., Any]
SeedUrl = Callable[[str], str]
"""host:port → URL of that seed"""


class Found(NamedTuple):
    """The answer of a seed (a server in the URL): the present master."""

    master: Address
    epoch: int
    """The number of the last failover that this seed knows of."""
    nodes: Sequence[Address] = ()
    """All servers that the next search may ask besides the seeds."""
    replicas: int = 0


class Finder(ABC):
    """Asks the seeds (the servers in the URL) for the present master. Blocks, so the store calls it in threads."""

    def __init__(self, seeds: Sequence[Address], url: str, seed_url: SeedUrl) -> None:
        """`url`: the URL of a plain server, whose credentials, database and options are used for the server that is
        found. `seed_url`: makes the URL for asking a seed, from its address."""
        self.seeds = tuple(seeds)
        self.url = url
        self.replicated = False
        """Whether a replica may be promoted, which loses records that only the master had."""
        self._seed_url = seed_url
        self._learned: tuple[Address, ...] = ()  # servers that seeds named: asked, too, for the seeds may be gone

    def find(self) -> Address:
        """Return the master's address. Raises redis.RedisError if no seed knows it."""
        asked = list(dict.fromkeys((*self.seeds, *self._learned)))[:SEEDS_MAX]
        with ThreadPoolExecutor(len(asked)) as threads:
            answers = list(threads.map(self._ask_one, asked))
        found = [answer for answer in answers if isinstance(answer, Found)]
        if not found:
            raise _worst({seed: e for seed, e in zip(asked, answers, strict=True) if isinstance(e, redis.RedisError)})
        best = max(found, key=lambda one: one.epoch)
        self._learned = tuple(best.nodes)
        self.replicated = self.replicated or best.replicas > 0  # a replica that is away may still be promoted
        return best.master

    def connections(self) -> type[redis.Connection]:
        """Return a connection class for a pool. Its connections find their server when they are opened."""
        kind = redis.SSLConnection if self.url.startswith("rediss:") else redis.Connection
        return type("FoundConnection", (_Found, kind), {"finder": self})

    def _ask_one(self, seed: Address) -> Found | redis.RedisError:
        connection = self._connection(seed)
        try:
            return self._ask(partial(_command, connection), seed)
        except redis.RedisError as error:
            return error
        except (ValueError, TypeError, LookupError) as error:
            return redis.exceptions.InvalidResponse(f"an answer that is not understood: {error!r}")
        finally:
            connection.disconnect()

    def _connection(self, seed: Address) -> Any:
        pool = redis.ConnectionPool.from_url(
            self._seed_url(str(seed)),
            socket_timeout=ASK_S,
            socket_connect_timeout=ASK_S,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            client_name="jqd",
        )
        return pool.make_connection()

    @abstractmethod
    def _ask(self, command: Command, seed: Address) -> Found:
        """Ask one seed for the present master."""


class ClusterFinder(Finder):
    """Asks the nodes of a Cluster which master has the slot of our keys."""

    def __init__(self, slot: int, seeds: Sequence[Address], url: str, seed_url: SeedUrl) -> None:
        super().__init__(seeds, url, seed_url)
        self._slot = slot

    def _ask(self, command: Command, seed: Address) -> Found:
        state = dict(_LINE.findall(command("CLUSTER", "INFO")))
        if state[b"cluster_state"] != b"ok":
            # A node that lost touch with the others may name a former master.
            raise redis.ConnectionError("it is not in touch with most of the cluster, or nobody serves some slots")
        rows = command("CLUSTER", "SLOTS")
        nodes = list(dict.fromkeys(_address(node, seed) for _first, _last, *nodes in rows for node in nodes))
        for first, last, master, *replicas in rows:
            if int(first) <= self._slot <= int(last):
                return Found(_address(master, seed), int(state[b"cluster_current_epoch"]), nodes, len(replicas))
        raise redis.ConnectionError(f"no node has slot {self._slot} of the cluster, where the store's keys belong")


class SentinelFinder(Finder):
    """Asks the Sentinels of a service for its master."""

    def __init__(self, service: str, seeds: Sequence[Address], url: str, seed_url: SeedUrl) -> None:
        super().__init__(seeds, url, seed_url)
        self._service = service
        self.replicated = True

    def _ask(self, command: Command, seed: Address) -> Found:
        row = command("SENTINEL", "MASTER", self._service)
        facts = {bytes(name): bytes(value).decode() for name, value in zip(row[::2], row[1::2], strict=True)}
        return Found(_checked(facts[b"ip"], facts[b"port"]), int(facts[b"config-epoch"]))


class _Found:
    """Mixin for a connection: finds the server when the connection is opened."""

    finder: Finder
    last: Address | None = None
    """The server that this client last opened a connection to."""
    host: str
    port: int

    def _connect(self) -> Any:
        self.host, self.port = type(self).last = self.finder.find()
        return super()._connect()  # type: ignore[misc]  # of the kind of connection it is mixed with


def finder_of(url: str, keys: Keys) -> Finder | None:
    """Return the finder for a URL; None if it names one plain server. Raises ConfigError."""
    scheme, _, rest = url.partition("://")
    named = _SCHEME.fullmatch(scheme)
    if named is None:
        return None
    plain, kind = named.groups()
    head, _, query = rest.partition("?")
    netloc, _, path = head.partition("/")
    login, _, hosts = netloc.rpartition("@")
    seeds = [_seed(text, kind) for text in hosts.split(",")]
    if len(seeds) > SEEDS_MAX:
        raise ConfigError(f"store.url names {len(seeds)} servers to ask; {SEEDS_MAX} are enough to find the others")
    common, own = _split_options(query)
    if kind == "cluster":
        if path.strip("/") not in ("", "0"):
            raise ConfigError(f"store.url: a cluster has database 0 only; write {FORMS[kind]}")
        node_url = partial(_plain_url, plain, login, "0", common)
        return ClusterFinder(key_slot(keys["jobs"].encode()), seeds, node_url(NOWHERE), node_url)
    service, _, database = path.strip("/").partition("/")
    if not service or not re.fullmatch(r"[0-9]*", database):
        raise ConfigError(f"store.url must name the service that the sentinels watch: {FORMS[kind]}")
    seed_url = partial(_plain_url, plain, _login(own), "0", common)  # sentinels have users of their own, or none
    return SentinelFinder(unquote(service), seeds, _plain_url(plain, login, database or "0", common, NOWHERE), seed_url)


def _seed(text: str, kind: str) -> Address:
    with contextlib.suppress(ValueError):
        if (seed := parse(text)).port:
            return seed
    raise ConfigError(f"store.url: {text!r} is not host:port; write {FORMS[kind]}")


def _split_options(query: str) -> tuple[str, dict[str, str]]:
    """Split a URL's query into options of all connections and options of sentinels only."""
    pairs = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in pairs if name in ("sentinel_username", "sentinel_password")}
    return urlencode([pair for pair in pairs if pair[0] not in own]), own


def _login(options: dict[str, str]) -> str:
    if not options:
        return ""
    return ":".join(quote(options.get(f"sentinel_{name}", ""), safe="") for name in ("username", "password"))


def _plain_url(scheme: str, login: str, database: str, query: str, server: str) -> str:
    return f"{scheme}://{login}{'@' if login else ''}{server}/{database}{'?' if query else ''}{query}"


def _command(connection: Any, *words: str) -> Any:
    """Send a command and return the raw answer: redis-py would drop fields that it does not know."""
    connection.connect()
    connection.send_command(*words)
    return connection.read_response()


def _address(node: Sequence[Any], seed: Address) -> Address:
    """Return the address of a node in a table of slots. A node without a host is the seed that was asked."""
    host = bytes(node[0] or b"").decode()
    return _checked(seed.host if host in ("", "?") else host, node[1])


def _checked(host: str, port: object) -> Address:
    number = int(str(port))
    if not host or not 0 < number <= PORT_MAX:
        raise ValueError(f"no address: {host!r}, {port!r}")
    return Address(host, number)


def _worst(errors: dict[Address, redis.RedisError]) -> redis.RedisError:
    """Return one error that lists the seeds' errors. It is a ConnectionError if the error of at least one seed may pass
    by itself; else it is an error that only a human can end."""
    reasons = "; ".join(f"{seed}: {error}" for seed, error in errors.items())
    if any(_passes(error) for error in errors.values()):
        return redis.ConnectionError(f"nobody tells where the store is now: {reasons}")
    if any(isinstance(error, redis.AuthenticationError) for error in errors.values()):
        return redis.AuthenticationError(f"nobody tells where the store is: {reasons}")
    return redis.ResponseError(f"nobody tells where the store is: {reasons}")


def _passes(error: redis.RedisError) -> bool:
    shut_out = (redis.AuthenticationError, redis.exceptions.AuthorizationError)
    return isinstance(error, (redis.ConnectionError, redis.TimeoutError)) and not isinstance(error, shut_out)
