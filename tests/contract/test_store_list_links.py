"""Jobs around a job: who is found from it, the nearest first, and in how many calls."""

from collections.abc import Sequence
from typing import Any

import pytest

from jqd.domain.errors import StoreUnsettled
from jqd.domain.flow import AFTER_MAX, BLOCKED_MS, Flow
from jqd.domain.job import State
from jqd.store import NameWanted, codec
from jqd.store.links import WatchPair
from tests.contract.bench import StoreBench
from tests.contract.test_store_links import blocked


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    await store_bench.store.look(fresh=True)
    return store_bench


async def links(bench: StoreBench, given: Sequence[str], **more: Any) -> list[str]:
    """The ids of what is told of these, "" for what is not here."""
    return [row.job.id if row else "" for row in await bench.store.list_links(given, 9, **more)]


async def test_what_is_found_from_a_job_is_told_behind_it_the_nearest_first(store_bench: StoreBench) -> None:
    """A chain whose jobs name their parents by id and by own id in turn."""
    bench, chain = store_bench, [store_bench.make(name="own/0")]
    for step in range(1, 6):
        flow = Flow(after=(f"own/{step - 1}" if step % 2 else chain[-1].id,))
        chain.append(bench.make("sum", flow=flow, eligible_at_ms=BLOCKED_MS, name=f"own/{step}"))
    ids = [job.id for job in chain]
    await bench.store.reserve_names([NameWanted(job.name, job.id, "d", False) for job in chain])
    await bench.add(*chain)
    await bench.store.watch_parents([WatchPair(child, "", ids[at], "") for at, child in enumerate(ids[1:])])
    assert await links(bench, [ids[2]]) == [ids[2]]
    assert await links(bench, ["=own/2", "=own/none", "none"]) == [ids[2], "", ""]
    assert await links(bench, [ids[2]], around_max=2) == [ids[2], ids[3], ids[1]]
    assert await links(bench, [ids[2]], around_max=9, known=[ids[3]]) == [ids[2], ids[1], ids[0]]
    assert await links(bench, ["=own/0", "none"], around_max=9) == [ids[0], "", *ids[1:]]
    assert await bench.store.unfinished(["=own/1", "=own/none", ids[2]]) == ["=own/1", ids[2]]


async def test_no_more_are_found_than_are_asked_for_of_a_chain_of_followers(store_bench: StoreBench) -> None:
    bench, chain = store_bench, [store_bench.make()]
    for _ in range(20):
        chain.append(bench.make(flow=Flow(parent=chain[-1].id)))
    await bench.add(*chain)
    ids = [job.id for job in chain][::-1]
    assert await links(bench, [ids[0]], around_max=9) == ids[:10]
    assert await links(bench, [ids[0], ids[10]], around_max=3) == [ids[0], ids[10], ids[1], ids[11], ids[2]]
    assert await links(bench, [ids[0]], around_max=99) == ids


async def test_a_parent_that_is_no_text_stands_in_a_row_that_cannot_be_read(store_bench: StoreBench) -> None:
    bench, good = store_bench, await store_bench.push()
    job = bench.make("sum", flow=Flow(after=("zz", good.id)), eligible_at_ms=BLOCKED_MS)
    await bench.add(job)
    row, text, number = codec.encode_job(job), b"\xa2zz", b"\xcd\x00\x2a"
    assert row.count(text) == 1
    assert bench.recount is not None
    bench.recount.spoil(job.id, row.replace(text, number))
    rows = await bench.store.list_links([job.id], 9, around_max=9)
    assert [(row.job.id, row.job.jobtype, row.state) for row in rows if row] == [
        (job.id, "", State.FAILED),
        (good.id, "mail", State.WAITING),
    ]
    assert "holds something" in str(bench.store.burial.complaint)


async def test_of_very_many_links_one_call_tells_some_jobs_and_the_next_the_others(store_bench: StoreBench) -> None:
    bench = store_bench
    wide = [blocked(bench, *([bench.make()] * AFTER_MAX)) for _ in range(3)]
    await bench.add(*wide)
    ids = [job.id for job in wide]
    assert await links(bench, ids) == ids
    assert await links(bench, ids, links=AFTER_MAX - 1) == ids[:1]
    assert await links(bench, ids, links=AFTER_MAX) == ids[:2]


async def test_an_own_id_may_be_in_a_journal_only_until_the_store_is_settled(store_bench: StoreBench) -> None:
    await store_bench.store.reserve_sysid("one", True, through=False)
    with pytest.raises(StoreUnsettled):
        await store_bench.store.list_links(["=own"], 9)
    assert await links(store_bench, ["none"]) == [""]
