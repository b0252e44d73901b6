"""Two daemons at one store: what ends the other's jobs stays as long as those may be applied again, and no longer."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio
from structlog.testing import capture_logs

from jqd.domain.job import Fate, Outcome, State
from jqd.domain.record import Lane, encode_cancels, encode_outcomes
from jqd.domain.settings import SettingTable
from jqd.journal import JournalConfig, open_journal
from jqd.loops.retention.horizon import EDIT_US, MARKS_MAX, Horizon
from jqd.loops.retention.partition import PartitionRetention
from jqd.loops.retention.retention import Retention
from jqd.loops.retention.standstill import WARN_S
from jqd.store import DurableReply, JobView, KeptJob, StoreConfig
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.loops.house import House, TrioClock, until
from tests.loops.segments import SEGMENT_BYTES, finish, push

OPEN_S = 120.0  # a segment is closed at that age
SLACK_S = EDIT_US / 1_000_000 + 30  # between the retirement of a job and the end of what ends it


class Home(NamedTuple):
    """A daemon, and what gives its journal's space back."""

    house: House
    retention: Retention

    async def move_in(self, nursery: trio.Nursery) -> None:
        await self.house.join(nursery)
        await nursery.start(self.retention.run)

    async def state(self, job_id: str) -> State | None:
        view = await self.house.store.get_job(job_id)
        return view.state if isinstance(view, JobView) else None


@asynccontextmanager
async def pair(**config: Any) -> AsyncIterator[tuple[Home, Home]]:
    """Two daemons that keep nothing they need not."""
    clock, homes = TrioClock(), []
    store = FakeStore(clock, StoreConfig(url="redis://fake"))
    async with AsyncExitStack() as stack:
        for number, name in enumerate("ab"):
            fields = {
                "retention_s": 0,
                "retention_bytes": 0,
                "commit_bytes_max": 1_000,
                "segment_age_s": OPEN_S,
            } | config
            settings = JournalConfig(directory=Path(f"/{name}"), segment_bytes=SEGMENT_BYTES, **fields)
            bytes_of = random.Random(number).randbytes
            journal = await stack.enter_async_context(
                open_journal(settings, clock=clock, files=MemoryFiles(), random_bytes=bytes_of)
            )
            house = House(journal, store if not number else store.another_client(), clock, name)
            keeper = PartitionRetention(house.store, house.membership, house.lanes)
            homes.append(
                Home(
                    house,
                    Retention(
                        journal=journal,
                        partitions=[keeper],
                        settings=SettingTable(),
                        clock=clock,
                        source=random.Random(2),
                    ),
                )
            )
        yield homes[0], homes[1]


async def test_what_ends_anothers_jobs_stays_as_long_as_they_may_be_applied_again(autojump_clock: None) -> None:
    async with pair() as (a, b), trio.open_nursery() as nursery:
        await a.move_in(nursery)
        await b.move_in(nursery)
        owner = await a.house.wait_claimable()
        (theirs, cancelled) = await push(b.house, 2)
        await b.house.lanes[Lane.JOBS].wait_caught_up(b.house.journal.end)
        journal = a.house.journal
        await journal.wsync(journal.write(Lane.CANCELS, 1, encode_cancels([cancelled])))
        ours = await push(a.house, 60)
        await finish(a.house, owner, set())
        segments = journal.stats().segments
        await trio.sleep(OPEN_S / 2)
        assert journal.retired > 0, "our own jobs are never applied again"
        assert journal.stats().segments == segments, "but what ended the other daemon's is needed"
        a.house.store.wipe()
        await a.house.wait_claimable()
        await trio.sleep(20)
        assert await a.state(theirs) is State.SUCCEEDED
        assert await a.state(cancelled) is State.CANCELLED
        assert {await a.state(job_id) for job_id in ours} <= {State.SUCCEEDED, None}
        await trio.sleep(OPEN_S + SLACK_S)
        assert b.house.journal.retired == b.house.journal.end, "of an idle daemon the open segment's too"
        assert journal.stats().segments == 1
        nursery.cancel_scope.cancel()


async def test_daemons_that_run_each_others_jobs_hold_each_other_up_for_a_while_only(autojump_clock: None) -> None:
    async with pair() as (a, b), trio.open_nursery() as nursery:
        await a.move_in(nursery)
        await b.move_in(nursery)
        for _ in range(3):
            await push(a.house, 20)
            await push(b.house, 20)
            for home in (a, b):
                await trio.sleep(5)
                await finish(home.house, await home.house.wait_claimable(), set())
        await trio.sleep(OPEN_S + SLACK_S)
        assert (a.house.journal.stats().segments, b.house.journal.stats().segments) == (1, 1)
        nursery.cancel_scope.cancel()


async def test_a_daemon_that_is_gone_is_not_waited_for_for_ever(autojump_clock: None) -> None:
    async with pair(others_s=300) as (a, b), trio.open_nursery() as nursery:
        await a.move_in(nursery)
        async with trio.open_nursery() as theirs:
            await b.move_in(theirs)
            await b.house.wait_claimable()
            await push(b.house, 1)
            await b.house.lanes[Lane.JOBS].wait_caught_up(b.house.journal.end)
            theirs.cancel_scope.cancel()
        owner = await a.house.wait_claimable()
        await push(a.house, 60)
        await finish(a.house, owner, set())
        await trio.sleep(200)
        assert a.house.journal.start == 0
        await trio.sleep(300)
        assert a.house.journal.stats().segments == 1
        nursery.cancel_scope.cancel()


async def test_a_restart_beside_an_emptied_store_gives_up_nobody_who_is_away(autojump_clock: None) -> None:
    """The store and we have forgotten what others told; who is not there yet tells nothing."""
    async with pair(others_s=300) as (a, b), trio.open_nursery() as nursery:
        async with trio.open_nursery() as before:
            await a.move_in(before)
            await b.move_in(before)
            await push(b.house, 1)
            await b.house.lanes[Lane.JOBS].wait_caught_up(b.house.journal.end)
            await push(a.house, 60)
            await finish(a.house, await a.house.wait_claimable(), set())
            before.cancel_scope.cancel()
        journal = a.house.journal
        a.house.store.wipe()
        journal.opened_at = journal.end  # as of a start now
        again = House(journal, a.house.store.another_client(), a.house.clock, "a")
        keeper = PartitionRetention(again.store, again.membership, again.lanes)
        a = Home(
            again,
            Retention(
                journal=journal,
                partitions=[keeper],
                settings=SettingTable(),
                clock=again.clock,
                source=random.Random(2),
            ),
        )
        await a.move_in(nursery)
        await trio.sleep(250)
        assert journal.retired > 0, "our own jobs are never applied again"
        assert journal.start == 0, "but what ended the other daemon's is needed"
        await trio.sleep(100)
        assert journal.stats().segments == 1, "not for ever"
        nursery.cancel_scope.cancel()


async def test_no_more_is_kept_for_others_than_was_allowed(autojump_clock: None) -> None:
    async with pair(others_bytes=2 * SEGMENT_BYTES, segment_age_s=3 * WARN_S) as (a, b), trio.open_nursery() as nursery:
        await a.move_in(nursery)
        await b.move_in(nursery)
        owner = await a.house.wait_claimable()
        await push(b.house, 1)
        said: list[Any] = []
        for _ in range(2):
            await push(a.house, 60)
            await finish(a.house, owner, set())
            with capture_logs() as log:
                await trio.sleep(WARN_S + 20)
            said += [line for line in log if line["event"] == "retention.held_for_others"]
        assert [(line["log_level"], line["journals"]) for line in said[-1:]] == [
            ("warning", [b.house.journal.journal_id])
        ]
        assert said[-1]["given_up_bytes"] > SEGMENT_BYTES
        assert a.house.journal.stats().bytes <= 4 * SEGMENT_BYTES
        assert a.house.journal.stats().bytes > SEGMENT_BYTES
        nursery.cancel_scope.cancel()


async def test_a_dead_job_comes_back_dead_when_the_store_lost_all(autojump_clock: None) -> None:
    async with pair() as (a, _), trio.open_nursery() as nursery:
        await a.move_in(nursery)
        owner = await a.house.wait_claimable()
        ids = await push(a.house, 60)
        await a.house.lanes[Lane.JOBS].wait_caught_up(a.house.journal.end)
        held = await a.house.store.get_waiting_jobs(owner, "a", 60, priority_min=0, priority_max=0, bytes_max=1 << 20)
        died, deleted = ids[3], ids[4]
        fates = {died: Fate.DEAD, deleted: Fate.DEAD}
        outcomes = [
            Outcome(h.job.id, h.fence, fates.get(h.job.id, Fate.SUCCEEDED), "a", 0, 1, message="it cannot")
            for h in held
        ]
        for outcome in outcomes:
            await finish_one(a.house, outcome)
        await a.house.store.delete_dead([deleted])
        await until(lambda: a.house.journal.stats().segments == 1)
        for _ in range(2):  # the second time what is left are copies of copies
            a.house.store.wipe()
            await trio.sleep(10)
            view = await a.house.store.get_job(died)
            assert isinstance(view, JobView)
            assert (view.state, view.outcome and view.outcome.message) == (State.FAILED, "it cannot")
            assert await a.house.store.unfinished([died, deleted], dead=True) == [died]
            owner = await a.house.wait_claimable()
            await push(a.house, 60)
            await finish(a.house, owner, set())
            await until(lambda: a.house.journal.stats().segments == 1)
        nursery.cancel_scope.cancel()


async def finish_one(house: House, outcome: Outcome) -> None:
    await house.journal.wsync(house.journal.write(Lane.OUTCOMES, 1, encode_outcomes([outcome])))
    await house.lanes[Lane.OUTCOMES].wait_caught_up(house.journal.end)


def test_marks_say_less_when_there_are_many_and_never_too_much() -> None:
    horizon, us = Horizon("us"), 1_000_000
    for second in range(1, 3 * MARKS_MAX):
        told = DurableReply(second * us // 2, second * us)
        horizon.note(
            KeptJob(second * us, 0, {"us": DurableReply(0, 0), "b": told}), applied=10 * second, written=10 * second + 5
        )
    assert len(horizon._marks) <= MARKS_MAX
    half = 3 * MARKS_MAX * 10 // 2
    unneeded = horizon.unneeded(60)
    assert unneeded is not None
    assert half * 0.9 < unneeded <= half
    assert EDIT_US < horizon.jobs_written_after(half) <= half // 10 * us
    assert horizon.jobs_written_after(0) == 0
    assert horizon.holders(half * 2, 60) == ["b"]
    assert horizon.holders(100, 60) == []
    horizon.note(KeptJob(9 * MARKS_MAX * us, 0, {"us": DurableReply(0, 0)}), applied=1, written=1)
    assert horizon.unneeded(60) is None, "it was not heard of any more"
