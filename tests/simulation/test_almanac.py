"""What is excused of the dates of schedules is excused by its cause, and no further."""

from typing import Any

import pytest
import trio
from msgspec import Raw
from trio.testing import MockClock

from jqd.cron.schedules import FiredDate, Schedule, Template, body_of, fired_setting
from jqd.domain.dates import iso
from jqd.domain.job import Fate, Job, Outcome
from jqd.domain.settings import SCHEDULE, Setting
from tests.simulation.almanac import Almanac
from tests.simulation.loop import EPOCH_MS
from tests.simulation.notes import Notes
from tests.simulation.plan import make_plan
from tests.simulation.said import Word
from tests.simulation.say import PAUSE, PUT, Say

FIRST_MS, SECOND_MS = EPOCH_MS + 2000, EPOCH_MS + 4000
DATES: dict[str, Any] = {"every": 2.0, "anchor_ms": EPOCH_MS, "until": iso(SECOND_MS)}  # these two
NAME = f"s0@{iso(FIRST_MS)}"


def _word(what: str, at_s: float, revision: int, *, paused: bool = False) -> Word:
    schedule = Schedule(job=Template(name="n"), missed="all", overlap="skip", paused_at_ms=int(paused), **DATES)
    setting = Setting(SCHEDULE, "s0", revision, 0, Raw(body_of(schedule)))
    return Word(Say(at_s, 0, what, "s0", 0), "d0", at_s, at_s + 0.1, setting=setting)


async def _fire_first(almanac: Almanac) -> None:
    """The job of the first date runs from 2.0 s to 2.5 s."""
    await trio.sleep_until(2.0)
    almanac.told("d0", [fired_setting("s0", FiredDate(FIRST_MS, NAME, FIRST_MS, FIRST_MS), now_ms=FIRST_MS)])
    almanac.applied("d0", Job("a", "t", name=NAME))
    almanac.started("d0.1", 1, "a")
    await trio.sleep_until(2.5)
    almanac.ended("d0.1", "a", 1, Fate.SUCCEEDED)
    almanac.settled([Outcome("a", 1, Fate.SUCCEEDED, "t", 0, 1)])


async def test_no_date_is_passed_over_once_the_last_job_has_ended(autojump_clock: MockClock) -> None:
    almanac = Almanac(history := Notes(make_plan(0, frozenset())))
    await _fire_first(almanac)
    almanac.told("d0", [fired_setting("s0", FiredDate(SECOND_MS, NAME, FIRST_MS, skipped=1), now_ms=SECOND_MS)])
    await almanac.check([_word(PUT, 1.0, 1)], [])
    assert [what.split(": ")[1] for what in history.violations] == ["missed"]


@pytest.mark.parametrize(("revision", "holds"), [(1, True), (3, False)])
async def test_what_was_said_last_is_asked_for_unless_an_earlier_word_holds(
    autojump_clock: MockClock, revision: int, holds: bool
) -> None:
    almanac = Almanac(history := Notes(make_plan(0, frozenset())))
    pause, put = _word(PAUSE, 0.5, revision, paused=True), _word(PUT, 1.0, 2)
    await almanac.check([pause, put], [])
    assert [what.split(": ")[1] for what in history.violations] == (["lost", "lost"] if holds else [])
