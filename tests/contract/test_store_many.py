"""One script for very many queues, priorities and buckets: it ends after it has begun to write, and soon."""

import msgspec
import pytest

from jqd.domain.job import Change, ChangeKind, Fate, State
from jqd.testing import store as memory
from jqd.testing.clock import ManualClock
from tests.contract.bench import StoreBench, outcome
from tests.contract.limited import KEYED, claim, item, setting

WORDS = 8_000  # more of them end a script of either server


async def test_a_claim_spends_thousands_of_buckets(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    settings, jobs = 20, WORDS // 20 // 2 + 50
    for number in range(settings):
        limits = {"rate": {"limit": 100, "per_s": 60.0}}
        await setting(store_bench, f"c{number}", revision=number + 1, digest=0 if number else 7, **limits)
    queues = ("".join(item(f"c{number}", key=f"={job}") for number in range(settings)) for job in range(jobs))
    await store_bench.add(*(store_bench.make(queue=KEYED + queue) for queue in queues))
    held = await claim(store_bench, owner, jobs)
    assert len(held) == len(await store_bench.store.get_held(owner)) == jobs


async def test_what_is_let_go_at_once_is_bounded_over_all_queues_and_the_rest_follows_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most, few = "starts.let_go_left() return 2000 end", "starts.let_go_left() return 3 end"
    monkeypatch.setattr(memory, "LIBRARY", memory.LIBRARY.changed("shared/limits", most, few))
    clock = ManualClock()
    bench = StoreBench(memory.FakeStore(clock), clock)
    await bench.store.look(fresh=True)
    owner = await bench.join()
    await setting(bench, "stop", until_ms=2**52)
    jobtypes = ("mail", "post")
    limited = [
        bench.make(jobtype, queue=KEYED + item("stop", key=key), priority=priority)
        for priority in range(3)
        for key in ("=a", "=b")
        for jobtype in jobtypes
    ]
    await bench.add(*limited)

    async def ready() -> int:
        return sum([len(await claim(bench, owner, 500, jobtype, version="")) for jobtype in jobtypes])

    for _ in range(4):
        assert [await claim(bench, owner, jobtype=jobtype) for jobtype in jobtypes] == [[], []]
    await setting(bench, "stop", 2)
    let_go = []
    for _ in range(5):
        await bench.store.promote(500)
        let_go.append(await ready())
        clock.advance(0.1)
    assert let_go == [3, 3, 3, 3, 0], "one queue in each script, of one bucket or of another"


async def test_rows_of_jobs_that_are_deleted_are_read_once_and_some_megabytes_at_a_time(
    store_bench: StoreBench,
) -> None:
    """Each was read four times, however many bytes: 500 of 500 kB held the server up for 284 ms."""
    large = msgspec.msgpack.encode(bytes(500_000))
    await store_bench.add(store_bench.make(name="own", change=Change(1, 1, ChangeKind.NEW, "d")))
    for _ in range(2):
        await store_bench.add(*(store_bench.make("large", argument=large) for _ in range(24)))
        while held := await store_bench.claim(await store_bench.join(), "large"):
            await store_bench.settle(*(outcome(each, Fate.SUCCEEDED) for each in held))
    jobs = [
        view.id for view in (await store_bench.store.list_jobs(State.SUCCEEDED, None, None, 99, "", row_bytes=1)).jobs
    ]
    assert len(jobs) == 48
    assert sorted(await store_bench.store.delete_dead(jobs[:24])) == sorted(jobs[:24]), "in some calls"
    store_bench.clock.advance(1e6)
    await store_bench.join()
    purged = [(await store_bench.store.purge(100)).rows for _ in range(4)]
    assert max(purged) <= 16
    assert sum(purged) == 24
