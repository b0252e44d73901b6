"""Settings are put into force in steps: other tasks have their turn in between."""

from collections.abc import Callable

import msgspec
import pytest
import trio

from jqd.domain.record import Lane, encode_rules
from jqd.domain.settings import Setting, SettingTable
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.journal.conftest import opened
from tests.loops.settings_house import House

MANY = [Setting("k", str(number), number + 1, 1, msgspec.Raw(b"\x01")) for number in range(9)]


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Callable[[SettingTable], list[int]]:
    """Counts, for each setting of a table as it is put into force, how often another task had its turn before."""
    monkeypatch.setattr("jqd.domain.array_split.HELD_S", 0)

    def watched(table: SettingTable) -> list[int]:
        had, seen = [0], list[int]()
        table.watch("k", lambda _: seen.append(had[0]))

        async def another() -> None:
            while len(seen) < len(MANY):
                had[0] += 1
                await trio.lowlevel.checkpoint()

        trio.lowlevel.spawn_system_task(another)
        return seen

    return watched


async def test_other_tasks_have_their_turn_between_the_settings_of_an_answer(
    turns: Callable[[SettingTable], list[int]],
) -> None:
    """A tenant's hundred constraints take seconds to compile."""
    clock = ManualClock()
    house = House(clock, [store := FakeStore(clock)])
    await store.look(fresh=True)
    await store.apply_settings("ab" * 16, 0, len(MANY), MANY)
    seen = turns(house.workers.settings)
    await house.ask()
    assert seen[-1] - seen[0] >= len(MANY) - 2, "which of two tasks goes first is drawn"


async def test_other_tasks_have_their_turn_between_the_settings_of_a_journals_frame(
    turns: Callable[[SettingTable], list[int]],
) -> None:
    clock = ManualClock()
    house = House(clock, [FakeStore(clock)])
    async with opened(MemoryFiles()) as journal:
        house.upkeep._journal = journal
        await journal.wsync(journal.write(Lane.RULES, len(MANY), encode_rules(MANY)))
        seen = turns(house.workers.settings)
        await house.upkeep._read_own()
    assert seen[-1] - seen[0] >= len(MANY) - 2, "which of two tasks goes first is drawn"


async def test_an_answer_whose_asker_went_away_in_the_middle_is_journaled_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jqd.domain.array_split.HELD_S", 0)
    clock = ManualClock()
    house = House(clock, [store := FakeStore(clock)])
    (follow,) = house.follows
    await store.look(fresh=True)
    await store.apply_settings("ab" * 16, 0, len(MANY), MANY)
    with trio.CancelScope() as asker:
        house.workers.settings.watch("k", lambda setting: asker.cancel() if setting.name == "4" else None)
        await house.ask()
    assert asker.cancelled_caught
    await house.ask()
    assert [*follow.learned] == [setting.key for setting in MANY]
