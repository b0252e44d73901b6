"""Rows that jqd did not write: whoever meets one goes on without it, shows it as failed, and can delete it."""

from collections.abc import Awaitable, Callable

import msgspec
import pytest
import redis

from jqd.domain.job import Fate, Job, State, Wanted
from jqd.store import Hold, NameWanted, Page, StoreConfig
from jqd.store.views import ROW_BYTES_MAX
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.contract.bench import StoreBench, outcome
from tests.contract.change import push_named
from tests.contract.lent import handed
from tests.harness.recount import miscounted
from tests.store.counting import mirror
from tests.store.test_faults import KEYS

BAD = b"\x00garbage\xff"


def plant(client: "redis.Redis", job: Job, name: str = "jobs", row: bytes = BAD) -> None:
    client.hset(KEYS[name], job.id, row)


async def listed(bench: StoreBench, state: State | None = None) -> Page:
    return await bench.store.list_jobs(state, None, None, 100, "")


async def delete(bench: StoreBench, *jobs: Job) -> None:
    ids = [job.id for job in jobs]
    assert sorted(await bench.store.delete_dead(ids)) == sorted(ids)


def check(client: "redis.Redis") -> None:
    assert miscounted(mirror(client, KEYS), KEYS) is None


async def test_a_claim_lays_it_among_the_failed_with_its_name_and_the_beginning_of_its_bytes(
    bench: StoreBench, client: "redis.Redis"
) -> None:
    await bench.store.look(fresh=True)
    good, bad = await bench.push("acme\x1fmail"), await bench.push("acme\x1fmail")
    plant(client, bad, row=BAD + bytes(5_000))
    (held,) = await bench.claim(await bench.join(), "acme\x1fmail")
    assert held.job == good
    check(client)
    assert (await bench.store.stats())[:5] == (0, 0, 1, 0, 1)
    view = await bench.view(bad)
    assert (view.jobtype, view.state, view.attempts) == ("acme\x1fmail", State.FAILED, 0)
    (end,) = view.history
    assert end.reason == "unreadable"
    assert end.message.startswith("UNREADABLE: the key {jqd:0}:jobs holds something")
    assert msgspec.msgpack.decode(end.error) == (BAD + bytes(ROW_BYTES_MAX))[:ROW_BYTES_MAX]
    assert [one.state for one in (await listed(bench)).jobs] == [State.FAILED, State.RUNNING]
    assert "}:jobs holds something" in str(bench.store.burial.complaint)
    await delete(bench, bad)
    check(client)
    assert (await bench.store.stats()).counts.failed == 0


# Of which jobtype it is stands nowhere else, nor whether it failed.
WRONGLY_COUNTED = [
    ("jobs", "has_a_date"),
    ("jobs", "runs"),
    ("tries", "has_a_date"),
    ("tries", "waits"),
    ("tries", "waits_in_a_page"),
]


async def waits(bench: StoreBench) -> Job:
    return (await prepared(bench, 1))[0]


async def waits_in_a_page(bench: StoreBench) -> Job:
    return (await prepared(bench, 300))[250]


async def has_a_date(bench: StoreBench) -> Job:
    return await bench.push(eligible_at_ms=bench.clock.wall_ms() + 5_000)


async def has_failed(bench: StoreBench) -> Job:
    return await ended(bench, Fate.RETRY)


async def runs(bench: StoreBench) -> Job:
    job = await bench.push()
    await bench.claim_one(await bench.join())
    return job


async def succeeded(bench: StoreBench) -> Job:
    return await ended(bench, Fate.SUCCEEDED)


async def failed(bench: StoreBench) -> Job:
    return await ended(bench, Fate.DEAD)


async def ended(bench: StoreBench, fate: Fate) -> Job:
    job = await bench.push()
    await bench.settle(outcome(await bench.claim_one(await bench.join()), fate))
    return job


async def prepared(bench: StoreBench, number: int) -> list[Job]:
    jobs = [bench.make("mail", priority=at % 2) for at in range(number)]
    await bench.add(*jobs)
    return jobs


@pytest.mark.parametrize("name", ["jobs", "tries", "outcome", "generation", "result", "logs"])
@pytest.mark.parametrize("place", [waits, waits_in_a_page, has_a_date, has_failed, runs, succeeded, failed])
async def test_one_bad_row_of_any_kind_stops_no_look_and_can_be_deleted(
    bench: StoreBench, client: "redis.Redis", name: str, place: Callable[[StoreBench], Awaitable[Job]]
) -> None:
    await bench.store.look(fresh=True)
    bad, other = await place(bench), await bench.push("other")
    plant(client, bad, name)
    before = await bench.view(bad)
    assert other.id in {view.id for view in (await listed(bench)).jobs}
    for state in State:
        await listed(bench, state)
    owner = await bench.join()
    await bench.store.list_types()
    if name == "jobs" and place in (waits, waits_in_a_page, has_a_date, has_failed):
        assert (before.state, before.history[-1].reason) == (State.FAILED, "unreadable")
        assert before.history[-1].error == b"\xc0", "whose it is nobody knows"
        await delete(bench, bad)
    else:
        await bench.store.release_sysid(owner)
        owner = await bench.join()
        for held in await bench.claim(owner, "mail", 1_000):
            if held.job.id == bad.id:
                await bench.settle(outcome(held, Fate.DEAD))
        if (await bench.view(bad)).state.is_final:
            await delete(bench, bad)
    if (name, place.__name__) not in WRONGLY_COUNTED:
        check(client)
    assert await bench.store.get_job(bad.id) is None or place is has_a_date


async def test_a_look_at_a_server_that_takes_no_writes_shows_it_all_the_same(
    bench: StoreBench, client: "redis.Redis"
) -> None:
    await bench.store.look(fresh=True)
    good, bad = await bench.push(), await bench.push()
    plant(client, bad)
    client.config_set("min-replicas-to-write", 1)
    try:
        views = (await listed(bench)).jobs
    finally:
        client.config_set("min-replicas-to-write", 0)
    assert [(view.id, view.state) for view in views] == [(bad.id, State.FAILED), (good.id, State.WAITING)]
    assert await bench.state(bad) is State.FAILED
    check(client)


async def test_what_a_worker_holds_is_over_when_it_cannot_be_read(bench: StoreBench, client: "redis.Redis") -> None:
    await bench.store.look(fresh=True)
    good, bad = await bench.push(), await bench.push()
    held = await bench.claim(await bench.join())
    await bench.settle(*map(handed, held))
    plant(client, bad)
    one, other = await bench.store.touch([(each.job.id, each.fence) for each in held])
    assert (one.hold, other.hold, other.held) == (Hold.STANDS, Hold.OVER, None)
    assert (await bench.view(bad)).state is State.FAILED
    assert await bench.state(good) is State.RUNNING
    await delete(bench, bad)


@pytest.mark.parametrize(
    "name", ["jobs", "tries", "outcome", "generation", "result", "logs", "leases", "names", "counts"]
)
@pytest.mark.parametrize(
    "row",
    [BAD, b"", b"x", b"\xdc\xff\xff", b"C\xff", b"G5:\xff", b"X\xff", b"E?", b"5:6", b"\x97\x01\xa1a\xff", b"9" * 40],
)
async def test_no_call_stops_at_rubbish_in_every_row_of_one_kind(name: str, row: bytes) -> None:
    clock = ManualClock()
    store = FakeStore(clock, StoreConfig(url="redis://fake"))
    await store.look(fresh=True)
    bench = StoreBench(store, clock)
    owner, named = await bench.join(), await push_named(bench)
    jobs = [await bench.push() for _ in range(4)]
    held = await bench.claim(owner, limit=3)
    await bench.settle(handed(held[1]), outcome(held[0], Fate.RETRY, log="said"))
    await store.touch([(held[1].job.id, held[1].fence)], progress=b"\x01")
    await bench.settle(outcome(held[2], Fate.SUCCEEDED, keep_result=True, result=b"\x05"))
    await bench.cancel(held[1].job.id)
    rows = store.server.keyspace.keys[store.keys[name].encode()]
    assert isinstance(rows, dict)
    rows.update(dict.fromkeys(rows, row))
    for job in (*jobs, named):
        await store.get_job(job.id)
    assert len((await store.list_jobs(None, None, None, 100, "")).jobs) >= 4
    await store.list_types()
    await store.stats()
    await store.resolve(named.name)
    await store.reserve_names([NameWanted(named.name, bench.make().id, "d", False)])
    await store.get_waiting_jobtypes([Wanted()], 9)
    await store.touch([(held[1].job.id, held[1].fence)])
    await bench.push()
    await bench.claim(owner)
    await store.promote(9)
    await bench.members(owner)
    await bench.settle(outcome(held[1], Fate.DEAD))
    await store.purge(9)
    await store.queue_place(jobs[3].id)
    await store.delete_dead([job.id for job in jobs])
