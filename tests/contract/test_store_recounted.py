"""Limits in a store that forgot what counts against them, or never heard that it is over."""

import msgspec
import pytest
from msgspec import Raw

from jqd.domain.job import Fate, Held
from jqd.domain.record import Lane
from jqd.domain.settings import Setting
from tests.contract.bench import JOURNAL, StoreBench, ids, outcome
from tests.contract.limited import DIGEST, KEYED, item, setting, taken


async def test_holds_count_again_after_the_store_forgot_them(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    here, early = await bench.push(queue=KEYED + item("r")), bench.make(queue=KEYED + item("r"))
    waits = await bench.push(queue=KEYED + item("r"))
    await setting(bench, "r", concurrency=2)
    assert await bench.store.reassert(owner, {here.id: 5, early.id: 6}) == []
    assert await taken(bench, owner) == [], "one in a hand has not come: nobody knows its limits"
    await bench.add(early)
    assert await taken(bench, owner) == []
    await bench.cancel(early.id)
    await bench.store.release_jobs(owner, {early.id: 6})
    assert ids(await taken(bench, owner)) == [waits.id]


@pytest.mark.parametrize("again", [(), (20.0,), (5.0,)], ids=str)
async def test_what_was_spent_before_the_store_forgot_counts_as_all(
    store_bench: StoreBench, again: tuple[float, ...]
) -> None:
    """Also where the rate is said once more after that with other numbers: for its window of then, or a shorter one."""
    bench, owner = store_bench, await store_bench.join()
    first_ms, body = bench.clock.wall_ms() - 60_000, {"digest": DIGEST, "rate": {"limit": 9, "per_s": 20.0}}
    said = Setting("constraint", "r", 1, first_ms, Raw(msgspec.msgpack.encode(body)))
    await bench.store.apply_settings(JOURNAL, 0, 100, [said])
    await bench.push(queue=KEYED + item("r"))
    identity = (await bench.store.look(fresh=False)).identity
    await bench.store.new_life(identity)
    await bench.store.look(fresh=False)
    owner = await bench.join()
    for number, per_s in enumerate(again, 1):
        raw = Raw(msgspec.msgpack.encode(body | {"rated_ms": first_ms, "rate": {"limit": 9, "per_s": per_s}}))
        said = Setting("constraint", "r", 1 + number, bench.clock.wall_ms() + 1, raw)
        await bench.store.apply_settings(JOURNAL, 100 * number, 100 * number + 100, [said])
    assert await taken(bench, owner) == []
    bench.clock.advance(min((20.0, *again)) + 0.1)
    await bench.store.promote(10)
    assert len(await taken(bench, owner)) == 1


async def test_an_emptied_store_that_is_told_what_was_said_one_after_the_other_goes_by_the_last(
    store_bench: StoreBench,
) -> None:
    """The rate had a window of 20 s long ago, and one of an hour when all was lost."""
    bench = store_bench
    first_ms = bench.clock.wall_ms() - 60_000
    bench.wipe()
    await bench.store.look(fresh=False)
    bench.at = dict.fromkeys(Lane, 0)
    owner = await bench.join()
    for number, per_s in enumerate((20.0, 3_600.0)):
        body = {"digest": DIGEST, "rate": {"limit": 9, "per_s": per_s}, "rated_ms": first_ms}
        said = Setting("constraint", "r", 1 + number, first_ms + number, Raw(msgspec.msgpack.encode(body)))
        await bench.store.apply_settings(JOURNAL, 100 * number, 100 * number + 100, [said])
    await bench.push(queue=KEYED + item("r"))
    bench.clock.advance(20.1)
    await bench.store.promote(10)
    assert await taken(bench, owner) == []


async def test_after_a_wipe_who_is_in_a_hand_counts_also_when_the_rule_comes_after_the_job(
    store_bench: StoreBench,
) -> None:
    bench, owner = store_bench, await store_bench.join()
    job = bench.make(queue=KEYED + item("one"))
    await bench.store.reassert(owner, {job.id: 5})
    await bench.add(job)
    await setting(bench, "one", concurrency=1)
    for _ in range(2):
        await bench.push(queue=KEYED + item("one"))
    assert await taken(bench, owner) == []
    await bench.settle(outcome(Held(job, 5, 1), Fate.SUCCEEDED))
    assert len(await taken(bench, owner)) == 1


async def test_after_a_wipe_a_hold_that_ends_before_others_wait_is_counted_no_more(store_bench: StoreBench) -> None:
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "two", concurrency=2)
    job = bench.make(queue=KEYED + item("two"))
    await bench.store.reassert(owner, {job.id: 5})
    await bench.add(job)
    await bench.settle(outcome(Held(job, 5, 1), Fate.SUCCEEDED))
    for _ in range(3):
        await bench.push(queue=KEYED + item("two"))
    assert len(await taken(bench, owner)) == 2


async def test_a_hold_that_nobody_has_is_found_however_many_come_and_go(store_bench: StoreBench) -> None:
    """Whatever forgot it: it takes a place for a minute or two, and not for ever."""
    bench, owner = store_bench, await store_bench.join()
    await setting(bench, "r", concurrency=2)
    assert bench.recount
    bench.recount.hold("r\x1d", "nobody")
    await bench.add(*(bench.make(queue=KEYED + item("r")) for _ in range(150)))
    together = list[int]()
    for _ in range(100):
        held = await taken(bench, owner)
        together.append(len(held))
        await taken(bench, owner)  # and finds no place: the others wait
        bench.clock.advance(1)
        await bench.settle(*(outcome(one, Fate.SUCCEEDED) for one in held))
        await bench.store.promote(10)
    assert together[:50] == [1] * 50
    assert together[-1] == 2, "it was found"
