"""Ended jobs that may not be deleted yet: they hide none that may, and cost no more than a look."""

from jqd.domain.job import Fate, Job
from jqd.store import Cleaned, Purged
from tests.contract.bench import StoreBench, outcome
from tests.contract.test_store_links import ask, blocked

MANY, BEHIND, STEP = 9, 3, 2


async def end_all(bench: StoreBench) -> None:
    """All that wait end, one after another."""
    owner = await bench.join()
    while some := await bench.claim(owner):
        for held in sorted(some, key=lambda held: held.job.id):
            await bench.settle(outcome(held, Fate.SUCCEEDED))
            bench.clock.advance(1)


async def owing(bench: StoreBench, argument: bytes = b"\x07") -> list[Job]:
    """Some that owe their end to a child, and ended before some that owe nobody."""
    owing = [bench.make(argument=argument) for _ in range(MANY)]
    child = blocked(bench, *owing)
    await bench.add(*owing, child)
    await ask(bench, child)
    await bench.add(*(bench.make() for _ in range(BEHIND)))
    await end_all(bench)
    return owing


async def test_jobs_that_owe_their_end_hide_none_from_a_purge(store_bench: StoreBench) -> None:
    """Each call looked at so many of them, and deleted none: that was all for five seconds."""
    stay = await owing(store_bench)
    store_bench.clock.advance(10 * 86_400)
    await store_bench.join()
    gone = calls = 0
    while gone < BEHIND:
        purged = await store_bench.store.purge(STEP)
        assert purged.rows or purged.moved, "there is more"
        gone, calls = gone + purged.rows, calls + 1
        store_bench.clock.advance(0.25)
    assert calls <= (MANY + BEHIND) // STEP + 1
    assert all([await store_bench.view(job) for job in stay])


async def test_kept_results_are_nothing_to_go_on_for(store_bench: StoreBench) -> None:
    """Once met they lie behind the date of their results: else each call would find the same."""
    await store_bench.add(*(store_bench.make(keep_result=True) for _ in range(8)))
    owner = await store_bench.join()
    for held in await store_bench.claim(owner):
        await store_bench.settle(outcome(held, Fate.SUCCEEDED, result=b"\x07", keep_result=True))
    found = [await store_bench.store.purge(100) for _ in range(6)]
    assert [one.rows for one in found] == [0] * 6, "five ended jobs are kept, and these for their results"
    assert sum(one.moved for one in found) == 8, "each is met once"
    assert found[3:] == [Purged(0, 0)] * 3


async def test_large_jobs_that_owe_their_end_are_looked_at_in_one_call(store_bench: StoreBench) -> None:
    """Their rows were read, so eight of half a megabyte were all of a call."""
    await owing(store_bench, b"\xc6\x00\x0f\x00\x00" + bytes(0xF0000))
    cleaned = await store_bench.store.clean_ended(store_bench.clock.wall_ms() + 1, 100)
    assert (cleaned.gone, cleaned.examined) == (BEHIND, MANY + BEHIND)


async def test_a_clean_looks_at_so_many_and_is_asked_to_go_on(store_bench: StoreBench) -> None:
    """One call of the service walked them all, however long that took."""
    await owing(store_bench)
    before_ms, told = store_bench.clock.wall_ms() + 60_000, list[Cleaned]()
    while not told or told[-1].examined:
        told.append(await store_bench.store.clean_ended(before_ms, STEP))
        before_ms = told[-1].before_ms
    assert max(one.examined for one in told) == STEP
    assert sum(one.gone for one in told) == BEHIND
    assert sum(one.examined for one in told) == MANY + BEHIND, "each once"
