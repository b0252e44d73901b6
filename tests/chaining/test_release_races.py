"""What a pusher was told is changed stays changed when the job is released in that moment."""

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from jqd.chaining import release as release_module
from jqd.chaining.callbacks import event_body
from jqd.chaining.flows import REST_S, Flows
from jqd.chaining.release import TRIES, release
from jqd.domain.errors import Invalid, NotYet
from jqd.domain.job import Fate
from jqd.service.cancel import record_cancels
from jqd.service.edit import change
from jqd.store import JobView, StoreConfig
from tests.api.whole import Whole
from tests.chaining.flow_room import one_round


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


def flows(edge: Whole) -> Flows:
    go_on = partial(release, edge.api._parts.services)
    return Flows(0, [edge.whole], lambda _: True, go_on, clock=edge.clock, source=random.Random(1))


async def settle(edge: Whole) -> None:
    """Let go on what waited."""
    loop = flows(edge)
    for _ in range(2):
        await edge.apply()
        while await one_round(loop) == 0.0:
            await edge.apply()
        edge.clock.advance(REST_S)


def after_a_look(edge: Whole, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]) -> None:
    """Have that done as soon as the blocked job was looked at, before its release is reserved."""
    real = edge.whole.get_job

    async def get_job(job_id: str) -> Any:
        found = await real(job_id)
        if getattr(found, "state", None) == "blocked":
            monkeypatch.setattr(edge.whole, "get_job", real)
            await act()
        return found

    monkeypatch.setattr(edge.whole, "get_job", get_job)


async def replace(edge: Whole, **fields: Any) -> None:
    body = {"name": "mail", "job_id": "mine", "argument": {"new": 2}, "replace": True, **fields}
    told = await edge.call("POST", "/v1/jobs", body)
    assert told.status in (200, 201), told.body
    await edge.apply()


@pytest.mark.parametrize("more", [{}, {"result_into": "n"}], ids=["its own", "with a result"])
@pytest.mark.parametrize("way", ["edit", "replace"])
async def test_an_argument_that_is_changed_while_a_job_is_released_is_kept(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, way: str, more: dict[str, str]
) -> None:
    parents = [await edge.ended(Fate.SUCCEEDED)]
    await edge.push(argument={"old": 1}, after=parents, job_id="mine", **more)
    await edge.apply()

    async def change() -> None:
        if way == "replace":
            await replace(edge, after=parents, **more)
            return
        told = await edge.call("PATCH", "/v1/jobs/mine", {"argument": {"new": 2}})
        assert told.status == 200, told.body

    after_a_look(edge, monkeypatch, change)
    await settle(edge)
    (held,) = await edge.claim()
    assert msgspec.msgpack.decode(held.job.argument)["new"] == 2


@pytest.mark.parametrize("before", ["fail", "cancel"])
async def test_what_a_parents_failure_does_to_a_job_is_what_its_replacement_says(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    parents = [await edge.ended(Fate.DEAD)]
    await edge.push(argument={"old": 1}, after=parents, job_id="mine", on_parent_failure=before)
    await edge.apply()
    after_a_look(edge, monkeypatch, partial(replace, edge, after=parents, on_parent_failure="run"))
    await settle(edge)
    (held,) = await edge.claim()
    assert msgspec.msgpack.decode(held.job.argument) == {"new": 2}


async def test_a_release_looks_again_where_its_job_was_replaced_by_one_that_it_does_not_fit(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the daemon."""
    parents = [await edge.ended(Fate.SUCCEEDED)]
    await edge.push(argument="a string", after=parents, job_id="mine")
    await edge.apply()
    after_a_look(edge, monkeypatch, partial(replace, edge, after=parents, result_into="n"))
    await settle(edge)
    (held,) = await edge.claim()
    assert msgspec.msgpack.decode(held.job.argument).keys() == {"new", "n"}


async def test_a_release_that_is_refused_is_tried_again_and_ends_no_daemon(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    await edge.push(argument={"old": 1}, after=[await edge.ended(Fate.SUCCEEDED)], job_id="mine")
    await edge.apply()
    refused = list[str]()

    async def refuse(_: Any, view: JobView, *__: Any, **___: Any) -> JobView:
        refused.append(view.id)
        await trio.lowlevel.checkpoint()
        raise Invalid("it does not fit")

    monkeypatch.setattr(release_module, "change", refuse)
    await settle(edge)
    assert refused
    assert await edge.claim() == []
    monkeypatch.setattr(release_module, "change", change)
    await settle(edge)
    assert len(await edge.claim()) == 1


@pytest.mark.parametrize(("edits", "rests"), [(TRIES - 1, 0), (TRIES, 1)])
async def test_a_job_that_is_changed_while_it_is_released_waits_only_where_that_happens_often(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, edits: int, rests: int
) -> None:
    await edge.push(argument={"a": 0}, after=[await edge.ended(Fate.SUCCEEDED)], job_id="mine")
    await edge.apply()
    real, done = edge.whole.reserve_edit, 0

    async def reserve_edit(*args: Any) -> Any:
        nonlocal done
        if done < edits:
            done += 1
            monkeypatch.setattr(edge.whole, "reserve_edit", real)
            told = await edge.call("PATCH", "/v1/jobs/mine", {"argument": {"a": done}})
            assert told.status == 200, told.body
            monkeypatch.setattr(edge.whole, "reserve_edit", reserve_edit)
        return await real(*args)

    monkeypatch.setattr(edge.whole, "reserve_edit", reserve_edit)
    loop = flows(edge)
    for left in range(rests, -1, -1):
        while await one_round(loop) == 0.0:
            await edge.apply()
        await edge.apply()
        held = await edge.claim()
        assert len(held) == (left == 0)
        edge.clock.advance(REST_S)
    assert msgspec.msgpack.decode(held[0].job.argument) == {"a": edits}


async def test_a_job_whose_change_never_comes_is_released_when_that_is_over_and_nobody_waits_for_it(
    autojump_clock: None, edge: Whole
) -> None:
    """Each look at it waited two seconds."""
    child = await edge.push(argument=1, after=[await edge.ended(Fate.SUCCEEDED)])
    await edge.apply()
    assert await edge.whole.reserve_edit(child, 0) is not None  # and its daemon dies
    began_s = trio.current_time()
    await settle(edge)
    assert await edge.claim() == []
    assert trio.current_time() == began_s
    edge.clock.advance(StoreConfig(url="").name_reserve_s)
    await settle(edge)
    assert len(await edge.claim()) == 1


async def test_a_date_is_not_given_to_a_job_that_was_replaced_by_one_that_waits_for_others(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would have none, though its pusher was told that it has."""
    parent = await edge.push(name="late")
    await edge.push(argument={"old": 1}, job_id="mine")
    await edge.apply()
    real = edge.whole.reserve_edit

    async def reserve_edit(*args: Any) -> Any:
        monkeypatch.setattr(edge.whole, "reserve_edit", real)
        await replace(edge, after=[parent])
        return await real(*args)

    monkeypatch.setattr(edge.whole, "reserve_edit", reserve_edit)
    told = await edge.call("PATCH", "/v1/jobs/mine", {"delay": 60})
    assert told.status == 409, told.body
    assert "waits for other jobs" in told.body["detail"]


@pytest.mark.parametrize("by", ["its pusher's id", "our id"])
@pytest.mark.parametrize("is_applied", [False, True])
async def test_a_child_waits_on_where_its_parent_is_pushed_anew_as_it_is_released(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, is_applied: bool, by: str
) -> None:
    first = {"name": "made", "job_id": "p", "keep_result": True, "argument": 1}
    assert (await edge.call("POST", "/v1/jobs", first)).status == 201
    await edge.apply()
    child = await edge.push(after=[await edge.whole.resolve("p") if by == "our id" else "p"], one_result=True)
    await settle(edge)
    (held,) = await edge.claim("made")
    await edge.end(held, Fate.SUCCEEDED, keep_result=True, result=msgspec.msgpack.encode(42))

    async def push_anew() -> None:
        assert (await edge.call("POST", "/v1/jobs", first | {"argument": 2, "replace": True})).status == 201
        if is_applied:
            await edge.apply()

    after_a_look(edge, monkeypatch, push_anew)
    await settle(edge)
    assert (await edge.call("GET", f"/v1/jobs/{child}")).body["state"] == "blocked", "neither failed nor begun with nil"
    (held,) = await edge.claim("made")
    await edge.end(held, Fate.SUCCEEDED, keep_result=True, result=msgspec.msgpack.encode(43))
    await settle(edge)
    edge.clock.advance(1)
    await edge.whole.promote(100)
    assert [msgspec.msgpack.decode(one.job.argument) for one in await edge.claim("mail")] == [43]


@pytest.mark.parametrize(("on_parent_failure", "state"), [("fail", "failed"), ("cancel", "cancelled")])
async def test_a_parent_that_fails_anew_as_its_child_is_released_is_none_that_did_well(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, on_parent_failure: str, state: str
) -> None:
    """The child began with nothing as the result."""
    first = {"name": "made", "job_id": "p", "keep_result": True}
    assert (await edge.call("POST", "/v1/jobs", first)).status == 201
    await edge.apply()
    child = await edge.push(after=["p"], one_result=True, on_parent_failure=on_parent_failure)
    await settle(edge)
    (held,) = await edge.claim("made")
    await edge.end(held, Fate.SUCCEEDED, keep_result=True, result=msgspec.msgpack.encode(42))

    async def fail_anew() -> None:
        assert (await edge.call("POST", "/v1/jobs", first | {"argument": 2, "replace": True})).status == 201
        await edge.apply()
        (held,) = await edge.claim("made")
        await edge.end(held, Fate.DEAD)

    after_a_look(edge, monkeypatch, fail_anew)
    await settle(edge)
    await edge.apply()
    edge.clock.advance(1)
    await edge.whole.promote(100)
    assert (await edge.call("GET", f"/v1/jobs/{child}")).body["state"] == state


async def test_a_parent_that_the_store_may_have_forgotten_is_not_gone(
    edge: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partition is told again what it forgot, and the children of that partition's jobs lie elsewhere."""
    parent = await edge.ended(Fate.SUCCEEDED)
    child = await edge.push(after=[parent], argument=None, result_into="n")
    services = edge.api._parts.services
    view = await edge.whole.get_job(child)
    assert isinstance(view, JobView)
    assert view.flow is not None
    assert await edge.whole.delete_dead([parent]) == [parent]
    monkeypatch.setattr(edge.control, "settled", lambda where: False)
    with pytest.raises(NotYet):
        await event_body(services, view, view.flow)
    with pytest.raises(NotYet):
        await release_module._with_results(services, view, view.flow)
    monkeypatch.setattr(edge.control, "settled", lambda where: True)
    assert msgspec.msgpack.decode(await event_body(services, view, view.flow))["type"] == "job.gone"


async def test_a_callback_of_a_group_tells_of_no_member_that_begins_anew(edge: Whole) -> None:
    for own in ("p", "q"):
        assert (await edge.call("POST", "/v1/jobs", {"name": "made", "job_id": own, "group": "g"})).status == 201
    await edge.apply()
    for held in await edge.claim("made"):
        await edge.end(held, Fate.SUCCEEDED)
    members = [await edge.whole.resolve(own) for own in ("p", "q")]
    view, services = (
        await edge.whole.get_job(await edge.push(after=members, argument={"group": "g"})),
        edge.api._parts.services,
    )
    assert isinstance(view, JobView)
    assert view.flow is not None
    told = msgspec.msgpack.decode(await event_body(services, view, view.flow))
    assert told["data"]["counts"] == {"succeeded": 2}
    assert (
        await edge.call("POST", "/v1/jobs", {"name": "made", "job_id": "p", "argument": 2, "replace": True})
    ).status == 201
    await edge.apply()
    with pytest.raises(NotYet):
        await event_body(services, view, view.flow)


@pytest.mark.parametrize("is_applied", [False, True])
async def test_a_callback_tells_of_no_job_that_begins_anew(edge: Whole, is_applied: bool) -> None:
    assert (await edge.call("POST", "/v1/jobs", {"name": "made", "job_id": "p"})).status == 201
    await edge.apply()
    child = await edge.push(after=["p"])
    (held,) = await edge.claim("made")
    await edge.end(held, Fate.SUCCEEDED)
    view, services = await edge.whole.get_job(child), edge.api._parts.services
    assert isinstance(view, JobView)
    assert view.flow is not None
    assert msgspec.msgpack.decode(await event_body(services, view, view.flow))["type"] == "job.succeeded"
    anew = {"name": "made", "job_id": "p", "argument": 2, "replace": True}
    assert (await edge.call("POST", "/v1/jobs", anew)).status == 201
    if is_applied:
        await edge.apply()
    with pytest.raises(NotYet):
        await event_body(services, view, view.flow)


@pytest.mark.parametrize("policy", ["cancel", "fail", "run"])
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told yet"])
async def test_a_child_whose_release_waited_is_not_ended_for_a_parent_that_was_tried_anew(
    edge: Whole, policy: str, is_told: bool
) -> None:
    """What the child is told of that may be lost, and is told again after REST_S."""
    parent = await edge.push(name="a")
    child = await edge.push(argument=1, after=[parent], on_parent_failure=policy)
    wanted: list[tuple[str, str, str]] = []

    async def wait_for_a_place(*args: str) -> bool:
        wanted.append((args[0], args[1], args[2]))
        return False

    loop = Flows(0, [edge.whole], lambda _: True, wait_for_a_place, clock=edge.clock, source=random.Random(1))
    while await one_round(loop) == 0.0:
        await edge.apply()
    (held,) = await edge.claim("a")
    await edge.end(held, Fate.DEAD)
    while await one_round(loop) == 0.0:
        await edge.apply()
    assert wanted == [(child, parent, wanted[0][2])]
    assert (await edge.call("POST", f"/v1/jobs/{parent}/retry")).status == 200
    await edge.apply()
    while is_told and await one_round(loop) == 0.0:
        await edge.apply()
    assert not await release(edge.api._parts.services, *wanted[0])
    await edge.apply()
    assert (await edge.call("GET", f"/v1/jobs/{child}")).body["state"] == "blocked"
    (held,) = await edge.claim("a")
    await edge.end(held, Fate.SUCCEEDED)
    await settle(edge)
    edge.clock.advance(1)
    await edge.whole.promote(100)
    assert len(await edge.claim("mail")) == 1


@pytest.mark.parametrize("by", ["parent", "person"])
@pytest.mark.parametrize("own", [{}, {"job_id": "mine"}], ids=["unnamed", "named"])
async def test_a_retry_of_the_flow_knows_a_cancel_for_a_parent_that_comes_after_that_ones_retry(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, own: dict[str, str], by: str
) -> None:
    """It stayed cancelled for ever, as nobody's; chaos of flows, seed 708. What a person cancelled stays so."""
    parent = await edge.ended(Fate.FAILED)
    child = await edge.push(after=[parent], on_parent_failure="cancel", **own)
    await edge.apply()

    async def retry() -> None:
        edge.clock.advance(1)
        assert (await edge.call("POST", f"/v1/jobs/{parent}/flow/retry")).body["changed"] == 1
        edge.clock.advance(1)

    async def end_parent() -> None:
        (held,) = await edge.claim()
        await edge.end(held, Fate.SUCCEEDED)

    if by == "parent":

        async def cancel(*args: Any, **given: Any) -> dict[str, int] | None:
            await retry()
            return await record_cancels(*args, **given)

        monkeypatch.setattr(release_module, "record_cancels", cancel)
        await settle(edge)
    else:
        await retry()
        assert (await edge.call("DELETE", f"/v1/jobs/{child}")).status == 204
    await end_parent()
    assert (await edge.call("GET", f"/v1/jobs/{child}")).body["state"] == "cancelled"
    told = await edge.call("POST", f"/v1/jobs/{child}/flow/retry")
    assert told.body["changed"] == (by == "parent")
    await settle(edge)
    assert len(await edge.claim()) == (by == "parent")
