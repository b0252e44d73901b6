"""Unique keys while jobs are on their way into the store, tried anew, or wait for others."""

from typing import Any

import msgspec
import pytest
import trio

from jqd.domain.errors import StoreAway
from jqd.domain.job import Fate
from jqd.store.links import PLACE_S
from tests.api.whole import Whole


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def _refuse(*_: Any, **__: Any) -> Any:
    await trio.lowlevel.checkpoint()
    raise StoreAway("it does not answer")


@pytest.mark.parametrize("by", ["retry", "push"])
async def test_a_key_stays_with_a_job_that_is_on_its_way_for_longer_than_a_push_takes(
    edge: Whole, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Two jobs with one key ran: the store had given it to the first for half a minute."""
    body = {"name": "mail", "unique": "k"}
    if by == "retry":
        first = await edge.push(unique="k")
        (held,) = await edge.claim()
        await edge.end(held, Fate.DEAD)
        edge.apply_fails = True
        told = await edge.call("POST", f"/v1/jobs/{first}/retry")
    else:
        with monkeypatch.context() as patched:
            patched.setattr(edge.whole, "confirm_unique", _refuse)
            told = await edge.call("POST", "/v1/jobs", body)
    assert told.status == 503, told.body
    edge.apply_fails = True
    edge.clock.advance(PLACE_S + 1)
    told = await edge.call("POST", "/v1/jobs", body)
    assert (told.status, "on their way" in told.body["detail"]) == (503, True)
    edge.apply_fails = False
    told = await edge.call("POST", "/v1/jobs", body)
    assert told.status == 200, told.body
    await edge.apply()
    assert [held.job.id for held in await edge.claim()] == [told.body["job_id"]]


async def test_a_job_that_waits_for_others_is_put_off_by_them(edge: Whole) -> None:
    """Its duplicate was told for as long as it waited that it begins, and to come again."""
    parent = await edge.push(name="first")
    child = await edge.push(unique="k", after=[parent], argument=1, **{"while": "waiting"})
    for argument in (2, None):
        body = {"name": "mail", "unique": "k", "while": "waiting", "debounce": 5, "argument": argument}
        told = await edge.call("POST", "/v1/jobs", body)
        assert (told.status, told.body["job_id"]) == (200, child), told.body
    view: Any = await edge.whole.get_job(child)
    assert (view.state, msgspec.msgpack.decode(view.argument)) == ("blocked", 2)
