"""A journal that takes no outcomes: nothing is claimed meanwhile, and after a minute others get what was in hand."""

import errno
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from jqd.domain.errors import JournalRefused, StoreAway
from jqd.domain.job import INTERRUPTED, Fate, Held, Outcome, State
from jqd.domain.record import Lane
from jqd.journal import JournalConfig, open_journal
from jqd.journal.commit import STALLED_S
from jqd.journal.thread import WriterThread
from jqd.loops.membership_state import Past
from jqd.recovery.recovery import PROBATION_S, RESIGN_S
from jqd.runner import Stopped
from jqd.store import Claimed
from tests.harness.files import MemoryFiles
from tests.loops.barred import claim, push, state
from tests.loops.house import House, TrioClock, house, offer, until


@dataclass
class Disk:
    """That of the daemon `bad`."""

    files: MemoryFiles = field(default_factory=MemoryFiles)
    hangs: trio.Event | None = None

    def dies(self, how: str) -> None:
        """`how`: it is mounted read-only, or gives errors where something is written, or does not answer."""
        if how == "hangs":
            self.hangs = trio.Event()
        else:
            calls = ("write",) if how == "writes fail" else ("create", "write", "overwrite", "sync", "truncate")
            self.files.fail = lambda call, _: errno.EIO if call in calls else None

    def is_back(self) -> None:
        self.files.fail = lambda call, number: None
        if self.hangs is not None:
            self.hangs.set()


@asynccontextmanager
async def beside(
    nursery: trio.Nursery, here: House, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[House, Disk]]:
    """Another daemon of the same store, with all its loops, and its disk."""
    disk, run = Disk(), WriterThread.run

    async def run_when_it_answers(thread: WriterThread, call: object) -> None:
        with trio.CancelScope(shield=True):
            if disk.hangs is not None and thread is bad.journal._thread:
                await disk.hangs.wait()
        await run(thread, call)  # type: ignore[arg-type]

    async with open_journal(JournalConfig(directory=Path("/bad")), clock=TrioClock(), files=disk.files) as journal:
        bad = House(journal, here.store.another_client(), TrioClock(), "d2")
        monkeypatch.setattr(WriterThread, "run", run_when_it_answers)
        for loop in (bad.settle.run, bad.settle.run_returns):
            await nursery.start(loop)
        await bad.join(nursery)
        await bad.wait_claimable()
        bad.runner.stops = here.runner.stops = 0  # at the first renewal there was no lease before
        try:
            yield bad, disk
        finally:
            disk.is_back()


async def ended(bad: House, held: Held, fate: Fate = Fate.SUCCEEDED, reason: str = "") -> None:
    """An attempt ends there."""
    bad.scheduler.jobs_started("a", 1)
    bad.runner.over.add(held.job.id)
    bad.runner.stop(Stopped([Outcome(held.job.id, held.fence, fate, "a", 0, 1, reason=reason)], []))
    await trio.sleep(1)


async def claimed(here: House, bad: House) -> list[Held]:
    """A job that is pushed here is claimed there."""
    await push(here)
    await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
    return await claim(bad, await bad.wait_claimable(), 1)


async def left(here: House, bad: House, disk: Disk) -> None:
    """Its disk dies, and it leaves a job to the others."""
    (held,) = await claimed(here, bad)
    disk.dies("read-only")
    await ended(bad, held)
    await until(lambda: bad.runner.stops)
    await until(lambda: bad.membership.through)


@pytest.mark.parametrize("how", ["read-only", "writes fail", "hangs"])
async def test_a_daemon_whose_disk_died_leaves_what_it_has_to_the_others(
    how: str, autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on claiming, and kept the ends of 20,000 jobs in memory, while it renewed its lease for ever."""
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        async with beside(nursery, here, monkeypatch) as (bad, disk):
            await until(lambda: here.membership.settled and bad.membership.settled)
            first, second, third = await push(here, 3)
            await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
            owner = bad.membership.owner
            assert owner is not None
            held = await claim(bad, owner, 2)
            assert [one.job.id for one in held] == [first, second]
            disk.dies(how)
            began_s = trio.current_time()
            await ended(bad, held[0])
            bad.runner.offers = here.runner.offers = {"a": offer()}
            await trio.sleep(STALLED_S)
            await nursery.start(bad.dispatch.run)
            assert "the journal takes no outcomes, so no job is started: " in str(bad.settle.reason)
            assert not bad.claims.may_claim
            await until(lambda: bad.runner.stops)
            assert RESIGN_S <= trio.current_time() - began_s <= RESIGN_S + 2
            await nursery.start(here.dispatch.run)
            await until(lambda: sorted(here.started) == sorted([first, second, third]))
            await until(lambda: bad.membership.through)
            assert bad.membership.owner != owner, "it came back, and holds nothing"
            owner = await bad.membership.wait_joined()
            await trio.sleep(3 * RESIGN_S)
            assert (bad.membership.owner, bad.started, len(here.started)) == (owner, [], 3), "that was all"
            assert here.membership.not_ready_reason() is None
            disk.is_back()
            await until(lambda: bad.settle.reason is None)
            for lane in bad.lanes.values():
                await lane.wait_caught_up(bad.journal.end)
            assert await state(here, first) is State.SUCCEEDED, "that it ended counts, though others run it again"
            assert await state(here, second) is State.RUNNING
            (later,) = await push(here)
            here.runner.offers = {}
            await until(lambda: bad.started == [later])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["a new life", "an older copy"])
async def test_what_was_left_to_others_is_not_taken_back_when_the_store_changes(
    how: str, autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It held what nobody had claimed yet for ever, and all claims stood for a minute for what others held.

    In an older copy these jobs are leased to it."""
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        async with beside(nursery, here, monkeypatch) as (bad, disk):
            await until(lambda: here.membership.settled and bad.membership.settled)
            first, second = await push(here, 2)
            await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
            owner = bad.membership.owner
            assert owner is not None
            held = await claim(bad, owner)
            image = here.store.image()
            disk.dies("read-only")

            async def refuse() -> None:
                raise JournalRefused("read-only", full=False)

            bad.runner.take_note = refuse
            bad.runner.over |= {first, second}
            bad.scheduler.jobs_started("a", 2)
            bad.runner.stop(Stopped([Outcome(one.job.id, one.fence, Fate.SUCCEEDED, "a", 0, 1) for one in held], []))
            await until(lambda: bad.runner.stops)
            await until(lambda: bad.membership.through and here.membership.settled)
            ours = await claim(here, await here.wait_claimable(), 1)
            assert [one.job.id for one in ours] == [first]
            life = here.membership.past
            assert isinstance(life, str)
            if how == "a new life":
                await here.store.new_life(life)
            else:
                here.store.restart(image)
            await until(lambda: here.membership.past not in (life, Past.START) and here.membership.settled)
            began_s = trio.current_time()
            await here.wait_claimable()
            await bad.membership.wait_joined()
            await until(lambda: bad.membership.settled)
            assert trio.current_time() - began_s < RESIGN_S / 2
            assert (await state(here, first), await state(here, second)) == (State.RUNNING, State.WAITING)
            disk.is_back()
            await until(lambda: bad.settle.reason is None)
            await bad.lanes[Lane.OUTCOMES].wait_caught_up(bad.journal.end)
            assert await state(here, second) is State.SUCCEEDED, "that it ended counts"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["read-only", "hangs"])
async def test_a_disk_that_takes_a_batch_now_and_then_gets_no_jobs_each_time(
    how: str, autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it claimed as many as its workers take, and left them to others a minute later: all ran twice."""
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        async with beside(nursery, here, monkeypatch) as (bad, disk):
            await left(here, bad, disk)
            disk.is_back()
            await until(lambda: bad.settle.since_s == math.inf)
            for share in (0.9, 0.5, 0.1):
                assert "must refuse nothing for 300 s first" in str(bad.settle.reason)
                await trio.sleep(share * PROBATION_S)
                disk.dies(how)
                with trio.move_on_after(2 * STALLED_S), suppress(JournalRefused):
                    await push(bad)
                disk.is_back()
                await until(lambda: bad.journal.refusing is None)
                again_s = trio.current_time()
            await until(lambda: bad.settle.reason is None)
            assert abs(trio.current_time() - again_s - PROBATION_S) < 5
        nursery.cancel_scope.cancel()


async def test_where_nobody_else_starts_jobs_they_are_not_left_and_started_at_once(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Daemons of one disk left each other what they had, and for up to an hour behind it none started any."""
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        async with beside(nursery, here, monkeypatch) as (bad, disk):
            await until(lambda: here.membership.settled and bad.membership.settled)
            bad.resting.add("d1")
            (held,) = await claimed(here, bad)
            disk.dies("read-only")
            await ended(bad, held)
            await trio.sleep(3 * RESIGN_S)
            assert bad.runner.stops == 0
            bad.resting.clear()
            await until(lambda: bad.runner.stops)
            await until(lambda: bad.membership.through)
            disk.is_back()
            await until(lambda: bad.settle.since_s == math.inf)
            await trio.sleep(5)
            assert "no job is started, as other daemons start them" in str(bad.settle.reason)
            bad.resting.add("d1")
            with trio.fail_after(5):
                await until(lambda: bad.settle.reason is None)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("who", ["alone", "sole"])
async def test_nobody_else_could_run_them(who: str, autojump_clock: None) -> None:
    async with house(sole=who == "sole") as here, trio.open_nursery() as nursery:
        for loop in (here.settle.run, here.settle.run_returns):
            await nursery.start(loop)
        await here.join(nursery)
        owner = await here.wait_claimable()
        (job_id,) = await push(here)
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        (held,) = await claim(here, owner)
        here.runner.stops = 0
        files = here.journal._files
        assert isinstance(files, MemoryFiles)
        disk = Disk(files)
        disk.dies("read-only")
        await ended(here, held, Fate.FAILED)
        await trio.sleep(3 * RESIGN_S)
        assert (here.runner.stops, here.membership.owner, here.claims.may_claim) == (0, owner, False)
        disk.is_back()
        await until(lambda: here.claims.may_claim)
        await here.lanes[Lane.OUTCOMES].wait_caught_up(here.journal.end)
        assert await state(here, job_id) is State.FAILED, "that was its only attempt"
        nursery.cancel_scope.cancel()


async def test_a_store_that_did_not_hear_that_we_leave_is_told_again(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        async with beside(nursery, here, monkeypatch) as (bad, disk):
            await until(lambda: here.membership.settled and bad.membership.settled)
            (job_id,) = await push(here)
            await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
            owner = bad.membership.owner
            assert owner is not None
            (held,) = await claim(bad, owner)
            disk.dies("read-only")
            await ended(bad, held)
            await trio.sleep(RESIGN_S - 5)
            bad.store.away = "the cable"
            await trio.sleep(7)
            bad.store.away = None
            await until(lambda: bad.membership.owner != owner)
            assert await state(here, job_id) is State.WAITING
        nursery.cancel_scope.cancel()


async def test_what_was_only_interrupted_goes_back_at_once(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        for loop in (here.settle.run, here.settle.run_returns):
            await nursery.start(loop)
        await here.join(nursery)
        owner = await here.wait_claimable()
        (job_id,) = await push(here)
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        (held,) = await claim(here, owner)
        files = here.journal._files
        assert isinstance(files, MemoryFiles)
        Disk(files).dies("read-only")
        await ended(here, held, Fate.RETRY, INTERRUPTED)
        assert await state(here, job_id) is State.WAITING
        assert (here.settle.since_s, here.claims.may_claim) == (math.inf, False), "the journal still takes nothing"
        files.fail = lambda call, number: None
        await until(lambda: here.claims.may_claim)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["its answer was lost", "it came late"])
async def test_what_was_claimed_unknown_to_us_goes_back_while_no_job_is_started(how: str, autojump_clock: None) -> None:
    """It stood as running for as long as the journal refused, or the daemon was drained."""
    async with house() as here, trio.open_nursery() as nursery:
        why: list[str] = []
        here.claims._barred = lambda: next(iter(why), None)
        here.runner.offers = {"a": offer()}
        take = here.store.get_waiting_jobs

        async def lose(*args: object, **named: object) -> Claimed:
            assert await take(*args, **named)  # type: ignore[arg-type]
            why.append("drained")
            raise StoreAway("the answer was lost")

        await here.join(nursery)
        owner = await here.wait_claimable()
        if how == "it came late":
            why.append("drained")
        else:
            here.store.get_waiting_jobs = lose  # type: ignore[method-assign]
        await nursery.start(here.dispatch.run)
        (job_id,) = await push(here)
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        if how == "it came late":
            await here.store.get_waiting_jobs(owner, "a", 9, priority_min=0, priority_max=0, bytes_max=1 << 20)
        else:
            here.claims.wake()
            await until(lambda: why)
        assert await state(here, job_id) is State.RUNNING
        await trio.sleep(here.membership.config.lease_s + 1)
        assert (await state(here, job_id), here.started) == (State.WAITING, [])
        nursery.cancel_scope.cancel()
