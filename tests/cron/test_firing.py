"""A date of a schedule becomes a job: what else may stand there, and when it is left for another look."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw, structs

from jqd.cron import service as schedules
from jqd.cron.decide import Firing, Step
from jqd.cron.firing import COMING_S, TAKEN_S, fire, last_runs, note
from jqd.cron.schedules import (
    FiredDate,
    KnownSchedule,
    Plan,
    Schedule,
    Schedules,
    Template,
    body_of,
    fired_setting,
    forgotten,
)
from jqd.domain.errors import Closed, NotYet, Overloaded
from jqd.domain.job import Fate
from jqd.domain.job_spec import date_digest
from jqd.domain.record import Lane, decode_jobs, decode_rules
from jqd.domain.settings import FIRED, NIL, SCHEDULE, Setting
from jqd.domain.tenant import annotate, bare
from jqd.service.principal import Principal
from jqd.store import NameJournaled, NameWanted
from tests.api.whole import Whole

LONG_S = 1e6
PLAN = Plan(job=Template(name="report", argument=Raw(b"\x07"), max_retry=1), every=60.0, jitter=30.0)


@pytest.fixture
async def edge() -> Whole:
    edge = await Whole().begin()
    await schedules.put(edge.api._parts.services, "s", PLAN)
    edge.clock.advance(61)
    return edge


def services(edge: Whole) -> Any:
    return edge.api._parts.services


def known(edge: Whole) -> KnownSchedule:
    one: KnownSchedule = services(edge).feature(Schedules).known["s"]
    return one


def firing(edge: Whole, *, fires: bool = True, replaces: bool = False) -> Firing:
    one = known(edge)
    assert one.next_ms is not None
    return Firing(one, Step(one.next_ms, fires, 0 if fires else 1, replaces))


async def go(edge: Whole, **step: bool) -> str:
    """Fire the next date; the id of its job."""
    due = firing(edge, **step)
    waits = await fire(services(edge), [due], lambda life: True)
    assert waits.keys() == ({"s"} if due.one is known(edge) else set()), "what was not fired has to wait"
    await edge.apply()
    return due.job_id


async def end_last(edge: Whole) -> None:
    """The job of the last date succeeds, and could have been purged for long."""
    edge.clock.advance(31)  # the jitter
    await edge.whole.promote(100)
    (held,) = await edge.claim("report")
    await edge.end(held, Fate.SUCCEEDED)
    edge.clock.advance(10 * 86_400)


async def test_a_date_is_fired_under_pressure_too(edge: Whole) -> None:
    edge.control.pressure = Overloaded("too much waits", retry_after_s=1)
    job_id = await go(edge)
    assert (await edge.call("GET", f"/v1/jobs/{job_id}")).status == 200
    with pytest.raises(Overloaded):
        await schedules.run_now(services(edge), "s")


async def test_job_and_note_are_written_one_behind_the_other(edge: Whole) -> None:
    due = firing(edge)
    edge.journal.frames.clear()
    edge._taken = 0
    await fire(services(edge), [due], lambda life: True)
    (first, _, jobs), (second, _, settings) = edge.journal.frames
    assert (first, second) == (Lane.CHANGES, Lane.RULES)
    (job,) = decode_jobs(jobs)
    assert (job.name, job.jobtype, job.argument, job.max_retry) == (due.job_id, "report", b"\x07", 1)
    assert 0 < job.eligible_at_ms - due.step.through_ms <= 30_000, "by the jitter, which is never the same twice"
    assert job.change is not None
    assert job.change.life, "it must not come when the name is another's"
    (setting,) = decode_rules(settings)
    assert (setting.kind, setting.name, known(edge).fired.fired) == (FIRED, "s", 1)
    assert known(edge).next_ms == due.step.through_ms + 60_000


async def test_what_is_out_of_date_is_left(edge: Whole) -> None:
    due, frames = firing(edge), len(edge.journal.frames)
    with pytest.raises(NotYet, match="did not say in time"):
        await fire(services(edge), [due], lambda life: False)
    edge.control.not_pushing = "the disk is full"
    with pytest.raises(Closed):
        await fire(services(edge), [due], lambda life: True)
    edge.control.not_pushing = None

    real = services(edge).store.reserve_names

    async def slow(wanted: list[NameWanted]) -> Any:
        given = await real(wanted)
        edge.clock.suspend(11)
        return given

    services(edge).store.reserve_names = slow
    with pytest.raises(NotYet, match="did not say in time"):
        await fire(services(edge), [due], lambda life: True)
    services(edge).store.reserve_names = real
    await schedules.pause(services(edge), "s")
    await fire(services(edge), [due], lambda life: True)
    assert [lane for lane, *_ in edge.journal.frames[frames:]] == [Lane.RULES], "the pause, and nothing else"


@pytest.mark.parametrize("meanwhile", ["paused", "taken", "nothing"])
async def test_the_last_job_is_cancelled_where_the_next_one_is_written_or_nowhere(edge: Whole, meanwhile: str) -> None:
    """A pause in that moment took a run along: the last job was cancelled, and none came."""
    last = await go(edge)
    edge.clock.advance(60)
    due, store = firing(edge, replaces=True), services(edge).store
    real = store.reserve_names

    async def reserve_names(wanted: Any) -> Any:
        if meanwhile == "paused":
            await schedules.pause(services(edge), "s")
        return await real(wanted)

    if meanwhile == "taken":
        await edge.push(name="mine", job_id=due.job_id)
    store.reserve_names = reserve_names
    await fire(services(edge), [due], lambda life: True)
    store.reserve_names = real
    await edge.apply()
    state = (await edge.call("GET", f"/v1/jobs/{last}")).body["state"]
    assert (state == "cancelled") is (meanwhile == "nothing")


async def test_a_job_that_stands_there_already_is_the_one_of_that_date(edge: Whole) -> None:
    due = firing(edge)
    await edge.push(name="mine", job_id=due.job_id)
    await go(edge)
    assert known(edge).fired.job_id == due.job_id
    assert (await edge.call("GET", f"/v1/jobs/{due.job_id}")).body["name"] == "mine"


async def test_whatever_a_schedule_says_the_job_of_a_date_is_the_same(edge: Whole) -> None:
    """Another daemon has the name, wrote its job and died. The job is changed meanwhile: both journals have one job."""
    due, store = firing(edge), services(edge).store
    wanted = NameWanted(due.job_id, edge.journal.ids.take(1).first, date_digest(due.job_id), False)
    (given,) = await store.reserve_names([wanted])
    await schedules.put(services(edge), "s", msgspec.structs.replace(PLAN, job=Template(name="other")))
    edge.journal.frames.clear()
    edge._taken = 0
    await go(edge)
    (job,) = decode_jobs(edge.journal.frames[0][2])
    assert (job.id, job.jobtype) == (given.job_id, "other")
    assert job.change is not None
    assert (job.change.revision, job.change.digest) == (given.revision, wanted.digest)


async def test_nothing_is_written_in_another_life_of_the_store_than_that_which_gave_the_name(edge: Whole) -> None:
    asked: list[str] = []

    def is_told(life: str) -> bool:
        asked.append(life)
        return False

    with pytest.raises(NotYet):
        await fire(services(edge), [firing(edge)], is_told)
    (life,) = asked
    assert life
    assert life == (services(edge).store._caller.identity or "").partition(".")[2]


async def test_an_id_that_is_promised_only_is_waited_for(edge: Whole) -> None:
    """To a daemon that died before it wrote; or after it, and its journal may come back any day."""
    due, store = firing(edge), services(edge).store
    (given,) = await store.reserve_names([NameWanted(due.job_id, edge.journal.ids.take(1).first, "other", False)])
    waits = await fire(services(edge), [due], lambda life: True)
    assert waits == {"s": f"another job has the id {due.job_id!r}, and has not come to the store yet"}
    assert known(edge).fired.fired == 0
    edge.clock.advance(31)
    await go(edge)
    assert known(edge).fired.fired == 1, "it is free again"

    due = firing(edge)
    (given,) = await store.reserve_names([NameWanted(due.job_id, edge.journal.ids.take(1).first, "other", False)])
    await store.confirm_names([NameJournaled(due.job_id, given.job_id, "other", given.revision)])
    await go(edge)
    edge.clock.advance(TAKEN_S - 1)
    await go(edge)
    assert known(edge).fired.fired == 1
    edge.clock.advance(2)
    await go(edge)
    assert known(edge).fired.fired == 2, "it lies in a journal, and comes with it"


async def test_what_became_of_the_last_job(edge: Whole) -> None:
    assert not await last_runs(services(edge), known(edge), LONG_S)
    await go(edge)
    assert await last_runs(services(edge), known(edge), LONG_S)
    edge.clock.advance(60)
    await go(edge, replaces=True)
    edge.clock.advance(31)  # the jitter
    await edge.whole.promote(100)
    (held,) = await edge.claim("report")
    await edge.end(held, Fate.SUCCEEDED)
    assert not await last_runs(services(edge), known(edge), LONG_S)
    edge.clock.advance(10 * 86_400)
    await services(edge).store.purge(100)
    assert not await last_runs(services(edge), known(edge), LONG_S)
    # A slow daemon asks for the name of that date, and hears then that it was fired: its job never comes.
    late = NameWanted(known(edge).fired.job_id, edge.journal.ids.take(1).first, "d", False)
    assert (await services(edge).store.reserve_names([late]))[0].job_id == late.job_id
    assert not await last_runs(services(edge), known(edge), LONG_S), "the last job has ended all the same"
    await go(edge, replaces=True)
    assert known(edge).fired.fired == 3, "there is nothing to replace any more"


async def test_a_last_job_that_was_lost_with_its_journal_is_not_waited_for_for_ever(edge: Whole) -> None:
    """Its daemon's disk was lost between its two lanes: the schedule fired nothing for two days."""
    due = firing(edge)
    wanted = NameWanted(due.job_id, edge.journal.ids.take(1).first, date_digest(due.job_id), False)
    (given,) = await services(edge).store.reserve_names([wanted])
    await services(edge).store.confirm_names([NameJournaled(due.job_id, given.job_id, wanted.digest, given.revision)])
    fired = FiredDate(due.step.through_ms, job_id=due.job_id, at_ms=edge.clock.wall_ms(), given=given.job_id)
    await note(services(edge), [fired_setting("s", fired, now_ms=edge.clock.wall_ms(), after=known(edge).setting)])
    assert await last_runs(services(edge), known(edge), LONG_S)
    edge.clock.advance(COMING_S)
    assert await last_runs(services(edge), known(edge), LONG_S)
    await go(edge, fires=False)  # with `overlap: skip` each date is noted, and is looked at once
    edge.clock.advance(1)
    assert not await last_runs(services(edge), known(edge), LONG_S)
    await go(edge)
    assert known(edge).coming is None, "the next job has its own time"


async def test_a_request_that_was_on_its_way_since_the_last_job_was_pushed_holds_no_date_up(edge: Whole) -> None:
    """Where ended jobs are purged at once: a schedule waited for a job that nobody has, for two days."""
    late = edge.journal.ids.take(1).first
    await go(edge)
    await end_last(edge)
    await services(edge).store.purge(100)
    wanted = NameWanted(known(edge).fired.job_id, late, "d", False)
    assert (await services(edge).store.reserve_names([wanted]))[0].job_id == late
    assert not await last_runs(services(edge), known(edge), LONG_S)
    ours = structs.replace(known(edge).fired, given=late)
    assert await last_runs(services(edge), structs.replace(known(edge), fired=ours), LONG_S), "that one is to come"


async def test_a_last_job_that_is_purged_while_it_is_looked_for_has_ended(edge: Whole) -> None:
    """Between the store's answer whose the name is and that on the job: it was taken for one on its way."""
    await go(edge)
    await end_last(edge)
    store = services(edge).store
    real = store.resolve

    async def then_purge(name: str, **more: Any) -> Any:
        store.resolve = real
        job_id = await real(name, **more)
        await store.purge(100)
        return job_id

    store.resolve = then_purge
    assert not await last_runs(services(edge), known(edge), LONG_S)


async def test_a_date_that_two_fire_is_noted_with_the_id_of_the_job_that_stands(edge: Whole) -> None:
    """Which of their notes stays is chance. With one that had no id a late request for the name was taken for its job,
    and where jobs are purged at once the schedule waited for ever."""
    due, store = firing(edge), services(edge).store
    wanted = NameWanted(due.job_id, edge.journal.ids.take(1).first, date_digest(due.job_id), False)
    (given,) = await store.reserve_names([wanted])
    await store.confirm_names([NameJournaled(due.job_id, given.job_id, wanted.digest, given.revision)])
    await go(edge)
    assert (known(edge).fired.fired, known(edge).fired.given) == (1, given.job_id)
    assert await last_runs(services(edge), known(edge), LONG_S), "it comes with the other daemon's journal"


async def test_a_schedule_that_is_deleted_takes_its_note_along_and_a_new_one_begins_anew(edge: Whole) -> None:
    await go(edge)
    await schedules.delete(services(edge), "s")
    setting = edge.workers.settings.get(FIRED, "s")
    assert setting is not None
    assert setting.is_deleted
    await schedules.put(services(edge), "s", PLAN)
    assert known(edge).fired.fired == 0
    edge.clock.advance(61)
    await go(edge)
    assert known(edge).fired.fired == 1


async def test_one_of_a_zone_that_is_not_known_here_is_left_to_others(edge: Whole) -> None:
    settings = edge.workers.settings
    settings.take([Setting(SCHEDULE, "gone", 9, 0, Raw(NIL))])
    assert sorted(services(edge).feature(Schedules).known) == ["s"]
    body = body_of(Schedule(job=Template(name="n"), cron="* * * * *", tz="Mars/Mons", since_ms=1))
    settings.take([Setting(SCHEDULE, "m", 9, 0, Raw(body))])
    (complaint,) = services(edge).feature(Schedules).complaints()
    assert "'Mars/Mons' is no time zone" in complaint
    assert (await edge.call("GET", "/v1/schedules/m")).body["next"] == []


async def test_what_stands_again_after_it_was_deleted_goes_on_behind_the_last_date(edge: Whole) -> None:
    body = Raw(body_of(Schedule(job=Template(name="n"), every=1.0, since_ms=1)))
    fired = fired_setting("n", FiredDate(5000, "n@5", 5000), now_ms=5000)
    edge.workers.settings.take([Setting(SCHEDULE, "n", 9, 0, body), fired, forgotten(fired, now_ms=5500)])
    edge.workers.settings.take([Setting(SCHEDULE, "n", 11, 0, body)])  # changed by who had not heard that 10 deleted it
    assert services(edge).feature(Schedules).known["n"].through_ms == 5000


@pytest.mark.parametrize("limits", [{"rate": 0.1}, {"bytes": 1.0}, {"queued": 1}, {"in_flight": 1}])
async def test_a_date_waits_for_the_quota_of_its_tenant_and_costs_it(edge: Whole, limits: dict[str, Any]) -> None:
    acme = services(edge).as_principal(Principal("acme"))
    assert (await edge.call("PUT", "/v1/quotas/acme", limits)).status == 200
    await schedules.put(acme, "s", msgspec.structs.replace(PLAN, overlap="replace", jitter=0.0))
    one = services(edge).feature(Schedules).known[annotate("acme", "s")]

    async def due(replaces: bool) -> str | None:
        """Why it was not fired."""
        now = services(edge).feature(Schedules).known[one.name]
        step = Step(now.next_ms or 0, True, 0, replaces)
        waits = await fire(services(edge), [Firing(now, step)], lambda life: True)
        await edge.apply()
        return waits.get(one.name)

    edge.clock.advance(61)
    assert await due(replaces=False) is None
    first = bare(services(edge).feature(Schedules).known[one.name].fired.job_id)
    edge.clock.advance(2)
    assert f"the quota of tenant 'acme' is spent, {next(iter(limits))}: " in (await due(replaces=True) or "")
    view = await edge.call("GET", f"/v1/jobs/{first}", headers={"jqd-tenant": "acme"})
    assert view.body["state"] in ("waiting", "scheduled"), "what is not replaced stays"
    push = await edge.call("POST", "/v1/jobs", {"name": "a"}, headers={"jqd-tenant": "acme"})
    assert (push.status, "go first" in push.body["detail"]) == (429, True)
    assert (await edge.call("DELETE", f"/v1/jobs/{first}", headers={"jqd-tenant": "acme"})).status in (200, 202, 204)
    await edge.apply()
    for _ in range(2):
        edge.clock.advance(120)
        await due(replaces=False)
    assert services(edge).feature(Schedules).known[one.name].fired.fired >= 2
