"""What a job that waited for others gets when it goes on, and that nothing stands in its way for ever."""

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from jqd.chaining import release as release_module
from jqd.chaining.flows import OLD_MS, REST_S
from jqd.chaining.release import RELEASES, ReleaseLimits, ResultBudget, release
from jqd.domain.charge import FREE
from jqd.domain.errors import StoreUnsettled
from jqd.domain.flow import RESULTS_GONE, Flow
from jqd.domain.job import Fate, Held
from jqd.runner import Report
from jqd.service.edit import Journaled, Kind, _change
from jqd.service.outcome_batch import OutcomeAnswer, OutcomeBatch
from jqd.service.parents import CHECKED_MAX
from jqd.store import JobView, NameJournaled, NameWanted, Replace
from tests.api.fakes import outcome
from tests.api.whole import Whole
from tests.chaining.flow_room import one_round
from tests.chaining.released import edge, flows

__all__ = ["edge"]

PIECES = "x" * 300_000  # a result that lies in the store in pieces


async def settle(edge: Whole) -> None:
    """Let go on what waited."""
    loop = flows(edge)
    await edge.apply()
    for _ in range(50):
        if await one_round(loop):
            break
        await edge.apply()
    edge.clock.advance(1)
    await edge.whole.promote(100)


async def get(edge: Whole, job_id: str, tenant: str = "") -> dict[str, Any]:
    told = await edge.call("GET", f"/v1/jobs/{job_id}", headers={"jqd-tenant": tenant} if tenant else None)
    assert told.status == 200, told.body
    return dict(told.body)


async def succeeded(edge: Whole, result: Any, tenant: str = "") -> str:
    """A job that has ended with that result, which is kept."""
    headers = {"jqd-tenant": tenant} if tenant else None
    told = await edge.call("POST", "/v1/jobs", {"name": "made", "keep_result": True}, headers=headers)
    await edge.apply()
    (held,) = await edge.claim(f"{tenant}\x1fmade" if tenant else "made")
    packed = msgspec.msgpack.encode(result)
    await edge.end(held, Fate.SUCCEEDED, keep_result=True, result=packed)
    return str(told.body["job_id"])


async def _run_now(edge: Whole, job_id: str) -> list[Held]:
    assert (await edge.call("POST", f"/v1/jobs/{job_id}/run-now")).status == 200
    return await edge.claim("late")


async def test_a_large_result_that_fits_an_argument_is_given_to_the_child(edge: Whole) -> None:
    child = await edge.push(after=[await succeeded(edge, PIECES)], one_result=True)
    await settle(edge)
    (held,) = await edge.claim()
    assert held.job.id == child
    assert msgspec.msgpack.decode(held.job.argument) == PIECES


async def test_a_release_costs_two_calls_of_the_store_and_the_change(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of a chain waits for them."""
    child = await edge.push(argument=1, after=[await edge.ended(Fate.SUCCEEDED)])
    loop, asked = flows(edge), list[str]()
    await edge.apply()
    for name in ("get_job", "reserve_edit"):

        async def call(*args: Any, name: str, real: Any) -> Any:
            asked.append(name)
            return await real(*args)

        monkeypatch.setattr(edge.whole, name, partial(call, name=name, real=getattr(edge.whole, name)))
    await one_round(loop)
    assert asked == ["get_job", "reserve_edit"]
    await edge.apply()
    assert [held.job.id for held in await edge.claim()] == [child]


async def test_an_argument_that_results_cannot_be_put_into_is_refused_or_fails_the_job(edge: Whole) -> None:
    parent = await edge.push(name="late", delay=60)
    child = await edge.push(argument={"by": 1}, after=[parent], result_into="n")
    await settle(edge)
    refused = await edge.call("PATCH", f"/v1/jobs/{child}", {"argument": 5})
    assert refused.status == 422, refused.body
    assert "has to be a map" in refused.body["detail"]
    view: Any = await edge.whole.get_job(child)
    # Who changes it may see another content of it than the one that he changes.
    await _change(edge.api._parts.services, view, Kind.EDIT, {"argument": b"\x05"}, FREE, Journaled())
    (held,) = [one for one in await _run_now(edge, parent) if one.job.id == parent]
    await edge.end(held, Fate.SUCCEEDED)
    await settle(edge)
    told = await get(edge, child)
    assert (told["state"], told["message"].split(":")[0]) == ("failed", "PARENT_RESULTS_NO_FIELD")


async def test_a_child_with_a_date_fails_at_once_for_its_parent(edge: Whole) -> None:
    parent = await edge.ended(Fate.DEAD, name="mail")
    child = await edge.push(after=[parent], delay=3_600)
    await settle(edge)
    assert (await get(edge, child))["state"] == "failed"


async def test_another_tenants_result_is_no_result(edge: Whole) -> None:
    """Only so many parents are looked for when a job is pushed."""
    secret = await succeeded(edge, "secret", tenant="acme")
    mine = {"jqd-tenant": "other"}
    parents = [await succeeded(edge, 1, tenant="other") for _ in range(CHECKED_MAX)]
    pushed = await edge.call("POST", "/v1/jobs", {"name": "mail", "after": [*parents, secret]}, headers=mine)
    assert pushed.status == 201
    await settle(edge)
    (held,) = await edge.claim("other\x1fmail")
    assert msgspec.msgpack.decode(held.job.argument) == [1] * CHECKED_MAX + [None]


async def test_a_parent_that_a_journal_has_is_waited_for_however_long_it_takes(edge: Whole) -> None:
    """Its own id is confirmed once it is on a disk; its daemon may be away since."""
    job_id = "01K00000000000000000000000"
    (given,) = await edge.whole.reserve_names([NameWanted("late", job_id, "d", Replace.NONE)])
    await edge.whole.confirm_names([NameJournaled("late", job_id, "d", given.revision)])
    child = await edge.push(after=["late"])
    edge.clock.advance(OLD_MS)
    await settle(edge)
    assert (await get(edge, child))["state"] == "blocked"


async def test_what_is_noted_anew_while_it_is_done_is_done_again(edge: Whole) -> None:
    """Else a job would wait for ever for a parent whose partition forgot meanwhile who waits."""
    child = await edge.push(after=[await edge.push(name="late", delay=3_600)])
    due = await edge.whole.take_links(10, REST_S)
    assert [each.job.id for each in due.blocked] == [child]
    await edge.whole.ask_again(0, "another life")
    await edge.whole.drop_links({f"w{child}": ()}, due.rest_until_ms)
    again = await edge.whole.take_links(10, REST_S)
    assert [each.job.id for each in again.blocked] == [child]
    await edge.whole.drop_links({f"w{child}": ()}, again.rest_until_ms)
    edge.clock.advance(REST_S)
    assert (await edge.whole.take_links(10, REST_S)).blocked == []


async def test_a_late_success_of_a_job_that_the_store_forgot_is_asked_for_again(edge: Whole) -> None:
    """What is to follow it is known with the job."""
    services = edge.api._parts.services
    job_id = services.journal.ids.take(1).first
    edge.control.calm = False
    services.recent_outcomes.note([outcome(job_id, fence=5, fate=Fate.RETRY)], 99)
    batch = OutcomeBatch(services, points={0: 0})
    assert await batch._judge_late(0, OutcomeAnswer(job_id, Report(), 5), 5)
    assert isinstance(batch.answers[0], StoreUnsettled)
    assert batch.fresh == {}


async def test_a_token_for_some_jobs_gets_no_results_of_others(edge: Whole) -> None:
    secret = await succeeded(edge, "secret")
    parents = [await edge.ended(Fate.SUCCEEDED, name="mail") for _ in range(CHECKED_MAX)]
    made = await edge.call("POST", "/v1/tokens", {"role": "push", "scopes": ["mail"]})
    scoped = {"authorization": f"Bearer {made.body['token']}"}
    pushed = await edge.call("POST", "/v1/jobs", {"name": "mail", "after": [*parents, secret]}, headers=scoped)
    assert pushed.status == 422, pushed.body
    assert "there is no job" in pushed.body["detail"]


async def test_no_more_of_large_results_is_read_than_an_argument_takes(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All were read side by side before the first counted: 64 jobs with 32 parents each took 2 GiB, and failed."""
    child = await edge.push(after=[await succeeded(edge, PIECES) for _ in range(6)])
    await edge.apply()
    get_piece, pieces = edge.whole.get_piece, dict[str, int]()

    async def counted(large: Any, at: int) -> bytes | None:
        pieces[large.job_id] = large.bytes
        await trio.lowlevel.checkpoint()
        return await get_piece(large, at)

    monkeypatch.setattr(edge.whole, "get_piece", counted)
    await settle(edge)
    told = await get(edge, child)
    assert (told["state"], told["message"].split(":")[0]) == ("failed", "PARENT_RESULTS_TOO_LARGE")
    assert sum(pieces.values()) <= edge.api._parts.services.config.job_bytes_max


async def test_a_result_that_is_dropped_while_it_is_read_takes_no_room(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, there = [await succeeded(edge, PIECES) for _ in range(2)]
    services, room, flow = edge.api._parts.services, ResultBudget(400_000), Flow(after=(gone, there))
    views: list[Any] = await services.store.get_jobs([gone, there])
    with monkeypatch.context() as patched:
        patched.setattr(edge.whole, "get_piece", _no_piece)
        assert await release_module._result(services, views[0], views[0], flow, room) == RESULTS_GONE
    result = await release_module._result(services, views[1], views[0], flow, room)
    assert isinstance(result, bytes)
    assert msgspec.msgpack.decode(result) == PIECES


async def _no_piece(_: Any, __: int) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(("partitions", "at_once"), [(1, 32), (4, 8), (64, 1)])
async def test_jobs_that_are_let_go_on_share_one_bound(edge: Whole, partitions: int, at_once: int) -> None:
    services = replace(edge.api._parts.services, partitions=partitions)
    child = await edge.push(name="late", delay=60)
    room = services.feature(ReleaseLimits)
    limiter = room.limiter("release", RELEASES, services, child)
    assert limiter.total_tokens == at_once
    for _ in range(at_once):
        limiter.acquire_on_behalf_of_nowait(object())
    with trio.move_on_after(0) as scope:
        await release(services, child, "", "")
    assert scope.cancelled_caught, "it waits for its turn"


async def test_a_job_with_many_parents_and_one_with_few_read_their_results_in_turns(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of parents took hundreds of calls, and the results of two waited for all of them."""
    for limit in ("WHOLE_MAX", "SEVERAL", "PARENTS"):
        monkeypatch.setattr(release_module, limit, 1)
    parents = [await succeeded(edge, number) for number in range(6)]
    services = edge.api._parts.services
    (view,) = await services.store.get_jobs(parents[:1])
    assert isinstance(view, JobView)
    read: list[int] = []

    async def results(many: int) -> None:
        found = await release_module._results(services, view, Flow(after=tuple(parents[:many])), 1_000)
        assert len(found) == many
        read.append(many)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(results, 6)
        while services.feature(ReleaseLimits).limiter("results", 1, services, view.id).available_tokens:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(results, 2)
    assert read == [2, 6]


async def _replaced(edge: Whole, *after: str) -> None:
    child = {"name": "mail", "job_id": "child", "after": list(after), "replace": True}
    told = await edge.call("POST", "/v1/jobs", child)
    assert told.status in (200, 201), told.body
    await edge.apply()


async def test_a_child_that_is_replaced_waits_for_its_new_parents_whatever_becomes_of_the_old(edge: Whole) -> None:
    old, new = await edge.push(name="late"), await edge.push(name="later")
    await _replaced(edge, old)
    await settle(edge)
    await _replaced(edge, new)
    await settle(edge)
    (held,) = await edge.claim("late")
    await edge.end(held, Fate.SUCCEEDED)
    await settle(edge)
    assert (await get(edge, "child"))["state"] == "blocked"
    (held,) = await edge.claim("later")
    await edge.end(held, Fate.SUCCEEDED)
    await settle(edge)
    assert (await get(edge, "child"))["state"] == "waiting"


@pytest.mark.parametrize("asks", [True, False], ids=["others ask", "nobody asks yet"])
@pytest.mark.parametrize("call", ["watch_parents", "note_parents", "get_job", "reserve_edit"])
async def test_a_child_that_is_replaced_while_it_is_asked_about_waits_for_its_new_parents(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, call: str, asks: bool
) -> None:
    """Once the old parent, which has ended, has been asked, or before that is noted, or as it is released for it."""
    old, gone, new = await succeeded(edge, 1), await succeeded(edge, 2), await edge.push(name="later")
    await _replaced(edge, old)
    real, calls = getattr(edge.whole, call), list[int]()

    async def replaced_then(*args: Any, **named: Any) -> Any:
        if call == "note_parents":  # the first voids what was noted before
            calls.append(len(calls))
        answer = await real(*args, **named) if call == "watch_parents" else None
        if not calls or calls == [0, 1]:
            monkeypatch.setattr(edge.whole, call, real)
            await _replaced(edge, gone, new)
            while asks and await one_round(flows(edge)) == 0.0:
                pass
        return answer if call == "watch_parents" else await real(*args, **named)

    monkeypatch.setattr(edge.whole, call, replaced_then)
    await settle(edge)
    edge.clock.advance(REST_S + 1)
    await settle(edge)
    assert (await get(edge, "child"))["state"] == "blocked"
    (held,) = await edge.claim("later")
    await edge.end(held, Fate.SUCCEEDED)
    await settle(edge)
    assert (await get(edge, "child"))["state"] == "waiting"
