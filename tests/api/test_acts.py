"""Retry, run-now and PATCH of one job, to the end in the store."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import trio

from jqd.domain.job import Fate, State
from jqd.domain.msgpack_depth import NESTING_MAX
from jqd.store import JobView
from tests.api.edge import JSON, MSGPACK
from tests.api.whole import Whole

pack = msgspec.msgpack.encode
HOUR_S = 3_600


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def view(edge: Whole, job_id: str) -> JobView:
    found = await edge.whole.get_job(job_id)
    assert isinstance(found, JobView)
    return found


# ------------------------------------------------------------ retry


@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.DEAD])
@pytest.mark.parametrize("kind", [MSGPACK, JSON])
async def test_a_job_that_failed_is_tried_anew(edge, fate, kind):
    job_id = await edge.ended(fate, argument={"n": 1}, priority=3, tags=["red"], keep_result=True, max_retry=2)
    told = await edge.call("POST", f"/v1/jobs/{job_id}/retry", accept=kind)
    assert (told.status, told.body["state"], told.body["job_id"]) == (200, "waiting", job_id)
    assert (told.body["priority"], told.body["tags"], told.body["max_retry"]) == (3, ["red"], 2)
    assert edge.journal.synced == edge.journal.written
    (held,) = await edge.claim()
    assert (held.job.id, held.attempt, held.job.argument) == (job_id, 1, pack({"n": 1}))
    assert held.job.keep_result
    await edge.end(held, Fate.SUCCEEDED)
    assert (await view(edge, job_id)).state is State.SUCCEEDED


async def test_a_cancelled_job_is_tried_anew(edge):
    job_id = await edge.push()
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204
    assert (await edge.call("POST", f"/v1/jobs/{job_id}/retry")).body["state"] == "waiting"
    assert len(await edge.claim()) == 1
    told = await edge.call("DELETE", f"/v1/jobs/{job_id}")
    assert (told.status, told.body["state"]) == (202, "running"), "the new life can be cancelled as the old could"


@pytest.mark.parametrize(
    ("method", "call", "body"), [("PATCH", "", {"priority": 3}), ("POST", "/run-now", None), ("POST", "/retry", None)]
)
async def test_no_change_is_promised_by_a_store_that_is_told_again_what_it_forgot(edge, method, call, body):
    """The job had succeeded, as the next journal was to tell: an edit was answered 200, and nothing came of it."""
    job_id = await edge.ended(Fate.FAILED) if call == "/retry" else await edge.push()
    edge.control.calm = False
    told = await edge.call(method, f"/v1/jobs/{job_id}{call}", body)
    assert (told.status, told.body["detail"][:20]) == (503, "it is recorded that "), "it is journaled all the same"
    edge.control.calm = True
    assert (await edge.call(method, f"/v1/jobs/{job_id}{call}", body)).status == (409 if call == "/retry" else 200)


@pytest.mark.parametrize("call", ["retry", "run-now"])
async def test_what_cannot_be_done_says_the_state(edge, call):
    job_id = await edge.ended(Fate.SUCCEEDED)
    told = await edge.call("POST", f"/v1/jobs/{job_id}/{call}", accept=JSON)
    assert told.status == 409
    assert "succeeded" in told.body["detail"]
    assert len(edge.journal.frames) == 1, "nothing but the push"


async def test_what_waits_is_not_retried_and_what_runs_neither(edge):
    job_id = await edge.push()
    assert (await edge.call("POST", f"/v1/jobs/{job_id}/retry")).status == 409
    await edge.claim()
    assert (await edge.call("POST", f"/v1/jobs/{job_id}/retry")).status == 409
    assert (await edge.call("POST", f"/v1/jobs/{job_id}/run-now")).status == 409


# ------------------------------------------------------------ run now


async def test_a_job_with_a_date_runs_now(edge):
    job_id = await edge.push(delay=HOUR_S, argument="x")
    assert await edge.claim() == []
    told = await edge.call("POST", f"/v1/jobs/{job_id}/run-now")
    assert (told.status, told.body["state"], told.body["eligible_at"]) == (200, "waiting", None)
    (held,) = await edge.claim()
    assert held.job.argument == pack("x")


async def test_a_job_that_is_to_be_tried_again_later_is_tried_now(edge):
    job_id = await edge.push()
    (held,) = await edge.claim()
    await edge.end(held, Fate.RETRY, delay_ms=HOUR_S * 1000)
    assert (await view(edge, job_id)).state is State.RETRYING
    assert (await edge.call("POST", f"/v1/jobs/{job_id}/run-now")).status == 200
    (held,) = await edge.claim()
    assert held.attempt == 2, "it is the next attempt, no new life"


# ------------------------------------------------------------ change


@pytest.mark.parametrize("kind", [MSGPACK, JSON])
async def test_a_job_that_waits_is_changed(edge, kind):
    job_id = await edge.push(argument={"old": 1}, priority=5, tags=["red"])
    told = await edge.call("PATCH", f"/v1/jobs/{job_id}", {"priority": -1, "argument": {"new": [2]}}, kind=kind)
    assert (told.status, told.body["priority"], told.body["tags"]) == (200, -1, ["red"])
    (held,) = await edge.claim()
    assert (held.job.priority, held.job.argument) == (-1, pack({"new": [2]}))


async def test_an_argument_stays_byte_for_byte(edge):
    job_id = await edge.push()
    odd = b"\x81\xa8argument\xd9\x01x"  # a string written longer than need be
    assert (await edge.call("PATCH", f"/v1/jobs/{job_id}", odd)).status == 200
    (held,) = await edge.claim()
    assert held.job.argument == b"\xd9\x01x"


async def test_dates_are_moved_and_removed(edge):
    job_id = await edge.push(delay=HOUR_S)
    path = f"/v1/jobs/{job_id}"
    at = datetime(2030, 1, 1, tzinfo=UTC)
    told = await edge.call("PATCH", path, {"run_at": at.isoformat()})
    assert (told.body["state"], told.body["eligible_at"]) == ("scheduled", "2030-01-01T00:00:00.000Z")
    told = await edge.call("PATCH", path, {"priority": 7})
    assert (told.body["state"], told.body["eligible_at"]) == ("scheduled", "2030-01-01T00:00:00.000Z"), "it stays"
    told = await edge.call("PATCH", path, {"delay": 60})
    assert told.body["eligible_at"] == "2027-01-15T08:01:00.000Z"
    told = await edge.call("PATCH", path, {"run_at": None})
    assert told.body["state"] == "waiting"
    told = await edge.call("PATCH", path, {"delay": 60})
    assert (await edge.call("PATCH", path, {"delay": 0})).body["state"] == "waiting"


async def test_a_job_is_changed_by_its_own_id(edge):
    await edge.push(job_id="a/b c")
    told = await edge.call("PATCH", "/v1/jobs/a%2Fb%20c", {"priority": 2})
    assert (told.status, told.body["job_id"], told.body["priority"]) == (200, "a/b c", 2)


@pytest.mark.parametrize(
    ("body", "pointer", "says"),
    [
        ({"prioritty": 1}, "/prioritty", "did you mean 'priority'"),
        ({"priority": 2**40}, "/priority", "32-bit"),
        ({"priority": "high"}, "/priority", "whole number"),
        ({"run_at": "tomorrow"}, "/run_at", "no ISO 8601 date"),
        ({"run_at": "2030-01-01T00:00:00"}, "/run_at", "no time zone"),
        ({"delay": -1}, "/delay", "0 to"),
        ({"delay": 1, "run_at": 2e9}, "/delay", "exclude each other"),
        ({"name": "other"}, "/name", "there is no field 'name'"),
    ],
)
async def test_a_wrong_change_is_named(edge, body, pointer, says):
    job_id = await edge.push()
    told = await edge.call("PATCH", f"/v1/jobs/{job_id}", body, accept=JSON)
    assert told.status == 422
    assert told.body["errors"][0]["pointer"] == pointer
    assert says in told.body["detail"]


@pytest.mark.parametrize(("body", "status"), [({}, 422), ([1], 422), (b"\xc1", 400), (None, 415)])
async def test_what_is_no_change(edge, body, status):
    job_id = await edge.push()
    assert (await edge.call("PATCH", f"/v1/jobs/{job_id}", body)).status == status


@pytest.mark.parametrize("field", ["priority", "run_at", "delay", "argument"])
async def test_an_integer_that_no_job_can_hold(edge, field):
    job_id = await edge.push()
    told = await edge.call("PATCH", f"/v1/jobs/{job_id}", b'{"%s": 18446744073709551616}' % field.encode(), kind=JSON)
    assert (told.status, told.body["errors"][0]["pointer"]) == (422, f"/{field}")
    assert told.body["detail"].startswith(f"{field}: an integer of more than 64 bits")


async def test_an_argument_nested_too_deep(edge):
    job_id = await edge.push()
    deep: Any = 1
    for _ in range(NESTING_MAX + 1):
        deep = [deep]
    told = await edge.call("PATCH", f"/v1/jobs/{job_id}", {"argument": deep})
    assert (told.status, told.body["errors"][0]["pointer"]) == (422, "/argument")


@pytest.mark.parametrize("fate", [None, Fate.SUCCEEDED, Fate.FAILED])
async def test_what_does_not_wait_is_not_changed(edge, fate):
    job_id = await edge.push()
    (held,) = await edge.claim()
    if fate:
        await edge.end(held, fate)
    told = await edge.call("PATCH", f"/v1/jobs/{job_id}", {"priority": 1}, accept=JSON)
    assert told.status == 409
    wanted = "is running, and nothing was changed" if fate is None else fate.name.lower()
    assert wanted in told.body["detail"]


@pytest.mark.parametrize(("method", "call"), [("PATCH", ""), ("POST", "/run-now"), ("POST", "/retry")])
async def test_a_refused_change_names_the_job_as_its_pusher_does(edge, method, call):
    job_id = await edge.push(job_id="order-17")
    assert job_id == "order-17"
    await edge.claim()
    body = {"priority": 1} if method == "PATCH" else None
    told = await edge.call(method, f"/v1/jobs/{job_id}{call}", body, accept=JSON)
    assert (told.status, told.body["detail"].startswith("job order-17 ")) == (409, True)


# ------------------------------------------------------------ on its way


@pytest.mark.parametrize(("method", "call"), [("POST", "/retry"), ("POST", "/run-now"), ("PATCH", "")])
async def test_no_such_job(edge, method, call):
    body = {"priority": 1} if method == "PATCH" else None
    for job_id in ("nobody's", "0" * 26):
        assert (await edge.call(method, f"/v1/jobs/{job_id}{call}", body)).status == 404


async def test_a_job_that_was_pushed_a_moment_ago_is_waited_for(edge):
    job_id = (await edge.call("POST", "/v1/jobs", {"name": "mail", "delay": HOUR_S})).body["job_id"]
    assert (await edge.call("POST", f"/v1/jobs/{job_id}/run-now")).body["state"] == "waiting"


async def test_a_job_that_does_not_come_is_to_be_asked_for_again(edge):
    job_id = (await edge.call("POST", "/v1/jobs", {"name": "mail"})).body["job_id"]
    edge.apply_fails = True
    told = await edge.call("POST", f"/v1/jobs/{job_id}/run-now", accept=JSON)
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert "on its way" in told.body["detail"]


# ------------------------------------------------------------ meanwhile


async def test_a_change_that_is_not_applied_in_time_is_recorded(edge):
    job_id = await edge.push(delay=HOUR_S)
    edge.apply_fails = True
    told = await edge.call("POST", f"/v1/jobs/{job_id}/run-now", accept=JSON)
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert "it is recorded that job" in told.body["detail"]
    await edge.apply()
    assert len(await edge.claim()) == 1


async def test_a_job_that_starts_while_it_is_changed(edge, monkeypatch):
    job_id = await edge.push(argument="old")
    real = edge.whole.reserve_edit

    async def late(wanted: str, seen: int) -> object:
        await edge.claim()
        return await real(wanted, seen)

    monkeypatch.setattr(edge.whole, "reserve_edit", late)
    told = await edge.call("PATCH", f"/v1/jobs/{job_id}", {"argument": "new"}, accept=JSON)
    assert told.status == 409
    assert "is recorded, and counts for a next attempt only" in told.body["detail"]
    assert (await view(edge, job_id)).argument == pack("new")


async def test_of_two_changes_at_once_neither_is_lost(edge, autojump_clock):
    """Each is the whole job once more: made of what the other has changed already, it brought that back."""
    job_id = await edge.push(argument="old")
    async with trio.open_nursery() as nursery:
        for body in ({"argument": "new"}, {"priority": 7}):
            nursery.start_soon(edge.call, "PATCH", f"/v1/jobs/{job_id}", body)
    view = await edge.whole.get_job(job_id)
    assert (view.argument, view.priority) == (msgspec.msgpack.encode("new"), 7)


async def test_a_change_is_not_made_while_another_does_not_come(edge, autojump_clock):
    job_id = await edge.push(argument="old")
    assert await edge.whole.reserve_edit(job_id, 0)  # its daemon's disk stands still
    told = await edge.call("PATCH", f"/v1/jobs/{job_id}", {"argument": "new"}, accept=JSON)
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert "being changed by somebody else" in told.body["detail"]
    edge.clock.advance(31)
    assert (await edge.call("PATCH", f"/v1/jobs/{job_id}", {"argument": "new"})).status == 200


async def test_a_change_that_waited_long_for_the_disk_may_have_been_overtaken(edge, autojump_clock, monkeypatch):
    job_id = await edge.push(argument="old")
    real = edge.journal.wsync

    async def slow(position: int, **_: bool) -> None:
        monkeypatch.undo()
        await trio.sleep(11)
        edge.clock.advance(31)  # nobody waits for it any more
        assert (await edge.call("PATCH", f"/v1/jobs/{job_id}", {"priority": 7})).status == 200
        await real(position)

    monkeypatch.setattr(edge.journal, "wsync", slow)
    told = await edge.call("PATCH", f"/v1/jobs/{job_id}", {"argument": "new"}, accept=JSON)
    assert told.status == 409, "the other one was made of the old content, and is the later one"
    assert "look at it again" in told.body["detail"]


async def test_a_job_that_is_gone_once_it_is_changed(edge, monkeypatch):
    job_id = await edge.push()
    real, calls = edge.whole.get_job, 0

    async def gone(wanted: str) -> Any:
        nonlocal calls
        calls += 1
        return await real(wanted) if calls == 1 else None

    monkeypatch.setattr(edge.whole, "get_job", gone)
    told = await edge.call("PATCH", f"/v1/jobs/{job_id}", {"priority": 1}, accept=JSON)
    assert told.status == 409
    assert "deleted" in told.body["detail"]
