"""One real server for the room, emptied for each test."""

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from jqd.store import RedisStore, StoreConfig, open_store
from jqd.store.functions import load, shipped
from jqd.testing.clock import ManualClock
from tests.contract.bench import StoreBench
from tests.store.proxy import Proxy, open_proxy
from tests.valkey import Valkey, fresh_redis, fresh_valkey, redis_server, valkey_server

__all__ = ["fresh_redis", "fresh_valkey", "redis_server", "valkey_server"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-reply", action="store_true", help="each error reply at each command: minutes")
    parser.addoption("--queue-walks", type=int, default=QUEUE_WALKS, help="walks over a queue that lies in pages")
    parser.addoption("--spread-walks", type=int, help="walks over several partitions, beside one store that has all")


QUEUE_WALKS = 6  # of the suite's form
QUEUE_SERVERS = ("fresh_valkey", "fresh_valkey", "fresh_redis")  # in turns


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each seed. The option is known only when this directory was named on the command line."""
    if "queue_seed" in metafunc.fixturenames:
        seeds = range(metafunc.config.getoption("--queue-walks", QUEUE_WALKS))
        walks = [(seed, QUEUE_SERVERS[seed % 3], 50 if seed % 4 == 3 else 1) for seed in seeds]
        metafunc.parametrize(("queue_seed", "queue_server", "queue_times"), walks)


@pytest.fixture
def client(fresh_valkey: Valkey) -> Iterator["redis.Redis"]:
    """A bare client, for looking and for mischief."""
    with redis.Redis.from_url(fresh_valkey.url) as client:
        yield client


@pytest.fixture
def config(fresh_valkey: Valkey) -> StoreConfig:
    """The plain configuration."""
    return StoreConfig(url=fresh_valkey.url)


@pytest.fixture
async def store(config: StoreConfig) -> AsyncIterator[RedisStore]:
    """A store on the server's own clock."""
    async with open_store(config) as store:
        yield store


@pytest.fixture
async def proxy(fresh_valkey: Valkey, nursery) -> AsyncIterator[Proxy]:
    """A way to the server that may be cut, stalled, or lose answers."""
    async with open_proxy(fresh_valkey.socket) as proxy:
        yield proxy


@pytest.fixture
async def bench(proxy: Proxy, client: "redis.Redis") -> AsyncIterator[StoreBench]:
    """The real store behind the proxy, on a clock that the test moves; it was looked at."""
    clock = ManualClock()
    load(client, shipped())  # it takes 10 ms of a CPU, and answers are waited for half a second
    config = StoreConfig(url=proxy.url, timeout_s=0.5)
    async with open_store(config, now_ms=clock.wall_ms) as store:
        await store.look(fresh=True)
        yield StoreBench(store, clock)
