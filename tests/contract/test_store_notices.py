"""What notices are made of: jobs that failed, in their order, and one state for all daemons."""

import pytest

from jqd.domain.errors import StoreChanged
from jqd.domain.job import Fate
from tests.contract.bench import StoreBench, outcome


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    return store_bench


async def fail(bench: StoreBench, count: int) -> list[str]:
    """Jobs that fail in one call."""
    await bench.add(*(bench.make(argument=b"\xa6secret") for _ in range(count)))
    held = list(await bench.claim(await bench.join(), limit=count))
    await bench.settle(*(outcome(one, Fate.DEAD, message=f"error {n}") for n, one in enumerate(held)))
    return [one.job.id for one in held]


async def test_failures_come_in_their_order_and_none_twice(store_bench: StoreBench) -> None:
    first = await fail(store_bench, 150)
    assert (await store_bench.store.list_failed(0)).jobs == [], "more may come in this millisecond"
    store_bench.clock.advance(0.001)
    second = await fail(store_bench, 2)
    store_bench.clock.advance(1)
    page = await store_bench.store.list_failed(0)
    assert [one.job.id for one in page.jobs] == sorted(first)[:100]
    assert page.now_ms == store_bench.clock.wall_ms()
    assert page.last is not None
    assert {(one.job.jobtype, one.job.argument) for one in page.jobs} == {("mail", b"\xc0")}, "without arguments"
    rest = await store_bench.store.list_failed(*page.last)
    assert [one.job.id for one in rest.jobs] == sorted(first)[100:] + sorted(second)
    assert rest.last is None
    at_ms = rest.jobs[-1].at_ms
    assert [one.job.id for one in (await store_bench.store.list_failed(at_ms)).jobs] == sorted(second)
    assert (await store_bench.store.list_failed(at_ms + 1)).jobs == []


async def test_the_state_is_exchanged_by_one_of_two(store_bench: StoreBench) -> None:
    one, other = store_bench.store, store_bench.other
    await other.look(fresh=False)
    assert (await one.swap_notices(0))[1:] == (0, None), "there is none yet"
    begun = await one.swap_notices(0, b"\x00one\n")
    assert begun.state is None
    assert (await other.swap_notices(0, b"two"))[1:] == (begun.version, b"\x00one\n")
    assert (await other.swap_notices(begun.version))[1:] == (begun.version, None)
    after = await other.swap_notices(begun.version, b"two")
    assert after.version > begun.version
    assert (await one.swap_notices(begun.version, b"three"))[1:] == (after.version, b"two")
    assert after.now_ms == store_bench.clock.wall_ms()


async def test_an_emptied_store_has_none_and_no_number_comes_again(store_bench: StoreBench) -> None:
    begun = await store_bench.store.swap_notices(0, b"one")
    store_bench.wipe()
    with pytest.raises(StoreChanged):
        await store_bench.store.swap_notices(begun.version, b"two")
    await store_bench.store.look(fresh=False)
    assert (await store_bench.store.swap_notices(begun.version))[1:] == (0, b"")
    store_bench.clock.advance(1)
    assert (await store_bench.store.swap_notices(0, b"anew")).version > begun.version
