"""Cancels: what is promised, and what is recorded only."""

import pytest

from jqd.domain.errors import JournalRefused, StoreAway
from jqd.domain.job import State
from jqd.domain.jobid import IdSource
from jqd.domain.record import Lane
from jqd.store import OnItsWay
from tests.api.edge import MSGPACK, Edge
from tests.api.fakes import JOURNAL
from tests.api.pushed import foreign_id, pushed


@pytest.fixture
def edge() -> Edge:
    return Edge()


async def test_a_cancel_that_the_store_confirmed(edge):
    job_id = edge.add(State.WAITING)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.CANCELLED)
    told = await edge.call("DELETE", f"/v1/jobs/{job_id}")
    assert (told.status, told.raw) == (204, b"")
    assert edge.journal.cancels() == [job_id]
    assert edge.journal.synced == edge.journal.written
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204, "asked again, it is still so"
    assert edge.journal.cancels() == [job_id, f"{job_id}@101"], "also of a retry that may be on its way"


async def test_a_running_job_is_asked_to_stop(edge):
    job_id = edge.add(State.RUNNING)
    told = await edge.call("DELETE", f"/v1/jobs/{job_id}", accept=MSGPACK)
    assert (told.status, told.body["state"]) == (202, "running")
    assert edge.journal.cancels() == [job_id]


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED])
async def test_what_has_ended_cannot_be_cancelled(edge, state):
    job_id = edge.add(state)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 409
    assert edge.journal.frames == []


async def test_what_ended_meanwhile_neither(edge):
    job_id = edge.add(State.RUNNING)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.SUCCEEDED)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 409


async def test_without_confirmation_it_is_recorded_only(edge):
    job_id = edge.add(State.WAITING)
    edge.control.applies = False
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202
    edge.store.away = True
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202
    foreign = foreign_id(edge)
    assert (await edge.call("DELETE", f"/v1/jobs/{foreign}")).status == 202
    now = (edge.clock.wall_ms() + 1) * 1_000
    assert edge.journal.cancels() == [job_id, f"{job_id}@{now}", f"{foreign}@{now}"], "whatever began before now"


async def test_a_store_that_did_not_answer_is_not_asked_again(edge, monkeypatch):
    """Each question takes as long as an answer may: a client gave up before the cancel was recorded."""
    job_id = edge.add(State.WAITING)
    asked: list[str] = []

    async def number(wanted: str) -> int:
        asked.append(wanted)
        return 1

    monkeypatch.setattr(edge.store, "reserve_change", number)
    edge.store.away = True
    monkeypatch.setattr(edge.control, "wait_caught_up", number)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202
    assert asked == []


async def test_a_cancel_is_not_confirmed_while_daemons_still_tell_the_store_what_it_forgot(edge):
    job_id = edge.add(State.WAITING)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.CANCELLED)
    edge.control.calm = False
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202, "a daemon may yet say that it runs it"
    edge.control.calm = True
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204


async def test_a_job_not_ingested_yet_meets_its_cancel(edge):
    job_id = await pushed(edge)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204
    assert edge.journal.cancels() == [f"{job_id}@101"], "whatever life of it the journal holds"


async def test_a_job_that_a_daemon_holds_before_it_came_is_no_job_that_will_not_start(edge, monkeypatch):
    job_id = await pushed(edge)

    async def held(job_id: str) -> OnItsWay:
        return OnItsWay("", held=True)

    monkeypatch.setattr(edge.store, "get_job", held)
    told = await edge.call("DELETE", f"/v1/jobs/{job_id}")
    assert (told.status, told.body["state"]) == (202, "running")


async def test_a_cancel_without_a_number_promises_nothing(edge, monkeypatch):
    """The store goes after the first look, comes back for the rest: nobody knows which life of the job was meant."""
    job_id = await pushed(edge)

    async def away(wanted: str) -> int:
        raise StoreAway("gone for a moment")

    monkeypatch.setattr(edge.store, "reserve_change", away)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202
    assert edge.journal.cancels() == [f"{job_id}@{(edge.clock.wall_ms() + 1) * 1_000}"]


@pytest.mark.parametrize(("full", "status"), [(True, 507), (False, 503)])
async def test_a_cancel_that_is_not_on_disk_is_not_promised(edge, full, status):
    job_id = edge.add(State.WAITING)
    edge.journal.refuse = JournalRefused("no space", full=full)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == status


async def test_a_store_that_goes_while_it_is_asked(edge, autojump_clock):
    job_id = edge.add(State.WAITING)

    def go() -> None:
        edge.store.away = True

    edge.control.on_apply[Lane.CANCELS] = go
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202


async def test_a_store_that_rolled_back_while_it_is_asked_promises_nothing(edge, monkeypatch):
    """It knows no more that the job is in a hand, and ends it; its daemon goes on with it."""
    job_id = edge.add(State.RUNNING)
    real = edge.store.get_job

    async def look(wanted: str) -> object:
        if edge.journal.cancels():
            edge.move(job_id, State.CANCELLED)
            edge.control.calm = False
        return await real(wanted)

    monkeypatch.setattr(edge.store, "get_job", look)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 202


@pytest.mark.parametrize("named", [{"generation": 5}, {"name": "mine"}])
async def test_a_cancel_is_meant_for_all_that_was_acknowledged_before_it(edge, named):
    """A job that was changed, or may be by a push: what the store shows of it need not be the last word."""
    job_id = edge.add(State.WAITING, **named)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.CANCELLED)
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204
    assert edge.journal.cancels() == [f"{job_id}@101"]


async def test_a_job_that_is_replaced_while_it_is_cancelled_is_cancelled_again(edge):
    job_id = edge.add(State.WAITING, generation=5)
    lives = [(State.WAITING, 102), (State.CANCELLED, 102)]

    def replace() -> None:
        state, generation = lives.pop(0)
        edge.move(job_id, state, generation=generation)

    edge.control.on_apply[Lane.CANCELS] = replace
    assert (await edge.call("DELETE", f"/v1/jobs/{job_id}")).status == 204
    assert edge.journal.cancels() == [f"{job_id}@101", f"{job_id}@102"]


async def test_a_job_that_is_replaced_for_ever_is_not_cancelled_for_ever(edge):
    job_id = edge.add(State.WAITING, generation=1)
    edge.control.on_apply[Lane.CANCELS] = lambda: edge.move(job_id, State.WAITING, generation=edge.store.changes + 1)
    told = await edge.call("DELETE", f"/v1/jobs/{job_id}")
    assert (told.status, told.body["state"]) == (202, "waiting")
    assert edge.journal.cancels() == [f"{job_id}@{n}" for n in (101, 102, 103)]


async def test_a_cancel_of_a_job_whose_daemons_clock_went_ahead_is_recorded(edge):
    """It runs when it comes, and may come for as long as the store has not seen a later one of that journal."""
    ahead = foreign_id(edge)
    edge.clock.set_wall_ms(edge.clock.wall_ms() - 3_600_000)
    edge.store.away = True
    assert (await edge.call("DELETE", f"/v1/jobs/{ahead}")).status == 202
    assert [record.partition("@")[0] for record in edge.journal.cancels()] == [ahead]


async def test_a_cancel_of_an_id_nobody_gave_is_not_recorded_without_the_store(edge):
    ahead = IdSource(journal=JOURNAL, salt=1, clock=edge.clock, after_ms=edge.clock.wall_ms() + 5).take(1).first
    edge.store.away = True
    assert (await edge.call("DELETE", f"/v1/jobs/{ahead}")).status == 404
    assert edge.journal.frames == []
