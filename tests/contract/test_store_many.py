"""One claim of very many queues, priorities and buckets: a script must not end after it has begun to write."""

from jqd.words.job import Wanted
from tests.contract.bench import StoreBench
from tests.contract.test_store_limits import KEYED, claim, item, rule

WORDS = 8_000  # more of them end a script of either server


async def test_a_claim_parks_queues_of_thousands_of_priorities(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    await rule(store_bench, "one", digest=3, concurrency=1)
    await rule(store_bench, "each", revision=2, digest=4, concurrency=100)
    priorities = 900
    keys = WORDS // priorities + 2
    for key in range(keys):
        queue = KEYED + item("one") + item("each", key=f"={key}")
        jobs = [store_bench.make(queue=queue, priority=priority) for priority in range(priorities)]
        for at in range(0, priorities, 450):
            await store_bench.add(*jobs[at : at + 450])
    (one,) = await claim(store_bench, owner, 10)
    assert await store_bench.store.get_held(owner) == {one.job.id: one.fence}
    assert await store_bench.store.get_waiting_jobtypes([Wanted(None)], 10) == [], "all others are parked"


async def test_a_claim_spends_thousands_of_buckets(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    rules, jobs = 20, WORDS // 20 // 2 + 50
    for number in range(rules):
        limits = {"rate": {"limit": 100, "per_s": 60.0}}
        await rule(store_bench, f"c{number}", revision=number + 1, digest=0 if number else 7, **limits)
    queues = ("".join(item(f"c{number}", key=f"={job}") for number in range(rules)) for job in range(jobs))
    await store_bench.add(*(store_bench.make(queue=KEYED + queue) for queue in queues))
    held = await claim(store_bench, owner, jobs)
    assert len(held) == len(await store_bench.store.get_held(owner)) == jobs
