"""Each test of a contract runs once on the fake and once on the real thing."""

from collections.abc import AsyncIterator

import pytest
import redis

from jqd.clock import ManualClock
from jqd.store import StoreConfig, open_store
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench
from tests.valkey import fresh_valkey, valkey_server

__all__ = ["fresh_valkey", "store_bench", "store_url", "valkey_server"]


WALKS = 20  # of the suite's form


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store-walks", type=int, default=WALKS)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each seed. The option is known only when this directory was named on the command line."""
    if metafunc.function.__name__ == "test_fake_and_real_agree":
        metafunc.parametrize("seed", range(metafunc.config.getoption("--store-walks", WALKS)))


@pytest.fixture(params=["fake", "valkey"])
def store_url(request) -> str:
    """Where the store of this test is; empty for the fake."""
    return "" if request.param == "fake" else str(request.getfixturevalue("fresh_valkey").url)


@pytest.fixture
async def store_bench(store_url: str) -> AsyncIterator[StoreBench]:
    """A store, fake or real, on a clock that the test moves."""
    clock = ManualClock()
    config = StoreConfig(url=store_url or "redis://fake", history_max=3, ended_keep_jobs=5)
    if store_url:
        with redis.Redis.from_url(store_url) as client:
            async with (
                open_store(config, now_ms=clock.wall_ms) as store,
                open_store(config, now_ms=clock.wall_ms) as other,
            ):
                yield StoreBench(store, clock, other=other, wipe=client.flushall)
    else:
        fake = FakeStore(clock, config)
        yield StoreBench(fake, clock, other=fake.another_client(), wipe=fake.wipe)
