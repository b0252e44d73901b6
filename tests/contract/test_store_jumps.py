"""The server's clock is set, back or forward: what waits for so long after something waits no longer for it."""

import msgspec
import pytest
from msgspec import Raw

from jqd.domain.flow import BLOCKED_MS, Flow
from jqd.domain.job import Fate, Held, State
from jqd.domain.settings import Setting
from jqd.store import NameWanted, Release, StoreConfig
from jqd.store.links import PLACE_S, Closing
from jqd.testing import store as fakes
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import JOURNAL, StoreBench, ids, outcome
from tests.contract.limited import DIGEST, KEYED, item, setting, taken
from tests.contract.test_store_deaths import die

JUMPS_S = (-3_600, -600, -2, -1, 1, 3_600)
BACK_S = (1, 2, 600, 3_600)
ALONE_S = 60


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    return store_bench


def jump(bench: StoreBench, seconds: float) -> None:
    bench.clock.set_wall_ms(bench.clock.wall_ms() + round(seconds * 1000))


async def pass_time(bench: StoreBench, seconds: int) -> None:
    """Daemons promote about each second."""
    for _ in range(seconds):
        bench.clock.advance(1)
        await bench.store.promote(100)


@pytest.mark.parametrize("jump_s", JUMPS_S)
async def test_a_limited_queue_goes_on_after_its_own_time(store_bench: StoreBench, jump_s: int) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "r", rate={"limit": 1, "per_s": 5})
    jobs = [await bench.push(queue=KEYED + item("r")) for _ in range(3)]
    assert ids(await taken(bench, owner)) == [jobs[0].id]
    await pass_time(bench, 1)
    assert await taken(bench, owner) == []
    jump(bench, jump_s)
    await pass_time(bench, 8)
    assert ids(await taken(bench, owner)) == [jobs[1].id]


@pytest.mark.parametrize("jump_s", JUMPS_S)
async def test_a_retry_comes_after_its_own_time_and_a_date_at_its_date(store_bench: StoreBench, jump_s: int) -> None:
    bench, owner = store_bench, await store_bench.join()
    failed = await bench.push()
    await bench.settle(outcome(await bench.claim_one(owner), Fate.RETRY, delay_ms=5_000))
    dated = await bench.push(eligible_at_ms=bench.clock.wall_ms() + 60_000)
    await pass_time(bench, 1)
    jump(bench, jump_s)
    await pass_time(bench, 6)
    its_date = bench.clock.wall_ms() >= dated.eligible_at_ms
    assert ids(await bench.claim(owner)) == [failed.id, dated.id][: 1 + its_date]
    bench.clock.set_wall_ms(dated.eligible_at_ms)
    await bench.store.promote(100)
    assert ids(await bench.claim(owner)) == [dated.id][its_date:]


@pytest.mark.parametrize("back_s", BACK_S)
async def test_what_another_daemon_left_in_the_outbox_is_found(store_bench: StoreBench, back_s: int) -> None:
    bench = store_bench
    await bench.settle(outcome(Held(bench.make(), 5, 1), Fate.SUCCEEDED, follows=b"f"))
    jump(bench, -back_s)
    found = 0
    for _ in range(4):
        bench.clock.advance(1)
        found = max(found, len((await bench.store.get_outbox(10, 1 << 20, age_s=1)).entries))
    assert found == 1


@pytest.mark.parametrize("back_s", [60, 600, 3_600])
async def test_a_promised_name_is_free_again_in_its_time(store_bench: StoreBench, back_s: int) -> None:
    """Its daemon died before its journal had the job."""
    bench = store_bench
    await bench.join()
    first, other = bench.make().id, bench.make().id
    (given,) = await bench.store.reserve_names([NameWanted("mine", first, "a", replace=False)])
    assert isinstance(given.revision, int)
    jump(bench, -back_s)
    bench.clock.advance(1)
    (given,) = await bench.store.reserve_names([NameWanted("mine", other, "b", replace=False)])
    assert given.revision > 0, "it may be journaled now"


@pytest.mark.parametrize("jump_s", JUMPS_S)
async def test_all_retries_come_after_their_own_time(monkeypatch: pytest.MonkeyPatch, jump_s: int) -> None:
    """However many there are: some at a time are brought forward, and dates of pushers among them stay."""
    shortened = fakes.LIBRARY.changed("promote", "local RETRIES = 5000 ", "local RETRIES = 3 ")
    monkeypatch.setattr(fakes, "LIBRARY", shortened)
    store = FakeStore(clock := ManualClock(), StoreConfig())
    await store.look(fresh=True)
    bench = StoreBench(store, clock)
    owner = await bench.join()
    failed = [await bench.push() for _ in range(10)]
    for at, held in enumerate(await bench.claim(owner)):
        await bench.settle(outcome(held, Fate.RETRY, delay_ms=5_000 + at))
    dated = [await bench.push(eligible_at_ms=clock.wall_ms() + 4 * 3_600_000 + 5_004) for _ in range(10)]
    await pass_time(bench, 1)
    jump(bench, jump_s)
    await pass_time(bench, 7)
    assert sorted(ids(await bench.claim(owner))) == sorted(job.id for job in failed)
    assert all([(await bench.view(job)).eligible_at_ms == job.eligible_at_ms for job in dated])


@pytest.mark.parametrize("jump_s", JUMPS_S)
async def test_a_daemon_with_a_suspect_gets_more_after_its_own_time(store_bench: StoreBench, jump_s: int) -> None:
    bench = store_bench
    suspect = await bench.push()
    for number in range(2):
        await bench.claim(await bench.join(f"dies-{number}"))
        await die(bench, f"dies-{number}")
    owner = await bench.join("one")
    assert ids(await bench.claim(owner)) == [suspect.id]
    other = await bench.push()
    assert ids(await bench.claim(owner)) == []
    jump(bench, jump_s)
    bench.clock.advance(ALONE_S + 2)
    assert ids(await bench.claim(owner)) == [other.id]


@pytest.mark.parametrize("jump_s", JUMPS_S)
@pytest.mark.parametrize("is_down", [False, True])
async def test_a_rate_of_which_the_store_forgot_what_was_spent_allows_more_after_its_window(
    store_bench: StoreBench, jump_s: int, is_down: bool
) -> None:
    """`is_down`: the clock is set while the server is down, before the store begins another life."""
    bench = store_bench
    raw = Raw(msgspec.msgpack.encode({"digest": DIGEST, "rate": {"limit": 1, "per_s": 5}}))
    await bench.store.apply_settings(JOURNAL, 0, 1, [Setting("constraint", "r", 1, bench.clock.wall_ms(), raw)])
    job = await bench.push(queue=KEYED + item("r"))
    await bench.join()
    await pass_time(bench, 1)
    if is_down:
        jump(bench, jump_s)
    await bench.store.new_life((await bench.store.look(fresh=False)).identity)
    await bench.store.look(fresh=False)
    owner = await bench.join()
    assert await taken(bench, owner) == []
    if not is_down:
        jump(bench, jump_s)
    await pass_time(bench, 8)
    assert ids(await taken(bench, owner)) == [job.id]


@pytest.mark.parametrize("jump_s", JUMPS_S)
async def test_nothing_is_begun_late_though_numbers_of_claims_are_ahead(store_bench: StoreBench, jump_s: int) -> None:
    bench, owner = store_bench, await store_bench.join()
    jump(bench, jump_s)
    job = await bench.push(expires_at_ms=bench.clock.wall_ms() + 5_000)
    held = await bench.claim_one(owner)
    await pass_time(bench, 6)
    await bench.store.release_jobs(owner, {job.id: held.fence}, Release.UNSENT)
    await pass_time(bench, 1)
    assert await bench.state(job) is State.FAILED


@pytest.mark.parametrize("jump_s", JUMPS_S)
async def test_what_a_dead_daemon_took_of_flows_and_changes_is_others_after_its_own_time(
    store_bench: StoreBench, jump_s: int
) -> None:
    """Children stayed blocked, edits and closes of groups were refused, until the clock was where it had been."""
    bench, store = store_bench, store_bench.store
    await bench.join()
    parent = await bench.push()
    child = await bench.push(eligible_at_ms=BLOCKED_MS, flow=Flow(after=(parent.id,)))
    assert [each.job.id for each in (await store.take_links(9, 5.0)).blocked] == [child.id]
    assert await store.reserve_edit(parent.id, 0) is not None
    await store.join_group("g", ["t"])
    assert await store.reserve_edit(parent.id, 0) is None
    jump(bench, jump_s)
    await pass_time(bench, round(PLACE_S) + 2)
    assert [each.job.id for each in (await store.take_links(9, 5.0)).blocked] == [child.id]
    assert await store.reserve_edit(parent.id, 0) is not None
    assert await store.close_group("g") == Closing(0, [])
