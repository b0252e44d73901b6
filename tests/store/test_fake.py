"""What the fake can do beyond the contract: be away, and forget."""

import pytest

from jqd.clock import ManualClock
from jqd.errors import PositionMismatch, StaleOwner, StoreAway
from jqd.testing.store import FakeStore
from tests.contract.bench import JOURNAL, StoreBench


async def test_it_can_be_away() -> None:
    clock = ManualClock()
    store = FakeStore(clock)
    store.away = "cable pulled"
    with pytest.raises(StoreAway, match="cable pulled"):
        await store.promote(1)
    store.away = None
    assert (await store.promote(1)).moved == 0


async def test_it_can_forget() -> None:
    clock = ManualClock()
    store = FakeStore(clock)
    bench = StoreBench(store, clock)
    owner = await bench.join()
    job = await bench.push()
    before = (await store.look(fresh=False)).identity
    store.wipe()
    clock.advance(0.001)
    assert (await store.look(fresh=False)).identity != before
    with pytest.raises(StaleOwner):
        await store.renew_sysid(owner, through=True)
    with pytest.raises(PositionMismatch) as caught:
        await bench.push()
    assert caught.value.stored == 0
    await store.apply_jobs(JOURNAL, 0, 100, [job])
    assert (await bench.join()).epoch > owner.epoch
    assert await bench.state(job) == "waiting"
