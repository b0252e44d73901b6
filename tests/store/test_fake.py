"""What the fake can do beyond the contract: be away, forget, start anew, and serve several daemons."""

import importlib
import sys

import pytest

from jqd.domain.errors import PositionMismatch, StaleOwner, StoreAway, StoreChanged
from jqd.testing.clock import ManualClock
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
    before = (await store.look(fresh=False)).identity
    owner = await bench.join()
    job = await bench.push()
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


async def test_it_can_start_anew_with_what_it_had_or_an_older_image() -> None:
    clock = ManualClock()
    store = FakeStore(clock)
    bench = StoreBench(store, clock, other=store.another_client())
    identities = {(await store.look(fresh=True)).identity, (await bench.other.look(fresh=True)).identity}
    assert len(identities) == 1
    first = await bench.push()
    image = store.image()
    second = await bench.push()
    for older in (None, image):
        store.restart(older)
        for client in (store, bench.other):
            with pytest.raises(StoreChanged):
                await client.stats()
        store.away = "still starting"
        with pytest.raises(StoreAway):
            await store.look(fresh=False)
        store.away = None
        with pytest.raises(StoreChanged):
            await store.stats()
        look = await store.look(fresh=False)
        assert not look.settled
        identities.add(look.identity)
        assert (await store.stats()).waiting == (2 if older is None else 1)
        assert await bench.other.look(fresh=False) == look
    assert len(identities) == 3
    assert await bench.state(first) == "waiting"
    with pytest.raises(PositionMismatch):
        await bench.push()
    assert await store.unfinished([first.id, second.id]) == [first.id]


async def test_its_keys_may_be_put_back_by_hand() -> None:
    clock = ManualClock()
    store = FakeStore(clock)
    bench = StoreBench(store, clock)
    before = await store.look(fresh=True)
    image = store.image()
    await bench.push()
    store.load(image)
    with pytest.raises(PositionMismatch):
        await bench.push()
    assert await store.look(fresh=False) == before, "nothing but the position tells"


async def test_it_is_as_durable_as_it_is_told() -> None:
    store = FakeStore(ManualClock())
    assert await store.wait_durable(replicas=3)
    store.durable = False
    assert not await store.wait_durable()
    assert "durable" in store.durability_rule


def test_without_lua_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lupa.lua51", None)
    monkeypatch.delitem(sys.modules, "jqd.testing.lua")
    with pytest.raises(ImportError, match=r"lupa is not installed: pip install .*\[testing\]"):
        importlib.import_module("jqd.testing.lua")
