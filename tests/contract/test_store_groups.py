"""Groups: places for jobs that are being pushed, members, and their end."""

from jqd.store.links import GROUP_MAX, MEMBERS, PLACE_S, Closing, Joined
from tests.contract.bench import StoreBench


async def test_a_member_has_a_place_before_it_has_an_id(store_bench: StoreBench) -> None:
    store = store_bench.store
    assert await store.get_group("g") is None
    assert await store.join_group("g", ["t1", "t2"]) is Joined.MEMBERS
    group = await store.get_group("g")
    assert group is not None
    assert (group.closed_at_ms, group.job_ids) == (0, [])
    assert await store.confirm_members("g", [("t1", "one"), ("t2", "")]) == []
    assert await store.close_group("g") == Closing(0, ["one"]), "the other was not pushed"
    assert await store.join_group("g", ["t3"]) is Joined.CLOSED
    closed = await store.get_group("g")
    assert closed is not None
    assert closed.closed_at_ms == store_bench.clock.wall_ms()
    assert closed.job_ids == ["one"]


async def test_a_group_that_is_closed_waits_for_those_on_their_way(store_bench: StoreBench) -> None:
    store = store_bench.store
    await store.join_group("g", ["t1", "t2"])
    assert await store.close_group("g") == Closing(2, [])
    assert await store.confirm_members("g", [("t1", "one")]) == []
    assert await store.confirm_members("g", [("t1", "one")]) == [], "a lost answer"
    assert await store.close_group("g") == Closing(1, ["one"])
    store_bench.clock.advance(PLACE_S + 1)
    assert await store.close_group("g") == Closing(0, ["one"])
    assert await store.confirm_members("g", [("t2", "two")]) == ["two"], "it took too long"
    assert await store.close_group("g") == Closing(0, ["one"])


async def test_a_journal_tells_of_a_member_while_nothing_waits_for_a_closed_group_yet(store_bench: StoreBench) -> None:
    """Who had the place died, or was cut off, before it told what became of it."""
    store = store_bench.store
    await store.join_group("g", ["t1"])
    assert await store.close_group("g") == Closing(1, [])
    assert await store.confirm_members("g", [("", "one")]) == []
    assert await store.close_group("g") == Closing(1, ["one"])
    store_bench.clock.advance(PLACE_S + 1)
    assert await store.close_group("g") == Closing(0, ["one"])
    assert await store.confirm_members("g", [("", "two")]) == ["two"], "by now a job may wait for it"


async def test_a_store_that_forgot_a_group_learns_its_members(store_bench: StoreBench) -> None:
    store = store_bench.store
    assert await store.confirm_members("g", [("", "one"), ("", "two")]) == []
    assert await store.confirm_members("g", [("", "one"), ("", "two")]) == []
    closing = await store.close_group("g")
    assert (closing.unconfirmed, sorted(closing.job_ids)) == (0, ["one", "two"])
    assert await store.confirm_members("g", [("", "two"), ("", "three")]) == ["three"]


async def test_members_are_told_some_at_a_time(store_bench: StoreBench) -> None:
    store, ids = store_bench.store, [f"m{at:04}" for at in range(2 * MEMBERS + 1)]
    await store.confirm_members("g", [("", each) for each in ids])
    await store.close_group("g")
    whole = await store.get_group("g")
    assert whole is not None
    assert (sorted(whole.job_ids), whole.end) == (ids, 0)
    told, end = list[str](), 0
    while not told or end:
        some = await store.get_group("g", 1_000, end)
        assert some is not None
        assert 0 < len(some.job_ids) <= 1_000
        told, end = [*told, *some.job_ids], some.end
    assert told == whole.job_ids


async def test_a_group_has_so_many_members(store_bench: StoreBench) -> None:
    store = store_bench.store
    assert await store.join_group("g", [f"t{at}" for at in range(GROUP_MAX)]) is Joined.MEMBERS
    assert await store.join_group("g", ["more"]) is Joined.FULL
    await store.confirm_members("g", [("t0", "")])
    assert await store.join_group("g", ["more"]) is Joined.MEMBERS
    assert await store.join_group("g", ["still"]) is Joined.FULL
    store_bench.clock.advance(PLACE_S + 1)
    assert await store.join_group("g", ["still"]) is Joined.MEMBERS, "pushes that died fill it no longer"


async def test_an_empty_group_is_closed(store_bench: StoreBench) -> None:
    assert await store_bench.store.close_group("g") == Closing(0, [])
    group = await store_bench.store.get_group("g")
    assert group is not None
    assert group.closed_at_ms
