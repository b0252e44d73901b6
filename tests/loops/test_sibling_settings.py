"""Settings that the store does not have yet go to the other processes of a port."""

from pathlib import Path

import pytest
import trio
from msgspec import Raw

from jqd.domain.record import Lane, decode_rules, encode_rules
from jqd.domain.settings import Setting, SettingTable
from jqd.journal import Journal
from jqd.loops.settings import FOLLOW_S
from jqd.loops.sibling_settings import SYNC_S, SiblingSettings
from tests.harness.files import MemoryFiles
from tests.journal.conftest import opened


class Siblings:
    """Note what they are sent."""

    def __init__(self, journal: Journal, partitions: int = 1) -> None:
        self.sent: list[tuple[int, str]] = []
        self.away = set[int]()
        self.table = SettingTable(loading=True)
        self.table.loaded.set()
        self.loop = SiblingSettings(
            journal=journal, settings=self.table, partitions=partitions, siblings=[1, 2], send=self.send
        )

    async def send(self, number: int, frame: bytes) -> bool:
        await trio.lowlevel.checkpoint()
        if number not in self.away:
            self.sent += [(number, setting.name) for setting in decode_rules(frame)]
        return number not in self.away

    async def look(self) -> list[tuple[int, str]]:
        self.sent.clear()
        await self.loop.look()
        return sorted(self.sent)


async def save(journal: Journal, *names: str) -> None:
    for name in names:
        frame = encode_rules([Setting("kind", name, 1, 1, Raw(b"\x01"))])
        await journal.wsync(journal.write(Lane.RULES, 1, frame))


async def test_each_is_sent_once_what_some_partition_lacks_and_who_is_away_gets_it_later() -> None:
    async with opened(MemoryFiles()) as journal:
        siblings = Siblings(journal, partitions=2)
        await journal.wsync(journal.write(Lane.JOBS, 1, b"a job"))
        assert await siblings.look() == []
        await save(journal, "a", "b")
        siblings.away = {2}
        assert await siblings.look() == [(1, "a"), (1, "b")]
        assert await siblings.look() == []
        siblings.away.clear()
        await save(journal, "c")
        assert await siblings.look() == [(1, "c"), (2, "a"), (2, "b"), (2, "c")]
        await save(journal, "d")
        journal.rsync(Lane.RULES, journal.end, 0)
        assert await siblings.look() == [(1, "d"), (2, "d")], "one partition has it not"
        await save(journal, "e")
        for reader in range(2):
            journal.rsync(Lane.RULES, journal.end, reader)
        assert await siblings.look() == []


async def test_what_the_disk_does_not_give_is_sent_later_and_holds_up_no_other_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later one may revoke a token."""
    monkeypatch.setattr("jqd.journal.journal.RANGE_S", 0.05)
    files = MemoryFiles()
    async with opened(files, segment_bytes=50) as journal:
        siblings, real = Siblings(journal), files.open
        await save(journal, "a" * 60, "b" * 60, "c" * 60)
        bad = journal.segments[1].path
        with monkeypatch.context() as failing:
            failing.setattr(files, "open", lambda path: real(Path("/gone") if path == bad else path))
            assert [name[0] for _, name in await siblings.look()] == ["a", "c", "a", "c"]
            await save(journal, "d" * 60)
            assert [name[0] for _, name in await siblings.look()] == ["d", "d"]
        assert [name[0] for _, name in await siblings.look()] == ["b", "b"]
        assert await siblings.look() == []


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_store_that_is_there_is_asked_first_and_one_that_is_away_not_waited_for(
    autojump_clock: None, is_there: bool
) -> None:
    async with opened(MemoryFiles()) as journal:
        siblings = Siblings(journal)
        await save(journal, "a")
        async with trio.open_nursery() as nursery:
            await nursery.start(siblings.loop.run)
            await trio.sleep(SYNC_S / 2)
            assert siblings.sent == []
            if is_there:
                journal.rsync(Lane.RULES, journal.end)
                siblings.table.synced.set()
            await trio.sleep(SYNC_S / 2 + 2 * FOLLOW_S)
            assert sorted(siblings.sent) == ([] if is_there else [(1, "a"), (2, "a")])
            await save(journal, "b")
            await trio.sleep(2 * FOLLOW_S)
            assert (1, "b") in siblings.sent
            nursery.cancel_scope.cancel()
