"""The server's clock is set back: what waits for so long after something waits no longer for it."""

import pytest

from jqd.store import NameWanted
from jqd.words.job import Fate, Held
from tests.contract.bench import StoreBench, ids, outcome
from tests.contract.limited import KEYED, item, rule, taken

BACK_S = (2, 600, 3_600)


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    return store_bench


def set_back(bench: StoreBench, seconds: float) -> None:
    bench.clock.set_wall_ms(bench.clock.wall_ms() - round(seconds * 1000))


async def pass_time(bench: StoreBench, seconds: int) -> None:
    """Daemons promote about each second."""
    for _ in range(seconds):
        bench.clock.advance(1)
        await bench.store.promote(100)


@pytest.mark.parametrize("back_s", BACK_S)
async def test_a_limited_queue_goes_on_after_its_own_time(store_bench: StoreBench, back_s: int) -> None:
    bench, owner = store_bench, await store_bench.join()
    await rule(bench, "r", rate={"limit": 1, "per_s": 5})
    jobs = [await bench.push(queue=KEYED + item("r")) for _ in range(3)]
    assert ids(await taken(bench, owner)) == [jobs[0].id]
    await pass_time(bench, 1)
    assert await taken(bench, owner) == []
    set_back(bench, back_s)
    await pass_time(bench, 8)
    assert ids(await taken(bench, owner)) == [jobs[1].id]


@pytest.mark.parametrize("back_s", BACK_S)
async def test_a_retry_comes_after_its_own_time_and_a_date_at_its_date(store_bench: StoreBench, back_s: int) -> None:
    bench, owner = store_bench, await store_bench.join()
    failed = await bench.push()
    await bench.settle(outcome(await bench.claim_one(owner), Fate.RETRY, delay_ms=5_000))
    dated = await bench.push(eligible_at_ms=bench.clock.wall_ms() + 60_000)
    await pass_time(bench, 1)
    set_back(bench, back_s)
    await pass_time(bench, 6)
    assert ids(await bench.claim(owner)) == [failed.id]
    bench.clock.set_wall_ms(dated.eligible_at_ms)
    await bench.store.promote(100)
    assert ids(await bench.claim(owner)) == [dated.id]


@pytest.mark.parametrize("back_s", BACK_S)
async def test_what_another_daemon_left_in_the_outbox_is_found(store_bench: StoreBench, back_s: int) -> None:
    bench = store_bench
    await bench.settle(outcome(Held(bench.make(), 5, 1), Fate.SUCCEEDED, follows=b"f"))
    set_back(bench, back_s)
    bench.clock.advance(1)
    assert len((await bench.store.get_outbox(10, 1 << 20, age_s=1)).entries) == 1


@pytest.mark.parametrize("back_s", [60, 600, 3_600])
async def test_a_promised_name_is_free_again_in_its_time(store_bench: StoreBench, back_s: int) -> None:
    """Its daemon died before its journal had the job."""
    bench = store_bench
    await bench.join()
    first, other = bench.make().id, bench.make().id
    (given,) = await bench.store.reserve_names([NameWanted("mine", first, "a", replace=False)])
    assert isinstance(given.revision, int)
    set_back(bench, back_s)
    bench.clock.advance(1)
    (given,) = await bench.store.reserve_names([NameWanted("mine", other, "b", replace=False)])
    assert given.revision > 0, "it may be journaled now"
