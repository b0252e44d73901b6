"""Who has a job in hand, when several say so or its row was lost: limits count it once, and whoever loses it stops."""

from msgspec import structs

from jqd.domain.job import ChangeKind, Fate, State
from jqd.domain.record import Lane
from jqd.store import Owner
from tests.contract.bench import StoreBench, changed, ids, outcome
from tests.contract.lent import forget, handed, lend, mark
from tests.contract.limited import KEYED, item, setting, taken

ONE = KEYED + item("one")


def lose(bench: StoreBench, job_id: str, name: str = "jobs") -> None:
    """Somebody deleted a row of that job."""
    assert bench.recount is not None
    bench.recount.lose(job_id, name)


async def test_an_attempt_that_is_handed_over_where_the_one_before_is_told_of_counts(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "one", concurrency=1)
    job, then = [await bench.push(queue=ONE) for _ in range(2)]
    (first,) = await taken(bench, owner)
    second = structs.replace(first, fence=first.fence + 1, attempt=2)
    owner = await forget(bench)
    await setting(bench, "one", concurrency=1)
    await bench.add(job, then)
    assert await bench.settle(handed(first), outcome(first, Fate.RETRY), handed(second)) == []
    assert await taken(bench, owner) == [], "one at a time"
    await bench.settle(outcome(second, Fate.SUCCEEDED))
    assert ids(await taken(bench, owner)) == [then.id]


async def test_jobs_behind_one_whose_row_was_lost_start(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "one", concurrency=1)
    gone, then = [await bench.push(queue=ONE) for _ in range(2)]
    lose(bench, gone.id)
    assert ids(await taken(bench, owner)) == []
    assert ids(await taken(bench, owner)) == [then.id]


async def test_a_job_whose_row_was_lost_takes_no_place_beside_one_that_starts(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "one", concurrency=2)
    gone, here, then = [await bench.push(queue=ONE) for _ in range(3)]
    lose(bench, gone.id)
    assert ids(await taken(bench, owner)) == [here.id]
    assert ids(await taken(bench, owner)) == [then.id]


async def test_the_place_of_an_attempt_whose_job_began_anew_elsewhere_is_free(store_bench: StoreBench) -> None:
    bench, owner, other = store_bench, await store_bench.join(), await store_bench.join("two")
    await setting(bench, "one", concurrency=1)
    job, then = [await bench.push(queue=ONE) for _ in range(2)]
    (first,) = await taken(bench, owner)
    await bench.store.release_sysid(owner)
    bench.clock.advance(1)
    (second,) = await taken(bench, other)
    await bench.settle(outcome(first, Fate.SUCCEEDED))
    revision = await bench.store.reserve_change(job.id)
    await bench.add(structs.replace(changed(job, revision, ChangeKind.RETRY), queue=KEYED))
    assert await bench.store.touch([(job.id, 0)]), "it waits"
    assert ids(await taken(bench, other)) == [job.id, then.id]
    assert await bench.settle(outcome(second, Fate.FAILED)) == [job.id]
    assert await bench.state(job) is await bench.state(then) is State.RUNNING


async def test_a_place_is_found_that_is_taken_by_a_job_in_hand_of_another_queue(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "one", concurrency=1)
    other = await bench.push(queue=KEYED)
    assert ids(await taken(bench, owner)) == [other.id]
    assert bench.recount is not None
    bench.recount.hold("one\x1d", other.id)
    then = await bench.push(queue=ONE)
    assert await taken(bench, owner) == []
    for _ in range(2):
        bench.clock.advance(120)
        await bench.store.promote(10)
    assert ids(await taken(bench, owner)) == [then.id]


async def set_back(bench: StoreBench) -> None:
    """The store is emptied, and its clock was set back."""
    bench.wipe()
    bench.at = dict.fromkeys(Lane, 0)
    bench.clock.set_wall_ms(bench.clock.wall_ms() - 100_000)
    await bench.store.look(fresh=False)


async def test_a_claim_of_this_life_stands_where_the_clock_was_set_back(store_bench: StoreBench) -> None:
    bench, one = store_bench, await store_bench.join("one")
    job = await bench.push()
    held = await bench.claim_one(one)
    await set_back(bench)
    two = await bench.join("two")
    await bench.add(job)
    later = await bench.claim_one(two)
    one = await bench.join("one")
    assert await bench.store.reassert(one, {job.id: held.fence}) == [job.id]
    assert await bench.settle(outcome(later, Fate.FAILED)) == []


async def test_what_a_daemon_held_before_the_clock_was_set_back_is_given_back_when_it_dies(
    store_bench: StoreBench,
) -> None:
    bench, one = store_bench, await store_bench.join("one")
    job = await bench.push()
    held = await bench.claim_one(one)
    await set_back(bench)
    one = await bench.join("one")
    await bench.add(job)
    assert await bench.store.reassert(one, {job.id: held.fence}) == []
    one = await bench.store.reserve_sysid("one", previous_epoch_dead=True, through=True)
    assert one.epoch > held.fence, "what an earlier epoch held has lower fences"


async def told(bench: StoreBench, owner: Owner) -> list[tuple[str, int]]:
    """What this daemon is to stop."""
    return [*(await bench.store.renew_sysid(owner, through=True)).cancels]


async def test_of_two_claims_told_again_the_earlier_is_stopped(store_bench: StoreBench) -> None:
    bench, one, two = store_bench, await store_bench.join("one"), await store_bench.join("two")
    job = await bench.push()
    assert await bench.store.reassert(one, {job.id: 5}) == []
    assert await bench.store.reassert(two, {job.id: 9}) == []
    assert (await told(bench, one), await told(bench, two)) == ([(job.id, 5)], [])
    assert await told(bench, one) == [], "its answer was heard"


async def test_a_cancel_is_told_to_who_takes_the_job_over(store_bench: StoreBench) -> None:
    bench, one, two = store_bench, await store_bench.join("one"), await store_bench.join("two")
    job = await bench.push()
    assert await bench.store.reassert(one, {job.id: 5}) == []
    await bench.cancel(job.id)
    assert await bench.store.reassert(two, {job.id: 9}) == []
    assert (await told(bench, one), await told(bench, two)) == ([(job.id, 5)], [(job.id, 9)])


async def test_a_cancel_of_a_job_that_has_not_come_is_told_to_who_has_it(store_bench: StoreBench) -> None:
    bench, one = store_bench, await store_bench.join("one")
    job = bench.make()
    await bench.cancel(job.id)
    assert await bench.store.reassert(one, {job.id: 5}) == []
    assert await told(bench, one) == [(job.id, 5)]


async def test_silence_is_found_where_a_job_of_the_lease_has_no_record(store_bench: StoreBench) -> None:
    bench = store_bench
    _, held = await lend(bench, 2)
    lose(bench, held[0].job.id, "about")
    at = await mark(bench)
    found = await bench.store.find_silent({10: at, 0: at}, 100)
    assert sum(len(lease.jobs) for lease in found.leases) == 2
