"""What follows a job: left in the outbox by the outcome that counts, by no other, not lost with an emptied store."""

from typing import Any

import pytest

from jqd.domain.flow import Flow, as_text
from jqd.domain.job import ChangeKind, Fate, Held, Job, State, lease_claim
from jqd.domain.record import Lane
from tests.contract.bench import JOURNAL, StoreBench, changed, early, orders, outcome, outcome_of
from tests.contract.test_store_endings import forget

NEXT = b"\x91\xa4next"
OTHER = b"\x91\xa5other"


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    return store_bench


async def left(bench: StoreBench, **asked: Any) -> list[tuple[str, bytes]]:
    """What lies in the outbox: parents and what follows them."""
    entries = (await bench.store.get_outbox(100, 1 << 20, **asked)).entries
    return [(entry[:26].decode(), entry[27:]) for entry in entries]


async def begun(bench: StoreBench, **fields: Any) -> tuple[Job, Held]:
    job = await bench.push(**fields)
    return job, await bench.claim_one(await bench.join())


async def test_what_is_to_follow_a_job_is_kept_byte_for_byte(store_bench: StoreBench) -> None:
    """Its arguments may hold any bytes, and the functions of the store read the row that it stands in."""
    then = b"\xdc\x00\x01" + bytes(range(256))
    job, held = await begun(store_bench, flow=Flow(as_text(then), parent="p"))
    assert held.job.flow is not None
    assert held.job.flow.then == then
    (row,) = await store_bench.store.list_links([job.id], 9)
    assert row is not None
    assert (row.job.flow and row.job.flow.then, row.job.flow and row.job.flow.parent) == (then, "p")


@pytest.mark.parametrize("kept", [b"\x05", b"1", b""], ids=["a result", "an odd one", "none"])
async def test_a_success_leaves_them_and_its_result(store_bench: StoreBench, kept: bytes) -> None:
    job, held = await begun(store_bench, keep_result=bool(kept))
    won = outcome(held, Fate.SUCCEEDED, follows=NEXT, **({"result": kept} if kept else {}))
    at = store_bench.at[Lane.OUTCOMES]
    assert await store_bench.settle(won) == []
    again = await store_bench.store.apply_outcomes(JOURNAL, at, store_bench.at[Lane.OUTCOMES], [won])
    assert again is None, "its answer was lost"
    assert await left(store_bench) == [(job.id, NEXT)]
    view = await store_bench.view(job)
    assert (view.result, view.outcome and view.outcome.follows) == (kept or None, b"")
    assert await store_bench.settle(won) == [job.id], "told again"
    await store_bench.store.drop_outbox([b"%b %b" % (job.id.encode(), NEXT)])
    assert await store_bench.settle(won) == [job.id], "and again"
    assert await left(store_bench) == []


@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.DEAD, Fate.RETRY])
async def test_a_failure_leaves_none(store_bench: StoreBench, fate: Fate) -> None:
    _, held = await begun(store_bench)
    await store_bench.settle(outcome(held, fate, follows=NEXT))
    assert await left(store_bench) == []


async def test_a_content_that_was_replaced_while_it_ran_leaves_none(store_bench: StoreBench) -> None:
    job, held = await begun(store_bench)
    revision = await store_bench.store.reserve_change(job.id)
    await store_bench.add(changed(job, revision, ChangeKind.REPLACE))
    assert await store_bench.settle(outcome(held, Fate.SUCCEEDED, follows=NEXT)) == [job.id]
    assert (await left(store_bench), await store_bench.state(job)) == ([], State.WAITING)


async def test_of_two_attempts_that_succeed_the_first_told_leaves_them(store_bench: StoreBench) -> None:
    """The first one was given up, ran on, and is told late."""
    job, first = await begun(store_bench)
    await store_bench.settle(outcome(first, Fate.RETRY))
    second = await store_bench.claim_one(await store_bench.join("two"))
    assert await store_bench.settle(outcome(first, Fate.SUCCEEDED, follows=NEXT)) == []
    assert await store_bench.settle(outcome(second, Fate.SUCCEEDED, follows=OTHER)) == [job.id]
    assert await left(store_bench) == [(job.id, NEXT)]


async def test_a_success_that_beats_a_cancel_leaves_them(store_bench: StoreBench) -> None:
    job, held = await begun(store_bench)
    await store_bench.settle(outcome(held, Fate.RETRY))
    await store_bench.cancel(job.id)
    assert await store_bench.state(job) is State.CANCELLED
    assert await store_bench.settle(outcome(held, Fate.SUCCEEDED, follows=NEXT)) == []
    assert await left(store_bench) == [(job.id, NEXT)]


async def test_a_success_of_what_a_worker_holds_leaves_them(store_bench: StoreBench) -> None:
    job, held = await begun(store_bench)
    await store_bench.settle(lease_claim(held, worker="w", silence_s=5, started_at_ms=0))
    await store_bench.settle(outcome(held, Fate.SUCCEEDED, follows=NEXT))
    assert await left(store_bench) == [(job.id, NEXT)]


@pytest.mark.parametrize("in_hand", [True, False])
async def test_a_success_that_comes_before_its_job_leaves_them_once(store_bench: StoreBench, in_hand: bool) -> None:
    if in_hand:
        owner, job = await early(store_bench)
        won = outcome(Held(job, (await store_bench.store.get_held(owner))[job.id], 1), Fate.SUCCEEDED, follows=NEXT)
    else:
        job = store_bench.make()
        won = outcome(Held(job, 12345, 1), Fate.SUCCEEDED, follows=NEXT)
    assert await store_bench.settle(won) == []
    await store_bench.add(job)
    assert await store_bench.settle(outcome_of(job, Fate.SUCCEEDED)) == [job.id]
    assert await left(store_bench) == [(job.id, NEXT)]


async def test_an_emptied_store_gets_those_of_every_content_in_any_order(store_bench: StoreBench) -> None:
    owner, job = await store_bench.join(), await store_bench.push()
    records: list[tuple[str, Any]] = [("add", job)]
    for follows in NEXT, OTHER:
        if follows is OTHER:
            revision = await store_bench.store.reserve_change(job.id)
            records.append(("add", changed(job, revision, ChangeKind.RETRY)))
            await store_bench.add(records[-1][1])
        store_bench.clock.advance(1)
        won = outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED, follows=follows)
        records.append(("settle", won))
        await store_bench.settle(won)
    for order in orders(store_bench, records):
        await forget(store_bench)
        for method, record in order:
            await getattr(store_bench, method)(record)
        assert {follows for _, follows in await left(store_bench)} == {NEXT, OTHER}, order


async def test_what_waits_longest_is_given_first_in_answers_of_a_bounded_size(store_bench: StoreBench) -> None:
    owner = await store_bench.join()
    for number in range(12):
        await store_bench.push()
        won = outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED, follows=b"%02d" % number)
        await store_bench.settle(won)
        store_bench.clock.advance(1)
    assert [follows for _, follows in await left(store_bench)] == [b"%02d" % number for number in range(12)]
    assert [follows for _, follows in await left(store_bench, skip=10)] == [b"10", b"11"]
    assert [follows for _, follows in await left(store_bench, age_s=10.5)] == [b"00", b"01"]
    since_ms = store_bench.clock.wall_ms() - 3_000
    assert [follows for _, follows in await left(store_bench, since_ms=since_ms)] == [b"09", b"10", b"11"]
    assert [follows for _, follows in await left(store_bench, since_ms=since_ms, skip=1, age_s=1.5)] == [b"10"]
    assert await left(store_bench, since_ms=since_ms + 9_000) == await left(store_bench, skip=13) == []
    found = await store_bench.store.get_outbox(100, 50)
    assert (len(found.entries), found.now_ms - (found.oldest_ms or 0)) == (2, 12_000)
    assert len((await store_bench.store.get_outbox(11, 1 << 20)).entries) == 11
    assert (await store_bench.store.get_outbox(0, 1)).entries == []


async def shelved(bench: StoreBench, limit: int = 100, **asked: Any) -> tuple[str, list[bytes]]:
    tenant, entries = await bench.store.get_shelf(limit, 1 << 20, 1.0, **asked)
    return tenant, [entry[27:] for entry in entries]


async def test_what_waits_for_a_quota_lies_apart_and_is_tried_by_one_at_a_time(store_bench: StoreBench) -> None:
    store, owner = store_bench.store, await store_bench.join()
    for number in range(12):
        await store_bench.push()
        won = outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED, follows=b"%02d" % number)
        await store_bench.settle(won)
        store_bench.clock.advance(1)
    entries = (await store.get_outbox(100, 1 << 20)).entries
    assert (await store.list_shelves(9), await shelved(store_bench)) == ({}, ("", []))
    for tenant, its in (("b", entries[3:5]), ("acme", entries[1:3]), ("acme", entries[:2])):
        await store.put_off(tenant, its, 1.0)
    assert [follows for _, follows in await left(store_bench)] == [b"%02d" % number for number in range(5, 12)]
    shelves = await store.list_shelves(9)
    assert [shelves[tenant].entries for tenant in ("acme", "b")] == [3, 2]
    assert store_bench.clock.wall_ms() - shelves["acme"].since_ms == 12_000, "it is as old as it was"
    assert len(await store.list_shelves(1)) == 1
    assert await store.is_owed("b", entries[2:5]) == [False, True, True], "the first is on another's"
    assert await store.is_owed("b", entries[3:6]) == [True, True, True], "the last is in the outbox"
    assert await shelved(store_bench) == ("", []), "they rest"
    store_bench.clock.advance(1)
    first, second = await shelved(store_bench, 1), await shelved(store_bench, 1)
    assert sorted((first, second)) == [("acme", [b"00"]), ("b", [b"03"])], "what waits longest, of each"
    assert await shelved(store_bench) == ("", []), "one asks for all"
    assert await shelved(store_bench, tenant="acme", skip=1) == ("acme", [b"01", b"02"])
    await store.drop_outbox(entries[3:5], "b")
    assert (await shelved(store_bench, tenant="b"), [*await store.list_shelves(9)]) == (("b", []), ["acme"])
    store_bench.clock.set_wall_ms(store_bench.clock.wall_ms() - 3_600_000)
    assert (await shelved(store_bench, 1))[0] == "acme", "a clock that is set back"
    await store.put_off("acme", entries[3:5], 1.0)
    assert len(await left(store_bench)) == 7, "another daemon has pushed them meanwhile"
    assert (await store.list_shelves(9))["acme"].entries == 3


async def test_what_waits_for_something_else_goes_back_from_the_shelf_as_old_as_it_is(store_bench: StoreBench) -> None:
    store, owner = store_bench.store, await store_bench.join()
    for number in range(3):
        await store_bench.push()
        won = outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED, follows=b"%02d" % number)
        await store_bench.settle(won)
        store_bench.clock.advance(1)
    entries = (await store.get_outbox(100, 1 << 20)).entries
    await store.put_off("acme", entries[:2], 1.0)
    await store.put_back("acme", [])
    await store.put_back("acme", [entries[0], entries[2], b"dropped meanwhile"])
    assert [follows for _, follows in await left(store_bench, age_s=2.5)] == [b"00"]
    assert (await store.list_shelves(9))["acme"].entries == 1
    await store.put_back("acme", entries)
    assert [follows for _, follows in await left(store_bench)] == [b"00", b"01", b"02"]
    assert (await store.list_shelves(9), (await store.get_outbox(1, 1)).shelves) == ({}, 0)
