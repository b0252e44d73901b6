"""A parent that begins or ends anew as its child is let go on: what the child becomes is made of the last end."""

import random

import msgspec
import pytest

from jqd.chaining import release as release_module
from jqd.chaining.callbacks import event_body
from jqd.chaining.flows import Flows
from jqd.chaining.release import release
from jqd.domain.errors import NotYet
from jqd.domain.job import Fate
from jqd.store import JobView
from tests.api.whole import Whole
from tests.chaining.flow_room import one_round
from tests.chaining.released import after_a_look, edge, settle

__all__ = ["edge"]


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


@pytest.mark.parametrize("on_parent_failure", ["fail", "cancel"])
async def test_a_parent_that_succeeds_after_all_is_none_to_fail_for(edge: Whole, on_parent_failure: str) -> None:
    """Its worker was silent, and its outcome came late, while the job still waited for another parent."""
    first, other = await edge.push(name="a"), await edge.push(name="b")
    child = await edge.push(after=[first, other], argument=1, on_parent_failure=on_parent_failure)
    await settle(edge)
    (held,) = await edge.claim("a")
    await edge.end(held, Fate.DEAD)
    await settle(edge)
    await edge.end(held, Fate.SUCCEEDED)
    assert (await edge.call("GET", f"/v1/jobs/{first}")).body["state"] == "succeeded"
    (held,) = await edge.claim("b")
    await edge.end(held, Fate.SUCCEEDED)
    await settle(edge)
    assert [one.job.id for one in await edge.claim()] == [child]


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
