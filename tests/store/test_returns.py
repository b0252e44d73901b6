"""Every key has an owner, a bound that the docs tell, and jobs that reach it; when those are over it is as before."""

import redis

from jqd.store import StoreConfig
from jqd.store.keys import KINDS
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench
from tests.store.counting import KEYS, of_fake
from tests.store.owners import OWNERS
from tests.store.returns import begin, compare, grown
from tests.valkey import Valkey

NO_JOBS = {"notices", "history", "historic"}


def test_each_key_has_an_owner() -> None:
    assert OWNERS.keys() == KINDS.keys()


async def test_jobs_of_every_kind_reach_every_key_and_leave_no_field_without_an_owner() -> None:
    """After each call all fields have one: that is looked at wherever the contract of the store is tested, too."""
    clock = ManualClock()
    store = FakeStore(clock, StoreConfig(url="redis://fake"))
    recount = of_fake(store)
    recount.watch(store)
    await store.look(fresh=True)
    round_ = await begin(StoreBench(store, clock))
    await round_.all(4)
    assert KINDS.keys() - recount.met == NO_JOBS, "of several partitions; what no job is in"


async def test_when_jobs_of_every_kind_are_over_and_deleted_the_store_holds_what_it_held(fresh_valkey: Valkey) -> None:
    before, after, jobs = await compare(fresh_valkey.url, 12)
    assert jobs >= 200
    assert grown(before, after) == []
    with redis.Redis.from_url(fresh_valkey.url) as client:
        assert not client.exists(KEYS["jobs"], KEYS["generation"], KEYS["expiring"], KEYS["names"], KEYS["tombstones"])
