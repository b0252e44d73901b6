"""A store whose clock was ahead for a moment: dates that were passed then are fired once somebody says so."""

from typing import Any

import pytest
from msgspec import Raw

from jqd.cron import service as schedules
from jqd.cron.decide import Firing, Step
from jqd.cron.firing import fire
from jqd.cron.schedules import KnownSchedule, Plan, Schedules, Template
from jqd.domain.settings import FIRED
from tests.api.whole import Whole

PLAN = Plan(job=Template(name="report", argument=Raw(b"\x07")), every=60.0)
DAY_S = 86_400


def services(edge: Whole) -> Any:
    return edge.api._parts.services


def known(edge: Whole) -> KnownSchedule:
    one: KnownSchedule = services(edge).feature(Schedules).known["s"]
    return one


async def go(edge: Whole) -> None:
    """Fire the date that is due."""
    one, now_ms = known(edge), edge.clock.wall_ms()
    assert one.next_ms is not None
    assert one.next_ms <= now_ms
    assert await fire(services(edge), [Firing(one, Step(one.next_ms, True))], lambda life: True) == {}
    assert known(edge).through_ms == one.next_ms, "it counts, whatever was noted before"
    await edge.apply()


@pytest.fixture
async def edge() -> Whole:
    """One whose schedule was fired while the clock was a day ahead; it is right again."""
    edge = await Whole().begin()
    await schedules.put(services(edge), "s", PLAN)
    edge.clock.advance(61)
    await go(edge)
    begun_ms = edge.clock.wall_ms()
    edge.clock.set_wall_ms(begun_ms + DAY_S * 1000)
    one, last = known(edge), begun_ms + DAY_S * 1000 - 1_000
    assert await fire(services(edge), [Firing(one, Step(last, True, 1_439))], lambda life: True) == {}
    edge.clock.set_wall_ms(begun_ms + 5_000)
    return edge


async def test_it_is_told_that_nothing_is_fired_for_a_day(edge: Whole) -> None:
    (told,) = services(edge).feature(Schedules).complaints()
    assert "schedule 's' fires nothing until" in told
    await schedules.pause(services(edge), "s")
    assert services(edge).feature(Schedules).complaints() == []


@pytest.mark.parametrize("how", ["resumed", "paused and resumed", "set again", "deleted and set again"])
async def test_who_resumes_it_or_sets_it_again_has_its_dates_fired_from_now_on(edge: Whole, how: str) -> None:
    here = services(edge)
    match how:
        case "resumed":
            await schedules.resume(here, "s")
        case "paused and resumed":
            await schedules.pause(here, "s")
            await schedules.resume(here, "s")
        case "set again":
            await schedules.put(here, "s", PLAN)
        case _:
            await schedules.delete(here, "s")
            await schedules.put(here, "s", PLAN)
    assert here.feature(Schedules).complaints() == []
    for _ in range(3):
        edge.clock.advance(61)
        await go(edge)
    edge.clock.advance(2 * DAY_S)
    await go(edge)
    fired = here.workers.settings.get(FIRED, "s")
    assert fired is not None
    await schedules.delete(here, "s")
    await schedules.put(here, "s", PLAN)
    edge.clock.advance(61)
    await go(edge)


async def test_a_schedule_that_was_set_meanwhile_is_set_again(edge: Whole) -> None:
    here, begun_ms = services(edge), edge.clock.wall_ms()
    edge.clock.set_wall_ms(begun_ms + DAY_S * 1000)
    await schedules.delete(here, "s")
    await schedules.put(here, "s", PLAN)
    edge.clock.set_wall_ms(begun_ms)
    assert len(here.feature(Schedules).complaints()) == 1
    await schedules.put(here, "s", PLAN)
    edge.clock.advance(61)
    await go(edge)
