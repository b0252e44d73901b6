"""Own ids where several daemons give them, or one is slow: whoever is told that his job is taken has it taken."""

import pytest
import trio

from jqd.domain.errors import JournalRefused
from jqd.domain.job import Fate
from jqd.domain.record import Lane
from jqd.store import EditGiven, NameGiven, NameJournaled, NameWanted
from tests.api.named import JOB, arguments, push
from tests.api.whole import Whole


@pytest.fixture
async def edge() -> Whole:
    return await Whole().begin()


async def test_no_id_is_given_nor_content_changed_while_the_store_is_told_what_it_forgot(edge):
    """A daemon may have a job under that id, or a later content, to tell: two jobs would stand under one id."""
    other = await edge.push(argument="old")
    teller = await edge.whole.reserve_sysid("d2", True, through=False)
    edge.control.calm = False
    frames = len(edge.journal.frames)
    told = await edge.call("POST", "/v1/jobs", JOB)
    assert (told.status, told.headers["retry-after"]) == (503, "1")
    assert "the daemons are telling the store what it forgot" in told.body["detail"]
    for method, path, body in (("PATCH", "", {"argument": "new"}), ("POST", "/run-now", {})):
        assert (await edge.call(method, f"/v1/jobs/{other}{path}", body)).status == 503
    assert len(edge.journal.frames) == frames
    await edge.push()  # under an id of ours: nobody can have given it
    assert edge.owner is not None
    await edge.whole.renew_sysid(edge.owner, through=True)
    await edge.whole.renew_sysid(teller, through=True, settle=True)
    assert (await push(edge, JOB))[0] == 201


async def reserve_elsewhere(edge: Whole, journaled: bool) -> NameGiven:
    """While our disk stands still our reservations run out, and another daemon gets the name for another content."""
    edge.clock.advance(31)
    (given,) = await edge.whole.reserve_names([NameWanted("order/17", "X", "other", False)])
    if journaled:
        await edge.whole.confirm_names([NameJournaled("order/17", given.job_id, "other", given.revision)])
    return given


@pytest.mark.parametrize("journaled", [True, False])
@pytest.mark.parametrize("many", [True, False])
async def test_of_two_contents_under_one_id_one_pusher_is_told_that_his_is_not_taken(
    edge, journaled, many, monkeypatch
):
    wsync = edge.journal.wsync

    async def slow(position: int | None = None, **_: bool) -> None:
        monkeypatch.setattr(edge.journal, "wsync", wsync)
        await reserve_elsewhere(edge, journaled)
        await wsync(position)

    monkeypatch.setattr(edge.journal, "wsync", slow)
    told = await edge.call("POST", "/v1/jobs", [JOB, {**JOB, "job_id": "b"}, {"name": "mail"}] if many else JOB)
    if many:
        assert (told.status, told.body["job_ids"][:2]) == (207, [None, "b"])
        assert len(told.body["job_ids"][2]) == 26
    else:
        assert told.status == 409
    assert "has it now; this one is not taken" in told.body["errors"][0]["detail"]
    await edge.apply()
    assert len(await edge.claim()) == (2 if many else 0), "what was refused never runs"


@pytest.mark.parametrize("many", [True, False])
async def test_an_id_that_lapsed_and_whose_cancel_the_disk_refuses_is_told_by_the_same_push_again(
    edge, many, monkeypatch
):
    wsync, write = edge.journal.wsync, edge.journal.write

    async def slow(position: int | None = None, **_: bool) -> None:
        monkeypatch.setattr(edge.journal, "wsync", wsync)
        await reserve_elsewhere(edge, True)
        await wsync(position)

    def refuse(lane, *rest, **how):
        if lane is Lane.CANCELS:
            raise JournalRefused("the disk is full", full=True)
        return write(lane, *rest, **how)

    body = [JOB, {**JOB, "job_id": "b"}, {"name": "mail"}] if many else JOB
    with monkeypatch.context() as patch:
        patch.setattr(edge.journal, "wsync", slow)
        patch.setattr(edge.journal, "write", refuse)
        told = await edge.call("POST", "/v1/jobs", body)
    assert told.status == 503
    assert "job_id 'order/17' is another job's by now" in told.body["detail"]
    assert "could not be taken back (the disk is full) and may run" in told.body["detail"]
    again, ids = await push(edge, body)
    assert (again, ids.get("job_ids", [None])[0]) == (207 if many else 409, None)
    if many:
        assert (ids["job_ids"][1], ids["duplicates"], len(ids["job_ids"][2])) == ("b", ["b"], 26)


async def test_a_replacement_is_not_acknowledged_when_an_edit_of_what_it_replaces_stays(edge, monkeypatch):
    """While our disk stands still the reservation runs out, and another daemon edits the content that stands there."""
    await push(edge, JOB)
    (job,) = (await edge.whole.list_jobs(None, None, None, 9, "")).jobs
    replacement, wsync = {**JOB, "argument": "new", "replace": True}, edge.journal.wsync

    async def slow(position: int | None = None, **_: bool) -> None:
        monkeypatch.setattr(edge.journal, "wsync", wsync)
        edge.clock.advance(31)
        assert await edge.whole.reserve_edit(job.id, job.revision)
        await wsync(position)

    monkeypatch.setattr(edge.journal, "wsync", slow)
    told = await edge.call("POST", "/v1/jobs", replacement)
    assert (told.status, "push it again" in told.body["detail"]) == (503, True)
    assert (await push(edge, replacement))[0] == 201
    assert await arguments(edge) == ["new"]


async def test_no_content_starts_that_was_acknowledged_before_a_204(edge):
    """It lies in the backlog of the daemon that took it when another one is asked to cancel the job."""
    await push(edge, JOB)
    edge.cancels_first = True
    assert (await edge.call("POST", "/v1/jobs", {**JOB, "argument": 2, "replace": True})).status == 201
    assert (await edge.call("DELETE", "/v1/jobs/order%2F17")).status == 204
    edge.cancels_first = False
    await edge.apply()
    assert await edge.claim() == []
    assert (await edge.call("GET", "/v1/jobs/order%2F17")).body["state"] == "cancelled"


async def test_a_retry_that_was_recorded_does_not_start_after_a_204(edge):
    job_id = await edge.push()
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204
    edge.cancels_first = True
    edge.apply_fails = True
    assert (await edge.call("POST", f"/v1/jobs/{job_id}/retry")).status == 503, "recorded, and on its way"
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202
    edge.apply_fails = False
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204
    edge.cancels_first = False
    await edge.apply()
    assert await edge.claim() == []


@pytest.mark.parametrize("end", [Fate.SUCCEEDED, Fate.FAILED, "cancelled"])
async def test_what_is_acknowledged_is_what_is_told_although_the_older_content_has_ended(edge, end):
    if end == "cancelled":
        await push(edge, JOB)
        assert (await edge.call("DELETE", "/v1/jobs/order%2F17")).status == 204
    else:
        await edge.ended(end, **JOB)
    edge.cancels_first = True
    assert (await edge.call("POST", "/v1/jobs", {**JOB, "argument": 2, "replace": True})).status == 201
    assert (await edge.call("GET", "/v1/jobs/order%2F17")).body["state"] == "waiting"
    assert (await edge.call("DELETE", "/v1/jobs/order%2F17?purge=1")).status == 409
    assert (await edge.call("DELETE", "/v1/jobs/order%2F17")).status == 204, "also where the older one was cancelled"
    edge.cancels_first = False
    await edge.apply()
    assert await edge.claim() == []


async def test_a_job_whose_id_is_anothers_by_now_is_not_tried_again(edge, monkeypatch):
    """It would take the id back, and the other job, which is acknowledged, would never run."""
    job_id = await edge.ended(Fate.DEAD, job_id="mine")
    frames = len(edge.journal.frames)

    async def reserve_edit(_: str, __: int) -> EditGiven:
        await trio.lowlevel.checkpoint()
        return EditGiven(0, "life")

    monkeypatch.setattr(edge.whole, "reserve_edit", reserve_edit)
    told = await edge.call("POST", f"/v1/jobs/{job_id}/retry")
    assert (told.status, "was given to another job" in told.body["detail"]) == (409, True)
    assert len(edge.journal.frames) == frames
