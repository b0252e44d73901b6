"""One claim of very many queues, priorities and buckets: a script must not end after it has begun to write."""

from tests.contract.bench import StoreBench
from tests.contract.test_store_limits import KEYED, claim, item, rule

WORDS = 8_000  # more of them end a script of either server


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
