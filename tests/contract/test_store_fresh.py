"""New jobs under their pushers' own ids that come many in one call: each ends as it would alone."""

from typing import Any

import pytest

from jqd.domain.job import ChangeKind, Fate, Job, State
from jqd.domain.record import cancel_of
from jqd.store import NameJournaled, NameStanding, NameState, NameWanted
from tests.contract.bench import StoreBench, changed, outcome
from tests.contract.change import TTL_MS


@pytest.fixture
async def store_bench(store_bench: StoreBench) -> StoreBench:
    """A store that nobody ever used gives names at once."""
    await store_bench.store.look(fresh=True)
    return store_bench


async def named(bench: StoreBench, *names: str, digest: str = "d", **fields: Any) -> list[Job]:
    """Jobs whose names the store gave in one call; they are not applied."""
    jobs = [bench.make(name=name, **fields) for name in names]
    wanted = [NameWanted(job.name, job.id, digest, 0) for job in jobs]
    given = await bench.store.reserve_names(wanted)
    assert {one.state for one in given} == {NameState.NEW}
    assert len({one.revision for one in given}) == len(jobs), "each has a number of its own"
    return [changed(job, one.revision, ChangeKind.NEW, digest=digest) for job, one in zip(jobs, given, strict=True)]


def journaled(jobs: list[Job]) -> list[NameJournaled]:
    """What is told of them when they are in a journal."""
    return [NameJournaled(job.name, job.id, "d", job.change.revision) for job in jobs if job.change is not None]


@pytest.mark.parametrize("confirmed_first", [True, False])
async def test_all_wait_under_their_names(store_bench: StoreBench, confirmed_first: bool) -> None:
    jobs = await named(store_bench, "a", "b", "c")
    dated = await named(store_bench, "dated", eligible_at_ms=store_bench.clock.wall_ms() + 60_000)
    first = await named(store_bench, "first", priority=-1)
    dying = await named(store_bench, "dying", expires_at_ms=store_bench.clock.wall_ms() + 5_000)
    everybody = [*jobs, *dated, *first, *dying]
    if confirmed_first:
        stands = await store_bench.store.confirm_names(journaled(everybody))
        assert set(stands) == {NameStanding.STANDS}
    await store_bench.add(*everybody)
    assert set(await store_bench.store.confirm_names(journaled(everybody))) == {NameStanding.STANDS}
    assert [await store_bench.state(job) for job in (*jobs, *dated)] == [State.WAITING] * 3 + [State.SCHEDULED]
    again = await store_bench.store.reserve_names([NameWanted(job.name, "other", "d", 0) for job in everybody])
    assert [(one.state, one.job_id) for one in again] == [(NameState.DUPLICATE, job.id) for job in everybody]
    store_bench.clock.advance(10)
    owner = await store_bench.join()
    held = await store_bench.claim(owner)
    assert [each.job.id for each in held] == [first[0].id, *(job.id for job in jobs)], "what expired is not given"
    ends = [outcome(each, Fate.SUCCEEDED) for each in held]
    await store_bench.settle(*ends)
    assert {await store_bench.state(job) for job in jobs} == {State.SUCCEEDED}


async def test_what_came_before_some_of_them_is_met(store_bench: StoreBench) -> None:
    jobs = await named(store_bench, "a", "cancelled", "lost", "replaced", "e")
    _, cancelled, lost, replaced, _ = jobs
    assert cancelled.change is not None
    await store_bench.cancel(cancel_of(cancelled.id, cancelled.change.revision))
    store_bench.clock.advance(TTL_MS / 1000 + 1)
    (other,) = await named(store_bench, "lost", digest="other")
    later = await store_bench.store.reserve_change(replaced.id)
    await store_bench.add(changed(replaced, later, ChangeKind.REPLACE, digest="new"))
    await store_bench.add(*jobs)
    await store_bench.add(other)
    states = [await store_bench.state(job) for job in jobs]
    assert states == [State.WAITING, State.CANCELLED, State.CANCELLED, State.WAITING, State.WAITING]
    assert (await store_bench.view(replaced)).revision == later, "the later content stays"
    assert await store_bench.state(other) is State.WAITING
    assert lost.id != other.id


async def test_a_chain_that_ended_is_purged(store_bench: StoreBench) -> None:
    """A follower has a generation; that it is the parent of the next one keeps it for nobody."""
    (job,) = await named(store_bench, "parent.0")
    (child,) = await named(store_bench, "parent.0.0")
    await store_bench.add(job)
    owner = await store_bench.join()
    await store_bench.settle(outcome(await store_bench.claim_one(owner), Fate.SUCCEEDED))
    await store_bench.store.drop_outbox([], children=[(job.id, child.id)])
    await store_bench.add(child)
    store_bench.clock.advance(100 * 86_400)
    await store_bench.join()
    await store_bench.store.purge(100)
    await store_bench.push()  # its lane is behind that id no more
    assert await store_bench.store.get_job(job.id) is None
