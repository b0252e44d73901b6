"""Each test of a contract runs on the fake, on Valkey, and its first case on Redis 7.0 where that is installed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis

from jqd.store import StoreConfig, open_store
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench
from tests.store.counting import of_fake, of_server
from tests.valkey import Valkey, fresh_redis, fresh_valkey, redis_server, valkey_server

__all__ = ["fresh_redis", "fresh_valkey", "redis_server", "store_bench", "store_url", "valkey_server"]


HERE = Path(__file__).parent
WALKS = 20  # of the suite's form
REDIS_PART = 5  # one walk in so many is done on the oldest server too: what depends on it the other tests show
SERVERS = {"valkey": "fresh_valkey", "redis": "fresh_redis"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store-walks", type=int, default=WALKS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each seed. The option is known only when this directory was named on the command line."""
    if metafunc.function.__name__ == "test_fake_and_real_agree":
        seeds = range(metafunc.config.getoption("--store-walks", WALKS))
        walks = [("valkey", seed) for seed in seeds] + [("redis", seed) for seed in seeds[::REDIS_PART]]
        metafunc.parametrize(("real_server", "seed"), walks, indirect=["real_server"])


@pytest.hookimpl(tryfirst=True)  # before those that are not asked for by a mark are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With each change the oldest server is given the first case of each test: how it differs from the newest depends
    on scripts and commands, and hardly on values. `make campaign` gives it the others."""
    met = set[str]()
    for item in items:
        cases = item.callspec.id.split("-") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
        if "redis" in cases and item.path.parent == HERE:
            name = item.nodeid.partition("[")[0]
            if name in met:
                item.add_marker(pytest.mark.long)
            met.add(name)


@pytest.fixture
def real_server(request: pytest.FixtureRequest) -> Valkey:
    """The server of that name, emptied."""
    server = request.getfixturevalue(SERVERS[request.param])
    assert isinstance(server, Valkey)
    return server


@pytest.fixture(params=["fake", *SERVERS])
def store_url(request: pytest.FixtureRequest) -> str:
    """Where the store of this test is; empty for the fake."""
    return "" if request.param == "fake" else str(request.getfixturevalue(SERVERS[request.param]).url)


@pytest.fixture
async def store_bench(store_url: str) -> AsyncIterator[StoreBench]:
    """A store that somebody looked at, fake or real, on a clock that the test moves. `other` did not look yet."""
    clock = ManualClock()
    config = StoreConfig(url=store_url or "redis://fake", history_max=3, ended_keep_jobs=5)
    if store_url:
        with redis.Redis.from_url(store_url) as client:
            async with (
                open_store(config, now_ms=clock.wall_ms) as store,
                open_store(config, now_ms=clock.wall_ms) as other,
            ):
                recount = of_server(client)
                recount.watch(store)
                recount.watch(other)
                await store.look(fresh=True)
                yield StoreBench(store, clock, other=other, wipe=client.flushall, recount=recount, keys=client.keys)
                recount.check()
    else:
        fake = FakeStore(clock, config)
        another = fake.another_client()
        recount = of_fake(fake)
        recount.watch(fake)
        recount.watch(another)
        await fake.look(fresh=True)
        keys = lambda: fake.server.keyspace.keys  # noqa: E731
        yield StoreBench(fake, clock, other=another, wipe=fake.wipe, recount=recount, keys=keys)
