"""Quotas: how much a tenant may push, by each limit; what others push costs it nothing."""

from typing import Any

import pytest
import trio
import trio.testing

from jqd.domain.errors import JournalRefused, StoreAway
from jqd.domain.job import Fate
from jqd.tenants.quotas import BURST_S, Quotas
from tests.api.charged import ACME, OTHER, push, put
from tests.api.edge import JSON
from tests.api.whole import Whole


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def test_a_rate_holds_over_time_and_names_itself(edge):
    await put(edge, rate=10)
    assert (await push(edge, 49)).status == 201, "what was saved up"
    assert [(await push(edge)).status for _ in range(2)] == [201, 201]
    over = await push(edge)
    assert (over.status, over.headers["retry-after"]) == (429, "1")
    assert "the quota of tenant 'acme' is spent, rate: 10 a second" in over.body["detail"]
    assert (await push(edge, who=OTHER)).status == 201
    assert (await push(edge, who=None)).status == 201
    edge.clock.advance(0.2)
    assert (await push(edge, 100)).status == 201, "a batch is taken whole"
    taken, refused = 0, await push(edge)
    assert (refused.status, refused.headers["retry-after"]) == (429, "10")
    for _ in range(100):
        edge.clock.advance(1)
        while (await push(edge)).status == 201:
            taken += 1
    assert abs(taken - (100 * 10 - 100)) <= 11, "all together so many a second"
    for who in (ACME, None):
        again = await edge.call("POST", "/job", {"name": "mail", "argument": 1}, headers=who or {})
        assert again.status == (429 if who else 201), "on every surface"
        assert again.headers.get("retry-after") == ("1" if who else None)
    assert BURST_S * 10 == 50


async def test_a_daemon_takes_its_share_of_a_rate(edge):
    await put(edge, rate=10)
    edge.workers.place = lambda machine: (1, 5)
    assert (await push(edge, 10)).status == 201
    told = [(await push(edge)).status for _ in range(2)]
    assert told == [201, 429]
    edge.clock.advance(1)
    assert [(await push(edge)).status for _ in range(3)] == [201, 201, 429]


@pytest.mark.parametrize("limit", [{"rate": 10}, {"bytes": 1_000}, {"queued": 60}])
async def test_what_was_not_taken_costs_nothing(edge, limit):
    """Ten times over what there is: the same again, another job under an id that is taken, and a disk that refuses."""
    await put(edge, **limit)
    known: dict[str, Any] = {"job_id": "order-7", "argument": "x" * 400}
    assert (await push(edge, **known)).status == 201
    for _ in range(60):
        assert (await push(edge, **known)).status == 200
        assert (await push(edge, job_id="order-7", argument="y" * 400)).status == 409
    edge.journal.refuse = JournalRefused("the disk is full", full=True)
    for _ in range(60):
        assert (await push(edge, argument="x" * 400)).status == 507
    edge.journal.refuse = None
    mixed = [{"name": "mail", "argument": "x" * 400, **named} for named in ({}, {"job_id": "order-7"}, {"job_id": "b"})]
    for _ in range(3):
        told = await edge.call("POST", "/v1/jobs", mixed, accept=JSON, headers=ACME)
        assert told.status == 201, told.body
    assert (await push(edge, 40)).status == 201


@pytest.mark.parametrize("limit", [{"rate": 10}, {"bytes": 5_000}])
@pytest.mark.parametrize("how", ["debounce", "change"])
async def test_a_job_that_is_changed_again_and_again_costs_what_is_written(edge, limit, how):
    """A duplicate that puts its job off gave back its charge, and a change had none: both write the whole job."""
    first: dict[str, Any] = {"unique": "k", "while": "waiting", "debounce": 60}
    job_id = (await push(edge, **first)).body["job_id"]
    await edge.apply()
    await put(edge, **limit, queued=1 if how == "change" else 2)  # changes make no jobs more
    edge.clock.advance(9)
    told = []
    for _ in range(70):
        if how == "change":
            path, argument = f"/v1/jobs/{job_id}", {"argument": "x" * 400}
            told.append((await edge.call("PATCH", path, argument, accept=JSON, headers=ACME)).status)
        else:
            told.append((await push(edge, **first, argument="x" * 400)).status)
        await edge.apply()
    assert set(told) == {200, 429}, told
    assert 45 < told.count(200) < 65, told


@pytest.mark.parametrize("limit", [{"rate": 10}, {"queued": 50}])
async def test_pushes_beside_each_other_are_not_more_than_one_after_another(edge, limit):
    await put(edge, **limit)
    told: list[int] = []

    async def one(number: int) -> None:
        told.append((await push(edge, job_id=f"order-{number}")).status)

    edge.journal.hold = hold = trio.Event()
    async with trio.open_nursery() as nursery:
        # Numbers of jobs are looked at meanwhile, and none of these is in the store.
        for turn, seconds in enumerate((0, 3, 3)):
            edge.clock.advance(seconds)
            for number in range(100):
                nursery.start_soon(one, 100 * turn + number)
            await trio.testing.wait_all_tasks_blocked()
        hold.set()
    assert (len(told), {*told}) == (300, {201, 429})
    assert told.count(201) <= (50 if "queued" in limit else 3 + 50 + 60)


async def test_who_is_refused_for_what_is_only_reserved_comes_again_in_a_moment(edge):
    """It may be a repetition, which costs nothing in the end."""
    await put(edge, rate=10)
    edge.journal.hold = hold = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(push, edge, 1_000)
        await trio.testing.wait_all_tasks_blocked()
        for taken, wait in ((False, "1"), (True, "96")):
            if taken:
                hold.set()
                await trio.testing.wait_all_tasks_blocked()
            over = await push(edge)
            assert (over.status, over.headers["retry-after"]) == (429, wait)


async def test_a_push_that_waits_for_the_store_does_not_count_there_and_here(edge, monkeypatch):
    await put(edge, queued=10)
    hold, told = trio.Event(), []

    async def caught_up(*_: object) -> bool:
        await hold.wait()
        return True

    async def one() -> None:
        told.append(await edge.call("POST", "/v1/jobs?ack=store", [{"name": "mail"}] * 6, headers=ACME))

    monkeypatch.setattr(edge.control, "wait_caught_up", caught_up)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one)
        await trio.testing.wait_all_tasks_blocked()
        await edge.apply()
        for _ in range(2):  # what was pushed in the second before a look may not have been in the store yet
            edge.clock.advance(2)
            assert (await push(edge, 5)).status == 429
        edge.clock.advance(2)
        assert (await push(edge, 4)).status == 201, "six are there"
        hold.set()
    assert (told[0].status, (await push(edge)).status) == (201, 429)


async def test_bytes_count_as_they_are_pushed(edge):
    await put(edge, bytes=1000)
    assert (await push(edge, argument="x" * 4_990)).status == 201
    assert (await push(edge)).status == 429
    edge.clock.advance(1)
    assert (await push(edge)).status == 201


@pytest.mark.parametrize("limit", ["queued", "in_flight"])
async def test_numbers_of_jobs_are_those_of_the_store_and_what_came_since(edge, limit):
    await put(edge, **{limit: 10})
    assert (await push(edge, 6, delay=600)).status == 201
    assert (await push(edge, 5)).status == 429, "those are not in the store yet"
    assert (await push(edge, 4)).status == 201
    await edge.apply()
    for _ in range(3):
        edge.clock.advance(2)
        over = await push(edge)
        assert (over.status, f"{limit}: 10 jobs" in over.body["detail"]) == (429, True)
    held = await edge.claim("acme\x1fmail")
    edge.clock.advance(2)
    assert len(held) == 4
    assert (await push(edge)).status == (201 if limit == "queued" else 429), "what runs waits no more"
    assert (await push(edge, 20, who=OTHER)).status == 201


@pytest.mark.parametrize("way", ["DELETE", "retry"])
async def test_who_has_too_many_dead_jobs_pushes_no_more_until_somebody_deals_with_them(edge, way):
    await put(edge, dead=3)
    for taken in range(3):
        edge.clock.advance(2)
        assert (await push(edge, job_id=f"order-{taken}")).status == 201, "they have ended well or not yet"
        await edge.apply()
        (held,) = await edge.claim("acme\x1fmail")
        await edge.end(held, Fate.FAILED if taken else Fate.DEAD)
    edge.clock.advance(2)
    over = await push(edge)
    assert (over.status, over.headers["retry-after"]) == (429, "6")
    assert "dead: 3 jobs that failed and are kept; retry or delete them" in over.body["detail"]
    assert (await push(edge, who=OTHER)).status == 201
    path = f"/v1/jobs/order-1{'/retry' if way == 'retry' else '?purge=1'}"
    dealt = await edge.call("POST" if way == "retry" else way, path, headers=ACME)
    assert dealt.status in (200, 204)
    await edge.apply()
    edge.clock.advance(2)
    assert (await push(edge)).status == 201


async def test_while_the_store_is_away_what_it_told_last_counts(edge):
    await put(edge, queued=3)
    assert (await push(edge, 2)).status == 201
    edge.whole._caller.away = "unplugged"
    edge.clock.advance(60)
    assert (await push(edge)).status == 201, "pushes need no store"
    assert (await push(edge)).status == 429


async def test_a_quota_is_said_shown_and_deleted_by_who_is_master_of_all(edge):
    await put(edge, rate=1.5, queued=3)
    rows = (await edge.call("GET", "/v1/quotas", accept=JSON)).body["quotas"]
    assert rows == [(await edge.call("GET", "/v1/quotas/acme", accept=JSON)).body]
    for method, path, body in (
        ("PUT", "/v1/quotas/acme", {"rate": 9}),
        ("DELETE", "/v1/quotas/acme", None),
    ):
        assert (await edge.call(method, path, body, headers=ACME)).status == 403, "its own is not for it to change"
    wrong: tuple[dict[str, float], ...] = ({}, {"rate": 0}, {"rate": 1e-320}, {"queued": 0}, {"speed": 1})
    for limits in wrong:
        assert (await edge.call("PUT", "/v1/quotas/acme", limits)).status == 422
    assert (await edge.call("PUT", "/v1/quotas/ACME", {"rate": 1})).status == 422
    for status in (204, 404):
        assert (await edge.call("DELETE", "/v1/quotas/acme")).status == status
    assert (await push(edge, 100)).status == 201


async def test_a_quota_that_is_deleted_while_it_is_looked_at_bounds_nothing(edge, monkeypatch):
    await put(edge, queued=1)
    store, services = edge.api._parts.services.store, edge.api._parts.services
    real = store.list_types

    async def gone() -> Any:
        services.feature(Quotas).known.clear()
        return await real()

    monkeypatch.setattr(type(store), "list_types", lambda *_, **__: gone())
    assert (await push(edge, 3)).status == 201


async def expect_taken(edge: Whole, jobs: int) -> None:
    """As many as the quota allows; and once they are in a hand there is room for as many."""
    assert jobs == 10
    await edge.apply()
    assert len(await edge.claim("acme\x1fmail")) == jobs
    edge.clock.advance(1.1)
    assert (await push(edge, jobs)).status == 201


async def test_what_is_not_in_the_store_yet_counts_however_often_the_store_is_looked_at(edge):
    """A backlog after an outage, or a barrier: the store answers, and has none of what was pushed."""
    await put(edge, queued=10)
    taken = 0
    for _ in range(30):
        while (await push(edge)).status == 201:
            taken += 1
        edge.clock.advance(1.1)
    await expect_taken(edge, taken)


async def test_what_is_not_on_disk_yet_counts_however_often_the_store_is_looked_at(edge):
    """Who waits for no sync is told before it: what he pushed lies behind all that a store can have."""
    await put(edge, queued=10)
    await edge.apply()  # a lane that holds nothing more is said to be read up to what is on disk
    taken = 0
    for _ in range(30):
        while (await edge.call("POST", "/v1/jobs?ack=memory", {"name": "mail"}, headers=ACME)).status < 300:
            taken += 1
        edge.clock.advance(1.1)
    await expect_taken(edge, taken)


@pytest.mark.parametrize("why", ["slow", "away"])
async def test_what_does_not_answer_in_time_keeps_no_tenant_from_pushing_whose_jobs_end(
    edge, monkeypatch, why, autojump_clock
):
    """So many jobtypes of somebody else that a look takes long, or one partition of two away."""
    await put(edge, queued=10)
    services = edge.api._parts.services
    real = services.store.list_types

    async def list_types(_: object, number: int, **__: object) -> Any:
        if why == "slow":
            await trio.sleep(0.6)
        elif number == 1:
            raise StoreAway("it is away")
        return await real()

    monkeypatch.setattr(type(services.store), "list_types", list_types)
    if why == "away":
        services.partitions = 2
        monkeypatch.setattr(type(services), "partitions_of", lambda _, job_ids: [0] * len(job_ids))
    for number in range(40):
        told = await push(edge)
        assert told.status == 201, (number, told.body)
        await edge.apply()
        (held,) = await edge.claim("acme\x1fmail")
        await edge.end(held, Fate.SUCCEEDED)
        edge.clock.advance(5)
        await trio.sleep(5)
    said = services.feature(Quotas).complaints()
    assert [("partition 1 of the store" in one, "it is away" in one) for one in said] == [(True, True)] * (
        why == "away"
    )
    if why == "away":
        monkeypatch.setattr(type(services), "partitions_of", lambda _, job_ids: [1] * len(job_ids))
        for _ in range(10):
            assert (await push(edge)).status == 201
            edge.clock.advance(5)
        assert (await push(edge)).status == 429, "what goes there counts until it tells"


async def test_a_mistake_in_a_look_ends_no_daemon_and_is_said(edge, monkeypatch):
    """It is a task of its own: what it raised would end the whole process."""
    await put(edge, queued=10)
    services = edge.api._parts.services

    async def list_types(*_: object, **__: object) -> Any:
        await trio.lowlevel.checkpoint()
        raise LookupError("no such row")

    monkeypatch.setattr(type(services.store), "list_types", list_types)
    assert (await push(edge)).status == 201
    edge.clock.advance(61)
    assert (await push(edge)).status == 201
    (said,) = services.feature(Quotas).complaints()
    assert "LookupError('no such row')" in said
