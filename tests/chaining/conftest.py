"""A store alone, of which the loops of flows are shown."""

import pytest

from jqd.store import StoreConfig
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import JOURNAL, StoreBench


@pytest.fixture
async def bench() -> StoreBench:
    clock = ManualClock()
    store = FakeStore(clock, StoreConfig(url="redis://fake"))
    await store.look(fresh=True)
    await store.applied(JOURNAL)
    bench = StoreBench(store, clock)
    await bench.join()
    return bench
