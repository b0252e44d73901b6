"""A journal that a newer jqd wrote: refused before anybody is disturbed, and never a reason to end when met later."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from jqd import daemon
from jqd.config import load
from jqd.journal import JournalConfig, open_journal
from jqd.loops import barrier
from jqd.testing.files import MemoryFiles
from jqd.testing.store import FakeStore
from jqd.words.errors import JournalVersion
from jqd.words.job import Fate, Outcome
from jqd.words.record import Head, Lane, encode_cancels, encode_jobs, encode_outcomes
from tests.journal.conftest import of_kind
from tests.loops.house import House, TrioClock, until

DIRECTORY = Path("/journal")
KIND = 9  # of no frame that this jqd knows

GOOD_JOBS = encode_jobs(Head("0" * 26, 1), msgspec.msgpack.encode([{"name": "t"}]))
LATER_JOBS = msgspec.msgpack.encode([{"first": "0" * 26, "at": 1}, [{"name": "t", "colour": "red"}]])
LATER_OUTCOMES = msgspec.msgpack.encode([["0" * 26, 1, 77, "t", 0, 1]])
OUTCOMES = encode_outcomes([Outcome("0" * 26, 1, Fate.SUCCEEDED, "t", 0, 1)])
CANCELS = encode_cancels(["0" * 26])

Frames = list[tuple[Lane, bytes]]


@asynccontextmanager
async def started_on(frames: Frames, newer: int | None = None) -> AsyncIterator[tuple[House, FakeStore]]:
    """A daemon that starts on such a journal, each frame in a segment of its own; `newer`: which is of a later kind."""
    clock, files = TrioClock(), MemoryFiles()
    config = JournalConfig(DIRECTORY, segment_bytes=1)
    async with open_journal(config, clock=clock, files=files) as journal:
        for lane, body in frames:
            await journal.wsync(journal.write(lane, 1, body))
    if newer is not None:
        of_kind(files.files[sorted(path for path in files.files if path.suffix == ".jqd")[newer]].content, 0, KIND)
    store = FakeStore(clock)
    async with open_journal(config, clock=clock, files=files) as journal:
        yield House(journal, store, clock), store


def leaf(error: BaseException) -> BaseException:
    return leaf(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


CASES: dict[str, tuple[Frames, int | None, str]] = {
    "a later kind": ([(Lane.JOBS, GOOD_JOBS), (Lane.JOBS, GOOD_JOBS), (Lane.CANCELS, CANCELS)], 1, "kind 9"),
    "a later field of a job": ([(Lane.JOBS, GOOD_JOBS), (Lane.JOBS, LATER_JOBS)], None, "colour"),
    "a later fate": ([(Lane.OUTCOMES, OUTCOMES), (Lane.OUTCOMES, LATER_OUTCOMES)], None, "outcomes frame"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("settled", [True, False])
async def test_a_start_on_what_a_newer_jqd_wrote_is_refused_before_a_seat_is_taken(
    name: str, settled: bool, autojump_clock: None
) -> None:
    frames, newer, what = CASES[name]
    async with started_on(frames, newer) as (here, store):
        await store.look(fresh=True)
        other = await store.reserve_sysid("other", False, through=True)
        if settled:
            await store.renew_sysid(other, through=True, settle=True)
        await store.applied(here.journal.journal_id)
        before = store.image()
        with trio.fail_after(60), pytest.raises(ExceptionGroup) as caught:
            async with trio.open_nursery() as nursery:
                await here.join(nursery)
        refused = leaf(caught.value)
        assert isinstance(refused, JournalVersion)
        said = str(refused)
        assert what in said
        assert ".jqd, byte 8192" in said
        assert "run the version that wrote it" in said
        assert store.image() == before, "the store is as if it had not come"


@pytest.mark.parametrize("name", ["a later kind", "a later field of a job"])
async def test_what_is_met_later_stops_its_lane_and_says_so(
    name: str, autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a long backlog, or in a segment that everybody had applied: nobody is stopped by it."""

    async def nothing(*_: Any) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(barrier, "expect_readable", nothing)
    frames, newer, what = CASES[name]
    async with started_on([*frames, (Lane.JOBS, GOOD_JOBS)], newer) as (here, store), trio.open_nursery() as nursery:
        await here.join(nursery)
        lane = here.lanes[Lane.JOBS]
        await until(lambda: lane.pace.reason is not None)
        assert what in str(lane.pace.reason)
        await trio.sleep(60)
        assert (await store.stats()).waiting == 1, "all before it is there, and nothing behind it"
        assert lane.position == 44 + len(GOOD_JOBS)
        nursery.cancel_scope.cancel()


async def test_a_daemon_says_so_and_ends(tmp_path: Path) -> None:
    config = load(environ={}, flags={"data_dir": str(tmp_path), "http.bind": "127.0.0.1:0"})
    async with open_journal(config.journal, clock=TrioClock()) as journal:
        await journal.wsync(journal.write(Lane.JOBS, 1, LATER_JOBS))

    with trio.fail_after(30), pytest.raises(JournalVersion, match="colour"):
        await daemon.serve(config)
