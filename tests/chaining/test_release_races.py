"""What a pusher was told is changed stays changed when the job is released in that moment."""

from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from jqd.chaining import release as release_module
from jqd.chaining.flows import REST_S
from jqd.chaining.release import TRIES
from jqd.domain.errors import Invalid
from jqd.domain.job import Fate
from jqd.service.cancel import record_cancels
from jqd.service.edit import change
from jqd.store import JobView, StoreConfig
from tests.api.whole import Whole
from tests.chaining.flow_room import one_round
from tests.chaining.released import after_a_look, edge, flows, settle

__all__ = ["edge"]


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
