"""Idempotency-Key while something goes wrong: many at once, a disk or a store stands still, a client leaves."""

import pytest
import trio
import trio.testing

from jqd.domain.errors import JournalRefused, StoreAway
from jqd.domain.record import Lane
from jqd.store import StoreConfig
from tests.api.keyed import MANY, ONE, arguments, push
from tests.api.keyed import edge as edge  # the fixture


@pytest.mark.parametrize(("query", "away"), [("", False), ("", True), ("?atomic=1", False)], ids=["", "away", "atomic"])
async def test_of_a_request_whose_key_was_given_away_while_the_disk_stood_still_nothing_runs(
    edge, query, away, monkeypatch
):
    """Its reservation ran out meanwhile, and another request has the key. `away`: so is the store when it is to
    confirm."""
    sync, confirm = edge.journal.wsync, edge.whole.confirm_names

    async def gone(*_):
        monkeypatch.setattr(edge.whole, "confirm_names", confirm)
        raise StoreAway("gone for a moment")

    async def slow(position, *, shielded=False):
        edge.journal.wsync = sync
        edge.clock.advance(StoreConfig().name_reserve_s + 1)
        assert (await push(edge, [ONE, ONE])).status == 201
        if away:
            monkeypatch.setattr(edge.whole, "confirm_names", gone)
        await sync(position, shielded=shielded)

    edge.journal.wsync = slow
    assert [(await push(edge, MANY, query=query)).status, (await push(edge, MANY)).status] == [503, 422]
    assert (await push(edge, MANY, "k-2")).status == 201, "as it says"
    assert await arguments(edge) == [0, 1, 1, 1, 2, 3], "none of it twice"


@pytest.mark.parametrize("at", ["write", "wsync"])
@pytest.mark.parametrize("query", ["", "?atomic=1"], ids=["", "atomic"])
async def test_who_lost_a_key_and_whose_cancel_the_disk_refuses_is_told_to_take_another(edge, query, at, monkeypatch):
    """He was told to send the same again, and that was a 422 each time: the key is another request's by then."""
    sync, call = edge.journal.wsync, getattr(edge.journal, at)

    def refuse(first, *rest, **how):
        if edge.journal.frames[-1][0] is Lane.CANCELS or first is Lane.CANCELS:
            raise JournalRefused("the disk is full", full=True)
        return call(first, *rest, **how)

    async def slow(position, *, shielded=False):
        edge.journal.wsync = sync
        edge.clock.advance(StoreConfig().name_reserve_s + 1)
        assert (await push(edge, [ONE, ONE])).status == 201
        monkeypatch.setattr(edge.journal, at, refuse)
        await sync(position, shielded=shielded)

    edge.journal.wsync = slow
    told = await push(edge, MANY, query=query)
    monkeypatch.setattr(edge.journal, "wsync", sync)
    monkeypatch.setattr(edge.journal, "write", type(edge.journal).write.__get__(edge.journal))
    why = told.body["detail"]
    assert (told.status, "Send it under a new key" in why, "the same" in why) == (503, True, False)
    assert "could not be taken back (the disk is full) and may run" in why
    assert [(await push(edge, MANY)).status, (await push(edge, MANY, "k-2", query)).status] == [422, 201]
    assert {0, 1, 2, 3} <= {*await arguments(edge)}, "what may run twice is said to"


@pytest.mark.parametrize("refused", [False, True], ids=["", "and the disk refuses the first"])
@pytest.mark.parametrize("key", ["k-1", None], ids=["key", "job_id"])
async def test_the_same_request_many_times_at_once_is_taken_told_and_charged_once(edge, key, refused):
    jobs = [{**job, **({} if key else {"job_id": f"own-{place}"})} for place, job in enumerate(MANY)]
    headers, told = {"jqd-tenant": "acme", **({"idempotency-key": key} if key else {})}, []
    assert (await edge.call("PUT", "/v1/quotas/acme", {"queued": 100})).status == 200

    sync, hold = edge.journal.wsync, trio.Event()

    async def slow(position, *, shielded=False):
        edge.journal.wsync = sync
        await hold.wait()
        if refused:
            raise JournalRefused("the disk failed for a moment", full=False)
        await sync(position, shielded=shielded)

    async def one():
        told.append(await edge.call("POST", "/v1/jobs", jobs, headers=headers))

    edge.journal.wsync = slow
    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(one)
        await trio.testing.wait_all_tasks_blocked()
        written = [lane for lane, _, _ in edge.journal.frames].count(Lane.CHANGES)
        hold.set()
    assert written == 1, "the others wait for it"
    assert sorted(answer.status for answer in told) == [200] * (15 - refused) + [201] + [503] * refused
    assert len({tuple(answer.body["job_ids"]) for answer in told if answer.status < 300}) == 1
    left = [await edge.call("POST", "/v1/jobs", [ONE] * jobs, headers={"jqd-tenant": "acme"}) for jobs in (96, 1)]
    assert [answer.status for answer in left] == [201, 429], "four were paid for"


async def test_while_the_store_stands_still_one_of_a_key_is_taken_and_others_come_again(
    edge, autojump_clock, monkeypatch
):
    """Each waited 5 s for the one before it and asked beside it then: two were written, paid for and told 201."""
    reserve, told = edge.whole.reserve_names, list[int]()

    async def slow(rows):
        with trio.move_on_after(5):
            await trio.sleep_until(began_s + 8.5)
            return await reserve(rows)
        raise StoreAway("it does not answer")

    async def one(at_s):
        await trio.sleep_until(began_s + at_s)
        told.append((await push(edge, MANY)).status)

    monkeypatch.setattr(edge.whole, "reserve_names", slow)
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        for at_s in range(6):
            nursery.start_soon(one, at_s)
    assert (len(told), told.count(503), told.count(201), {*told} - {503, 201, 429, 200}) == (6, 1, 1, set())
    assert sum(count for lane, count, _ in edge.journal.frames if lane is Lane.CHANGES) == len(MANY)
    assert (await push(edge, MANY)).status == 200
    assert await arguments(edge) == [0, 1, 2, 3]


@pytest.mark.parametrize("key", ["k-1", None], ids=["key", "job_id"])
async def test_who_hangs_up_while_names_are_confirmed_has_pushed_all(edge, key, monkeypatch):
    """At the end of a stop what answers him is cancelled: between two frames, too."""
    confirm, scope = edge.whole.confirm_names, trio.CancelScope()

    async def slow(*asked):
        scope.cancel()
        await trio.lowlevel.checkpoint()
        return await confirm(*asked)

    body = MANY if key else [{**MANY[0], "job_id": "own"}, *MANY[1:]]
    with monkeypatch.context() as patch, scope:
        patch.setattr(edge.whole, "confirm_names", slow)
        await edge.call("POST", "/v1/jobs", body, headers={"idempotency-key": key} if key else {})
    await edge.apply()
    assert (scope.cancel_called, await arguments(edge)) == (True, [0, 1, 2, 3])


async def test_a_repeat_does_not_wait_for_the_store_with_the_first(edge, autojump_clock):
    """Its names are confirmed when it is on the disk: who repeats it meanwhile is told so, and charged nothing."""
    told = []

    async def behind(lane, position, timeout_s, where):
        await trio.sleep(timeout_s)
        return False

    async def one():
        headers = {"idempotency-key": "k-1", "jqd-tenant": "acme"}
        told.append(await edge.call("POST", "/v1/jobs?ack=store", MANY, headers=headers))

    edge.control.wait_caught_up = behind
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(one)
    assert sorted(answer.status for answer in told) == [200, 200, 200, 201]
    assert sum(count for lane, count, _ in edge.journal.frames if lane is Lane.CHANGES) == len(MANY)
