"""Children of a parent that ended are told a few at a time, and those that cannot be told now are passed over."""

from tests.contract.bench import StoreBench
from tests.contract.test_store_links import REST_S, ask, blocked, end

FEW = 2


async def test_children_that_could_not_be_told_are_passed_over_until_all_were_tried(store_bench: StoreBench) -> None:
    store = store_bench.store
    await store.look(fresh=True)
    parent = store_bench.make()
    children = [blocked(store_bench, parent) for _ in range(2 * FEW + 1)]
    await store_bench.add(parent, *children)
    for child in children:
        await ask(store_bench, child)
    asked = await store.take_links(100, REST_S)
    await store.drop_links({each.entry: () for each in asked.blocked})
    await end(store_bench)
    ids = sorted(child.id for child in children)

    async def take(passed: int) -> tuple[list[str], int]:
        (given,) = (await store.take_links(9, REST_S, children_max=FEW, passed={f"e{parent.id}": passed})).ended
        return given.children, given.children_before

    async def drop(told: list[str], failed: int) -> list[str]:
        entry, stage = f"e{parent.id}", 1
        return await store.drop_links({entry: told}, 0, {entry: stage}, {entry: failed})

    assert await take(0) == (ids[:FEW], 0)
    assert await drop([], FEW) == [f"e{parent.id}"]
    assert await take(FEW) == (ids[FEW : 2 * FEW], FEW)
    assert await drop(ids[FEW : 2 * FEW], FEW) == [f"e{parent.id}"]
    assert await take(FEW) == (ids[2 * FEW :], FEW), "those that were told are no more among them"
    assert await drop([], FEW + 1) == []
    assert (await store.take_links(9, REST_S)).ended == [], "it rests"
    store_bench.clock.advance(REST_S)
    assert await take(FEW + 1) == (ids[:FEW], 0), "all were passed over: from the first again"
    assert await drop(ids, 0) == []
    store_bench.clock.advance(REST_S)
    assert (await store.take_links(9, REST_S)).ended == []


async def test_an_end_concerns_nobody_where_all_children_wait_for_nothing(store_bench: StoreBench) -> None:
    """Else each step of a chain had the loop look for children that are to be told."""
    store = store_bench.store
    await store.look(fresh=True)
    parent, follower = await store_bench.push(), await store_bench.push("other")
    pair = [(parent.id, follower.id)]
    await store.drop_outbox([], children=pair)
    assert (await store.take_links(9, REST_S)).linked == 0
    child = blocked(store_bench, parent)
    await store_bench.add(child)
    await ask(store_bench, child)
    await store.drop_outbox([], children=pair)
    asked = await store.take_links(9, REST_S)
    assert asked.linked > 0, "one waits, and what comes behind it changes nothing of that"
    await store.drop_links({each.entry: () for each in asked.blocked})
    await end(store_bench)
    (told,) = (await store.take_links(9, REST_S)).ended
    assert told.children == [child.id]
