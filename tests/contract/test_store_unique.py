"""Unique keys: who has one, and when it is free."""

import random

import pytest
from msgspec.structs import replace

from jqd.domain.flow import Flow, Until
from jqd.domain.job import ChangeKind, Fate, Held, Job
from jqd.store.links import UNIQUE_S, UniqueWanted
from tests.contract.bench import StoreBench, changed, outcome

STEPS = 300


def wanted(token: str, job_id: str = "", until: str = "ended", key: str = "k") -> UniqueWanted:
    return UniqueWanted(key, token, until, job_id)


async def pushed(bench: StoreBench, token: str, until: Until = "ended") -> Job:
    """A job with the key."""
    job = bench.make(flow=Flow(unique="k", until=until))
    assert await bench.store.reserve_unique([wanted(token, until=until)]) == [token]
    assert await bench.store.confirm_unique([wanted(token, job.id, until)]) == [job.id]
    await bench.add(job)
    return job


async def test_a_key_is_one_job_s_until_it_has_ended(store_bench: StoreBench) -> None:
    store, owner = store_bench.store, await store_bench.join("one")
    job = await pushed(store_bench, "t1")
    assert await store.reserve_unique([wanted("t2")]) == [job.id]
    (held,) = await store_bench.claim(owner)
    assert await store.reserve_unique([wanted("t2")]) == [job.id], "it runs"
    await store_bench.settle(outcome(held, Fate.SUCCEEDED))
    assert await store.reserve_unique([wanted("t2")]) == ["t2"]
    assert await store.reserve_unique([wanted("t3")]) == ["~t2"], "a push is under way"
    assert await store.reserve_unique([wanted("t2")]) == ["t2"], "a lost answer"


async def test_a_key_of_a_job_that_waits_is_free_when_it_begins(store_bench: StoreBench) -> None:
    store, owner = store_bench.store, await store_bench.join("one")
    job = await pushed(store_bench, "t1", "waiting")
    assert await store.reserve_unique([wanted("t2", until="ended")]) == [job.id]
    await store_bench.claim(owner)
    assert await store.reserve_unique([wanted("t2")]) == ["t2"], "the first said how long it has it"


async def test_a_push_that_fails_gives_the_key_back(store_bench: StoreBench) -> None:
    store = store_bench.store
    await store.reserve_unique([wanted("t1")])
    assert await store.confirm_unique([wanted("t1")]) == [""]
    assert await store.reserve_unique([wanted("t2")]) == ["t2"]
    store_bench.clock.advance(UNIQUE_S)
    assert await store.reserve_unique([wanted("t3")]) == ["t3"], "its daemon died"
    assert await store.confirm_unique([wanted("t2", "two")]) == ["t3"], "it is too late"
    assert await store.confirm_unique([wanted("t2")]) == ["t3"]


async def test_a_job_on_its_way_has_its_key(store_bench: StoreBench) -> None:
    store, job = store_bench.store, store_bench.make()
    await store.reserve_unique([wanted("t1")])
    await store.confirm_unique([wanted("t1", job.id)])
    store_bench.clock.advance(UNIQUE_S - 1)
    assert await store.reserve_unique([wanted("t2")]) == [job.id]
    store_bench.clock.advance(1)
    assert await store.reserve_unique([wanted("t2")]) == ["t2"], "its daemon's disk is lost"


@pytest.mark.parametrize("is_journaled", [False, True])
async def test_a_key_that_was_given_while_the_clock_was_ahead_is_free_again(
    store_bench: StoreBench, is_journaled: bool
) -> None:
    """The push that got it died, or its job was lost: pushes were duplicates of nothing until the clock got there."""
    store, job, day_ms = store_bench.store, store_bench.make(), 86_400_000
    store_bench.clock.set_wall_ms(store_bench.clock.wall_ms() + day_ms)
    await store.reserve_unique([wanted("t1")])
    if is_journaled:
        await store.confirm_unique([wanted("t1", job.id)])
    store_bench.clock.set_wall_ms(store_bench.clock.wall_ms() - 1_000)
    taken = [job.id] if is_journaled else ["~t1"]
    assert await store.reserve_unique([wanted("t2")]) == taken, "by a second that nobody noticed"
    store_bench.clock.set_wall_ms(store_bench.clock.wall_ms() - day_ms)
    assert await store.reserve_unique([wanted("t2")]) == ["t2"]


async def test_a_store_that_forgot_learns_who_has_the_key(store_bench: StoreBench) -> None:
    store = store_bench.store
    one, two = (store_bench.make(flow=Flow(unique="k")) for _ in range(2))
    await store_bench.add(two)
    await store_bench.add(one)
    assert await store.reserve_unique([wanted("t")]) == [two.id], "the later one has it"
    await store.reserve_unique([wanted(one.id, key="other")])
    three = await store_bench.push(flow=Flow(unique="other"))
    assert await store.reserve_unique([wanted("t", key="other")]) == [three.id], "its daemon died"


async def test_a_copy_of_a_deleted_job_gives_it_no_key(store_bench: StoreBench) -> None:
    """The next push was its duplicate for ten minutes: acknowledged, and run by nobody."""
    store, owner = store_bench.store, await store_bench.join("one")
    job, edited = (store_bench.make(flow=Flow(unique=key)) for key in ("k", "e"))
    await store_bench.add(job, changed(edited, 7, ChangeKind.NEW))
    for held in await store_bench.claim(owner):
        await store_bench.settle(outcome(held, Fate.DEAD))
    assert set(await store.delete_dead([job.id, edited.id])) == {job.id, edited.id}
    copies = [replace(one, copied=(0, 0)) for one in (job, changed(edited, 7, ChangeKind.NEW))]
    await store_bench.add(*copies)
    assert await store.reserve_unique([wanted("t"), wanted("t", key="e")]) == ["t", "t"]


async def test_a_journal_that_comes_late_has_the_key_of_its_push(store_bench: StoreBench) -> None:
    """The store was away when the key was to be confirmed, and the push was told that a repetition counts once."""
    store, token = store_bench.store, store_bench.ids.take(1).first
    job = store_bench.make(flow=Flow(unique="k"))
    await store.reserve_unique([wanted(token)])
    store_bench.clock.advance(UNIQUE_S - 1)
    assert await store.reserve_unique([wanted("again")]) == [f"~{token}"]
    await store_bench.add(job)
    assert await store.reserve_unique([wanted("again")]) == [job.id]


async def test_a_late_confirm_gives_no_key_to_a_job_that_is_deleted_already(store_bench: StoreBench) -> None:
    """Pushes of ten minutes were acknowledged as its duplicates, and run by nobody."""
    store, owner = store_bench.store, await store_bench.join("one")
    job = store_bench.make(flow=Flow(unique="k"))
    await store.reserve_unique([wanted("t1")])
    await store_bench.add(job)
    written = store_bench.written
    (held,) = await store_bench.claim(owner)
    await store_bench.settle(outcome(held, Fate.FAILED))
    assert await store.delete_dead([job.id]) == [job.id]
    assert await store.confirm_unique([wanted("t1", job.id)], written) == [job.id], "it was taken, and has run"
    assert await store.reserve_unique([wanted("t2")]) == ["t2"]
    assert await store.confirm_unique([wanted("t1", job.id)], written) == [job.id]
    assert await store.reserve_unique([wanted("t3")]) == ["~t2"], "another push has it"


async def test_a_late_confirm_leaves_the_key_of_a_job_that_is_here(store_bench: StoreBench) -> None:
    store, job = store_bench.store, store_bench.make(flow=Flow(unique="k"))
    await store.reserve_unique([wanted("t1")])
    await store_bench.add(job)
    written = store_bench.written
    assert await store.confirm_unique([wanted("t1", job.id)], written) == [job.id]
    assert await store.reserve_unique([wanted("t2")]) == [job.id]


async def test_a_confirm_ahead_of_the_lane_gives_the_key(store_bench: StoreBench) -> None:
    store, job = store_bench.store, store_bench.make(flow=Flow(unique="k"))
    await store_bench.push()
    journal_id, position = store_bench.written
    await store.reserve_unique([wanted("t1")])
    assert await store.confirm_unique([wanted("t1", job.id)], (journal_id, position + 1)) == [job.id]
    assert await store.reserve_unique([wanted("t2")]) == [job.id]


async def test_a_deleted_job_frees_its_key(store_bench: StoreBench) -> None:
    store, owner = store_bench.store, await store_bench.join("one")
    await pushed(store_bench, "t1")
    (held,) = await store_bench.claim(owner)
    await store_bench.settle(outcome(held, Fate.FAILED))
    assert await store.delete_dead([held.job.id]) == [held.job.id]
    assert await store.reserve_unique([wanted("t2")]) == ["t2"]


@pytest.mark.parametrize("seed", range(3))
async def test_no_two_jobs_of_one_key_ever_live(store_bench: StoreBench, seed: int) -> None:
    """Whatever is pushed, refused, begun, ended and cancelled, in whatever order."""
    source, bench, store = random.Random(seed), store_bench, store_bench.store
    owner = await bench.join("one")
    jobs, held, tokens = list[Job](), list[Held](), dict[str, Job]()
    for step in range(STEPS):
        what = source.choice(("push", "confirm", "confirm", "refuse", "claim", "end", "retry", "cancel", "late"))
        if what == "push":
            (given,) = await store.reserve_unique([wanted(f"t{step}")])
            if given == f"t{step}":
                tokens[given] = bench.make(flow=Flow(unique="k"))
        elif what in ("confirm", "refuse") and tokens:
            token, job = tokens.popitem()
            job_id = job.id if what == "confirm" else ""
            (has,) = await store.confirm_unique([wanted(token, job_id)])
            if job_id and has == job_id:
                await bench.add(job)
                jobs.append(job)
        elif what == "claim":
            held += await bench.claim(owner)
        elif what == "end" and held:
            await bench.settle(outcome(held.pop(), source.choice((Fate.SUCCEEDED, Fate.FAILED))))
        elif what == "retry" and held:
            await bench.settle(outcome(held.pop(), Fate.RETRY))
        elif what == "cancel" and jobs and jobs[-1].id not in {each.job.id for each in held}:
            await bench.cancel(jobs[-1].id)
        elif what == "late":
            bench.clock.advance(source.choice((1, UNIQUE_S)))
            await store.promote(10)
        views = [await bench.view(job) for job in jobs]
        living = [view.id for view in views if not view.state.is_final]
        assert len(living) <= 1, f"step {step}, {what}: {living}"
    assert len(jobs) > STEPS // 50
