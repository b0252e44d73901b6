"""dispatch, settle, renew, reap and purge over the shipped fakes; no thread and no socket, so the clock may jump."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from jqd.clock import ManualClock
from jqd.errors import JournalRefused, StaleOwner, StoreAway
from jqd.job import Fate, Held, Job, Outcome, State
from jqd.journal import Journal, JournalConfig, open_journal
from jqd.lease import LeaseConfig
from jqd.loops.dispatch import Dispatch
from jqd.loops.endings import Endings
from jqd.loops.membership import Membership
from jqd.loops.purge import PURGE_EVERY_S, Purge
from jqd.loops.reap import Reap
from jqd.loops.renew import Renew
from jqd.loops.settle import Settle
from jqd.record import Lane, decode_outcomes
from jqd.runner import Offer, Stopped
from jqd.scheduler import Scheduler
from jqd.store import JobView
from jqd.testing.files import MemoryFiles
from jqd.testing.store import FakeStore


class TrioClock(ManualClock):
    """Monotonic time as the test's own clock tells it."""

    def mono_s(self) -> float:
        return trio.current_time()


class HandRunner:
    """The runner's edge, by hand: offers what it is told, keeps what it is given."""

    def __init__(self) -> None:
        self.offers: dict[str, Offer] = {}
        self.given: list[tuple[str, str, list[Held]]] = []
        self.stopped = Stopped([], [])
        self.settled_ids: list[str] = []
        self.stops = 0
        self._bell = trio.Event()

    def wanted_jobtypes(self) -> frozenset[str] | None:
        return frozenset(self.offers)

    def offer(self, jobtype: str, priority: int) -> Offer | None:
        offer = self.offers.get(jobtype)
        return offer if offer and offer.priority_min <= priority <= offer.priority_max else None

    def run_jobs(self, worker_id: str, jobtype: str, held: Sequence[Held]) -> None:
        self.given.append((worker_id, jobtype, list(held)))

    def at_work(self, job_id: str) -> bool:
        return False

    def get_running_jobs(self) -> dict[str, int]:
        return {h.job.id: h.fence for _, _, held in self.given for h in held}

    def stop(self, stopped: Stopped) -> None:
        self.stopped = stopped
        self._bell.set()

    async def wait_stopped(self) -> None:
        await self._bell.wait()

    def get_stopped_jobs(self, limit: int) -> Stopped:
        self._bell = trio.Event()
        stopped, self.stopped = self.stopped, Stopped([], [])
        return stopped

    def settled(self, job_ids: Sequence[str]) -> None:
        self.settled_ids.extend(job_ids)

    def stop_work(self) -> None:
        self.stops += 1


class House:
    """One daemon's loops over one fake store."""

    def __init__(self, journal: Journal, store: FakeStore, clock: ManualClock, sysid: str = "d1") -> None:
        source = random.Random(3)
        self.store, self.clock, self.journal = store, clock, journal
        self.runner, self.scheduler = HandRunner(), Scheduler()
        self.membership = Membership(sysid, LeaseConfig(), clock)
        self.reap = Reap(store=store, membership=self.membership, clock=clock, source=source)
        self.renew = Renew(
            store=store,
            membership=self.membership,
            clock=clock,
            source=source,
            stop_work=self.runner.stop_work,
            seen=self.reap.seen,
        )
        self.started: list[str] = []
        self.dispatch = Dispatch(
            store=store,
            scheduler=self.scheduler,
            runner=self.runner,  # type: ignore[arg-type]
            membership=self.membership,
            clock=clock,
            source=source,
            started=lambda worker, held: self.started.extend(h.job.id for h in held),
        )
        self.settle = Settle(
            journal=journal,
            store=store,
            runner=self.runner,  # type: ignore[arg-type]
            scheduler=self.scheduler,
            membership=self.membership,
            source=source,
        )
        self._position = 0

    async def add(self, *jobs: Job) -> None:
        await self.store.apply_jobs("ab" * 16, self._position, self._position + 1, jobs)
        self._position += 1


@asynccontextmanager
async def house() -> AsyncIterator[House]:
    clock = TrioClock()
    config = JournalConfig(directory=Path("/journal"))
    async with open_journal(config, clock=clock, files=MemoryFiles()) as journal:
        yield House(journal, FakeStore(clock), clock)


def offer(jobs_max: int = 10, priority_min: int = -100, priority_max: int = 100) -> Offer:
    return Offer("w", jobs_max, 1 << 20, priority_min, priority_max)


async def until(holds: object) -> None:
    """Let tasks and the test's clock go on until `holds()`."""
    while not holds():  # type: ignore[operator]
        await trio.sleep(0.01)


async def test_the_best_priority_goes_first_over_all_jobtypes_and_bounds_the_batch(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer(), "b": offer()}
        await here.add(*(Job(f"{n}", "a", priority=n) for n in range(4)), Job("x", "b", priority=2))
        await nursery.start(here.renew.run)
        await nursery.start(here.dispatch.run)
        await until(lambda: len(here.started) == 5)
        assert here.started[:3] == ["0", "1", "2"]
        assert set(here.started) == {"0", "1", "2", "3", "x"}
        assert sum(here.scheduler.running().values()) == 5
        nursery.cancel_scope.cancel()


async def test_a_worker_gets_only_jobs_within_its_priorities(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer(priority_min=-100, priority_max=5)}
        await here.add(*(Job(f"{n}", "a", priority=n) for n in (3, 5, 7)))
        await nursery.start(here.renew.run)
        await nursery.start(here.dispatch.run)
        await until(lambda: len(here.started) == 2)
        await trio.sleep(1)
        assert here.started == ["3", "5"]
        nursery.cancel_scope.cancel()


async def test_nothing_is_claimed_before_joining_nor_without_a_free_worker(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.add(Job("1", "a"))
        await nursery.start(here.dispatch.run)
        await trio.sleep(5)
        here.runner.offers = {"a": offer()}
        await trio.sleep(5)
        assert here.started == []
        await nursery.start(here.renew.run)
        await until(lambda: here.started == ["1"])
        nursery.cancel_scope.cancel()


async def test_a_job_with_a_date_starts_when_it_falls_due(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer()}
        await here.add(Job("1", "a", eligible_at_ms=here.clock.wall_ms() + 60_000))
        await nursery.start(here.renew.run)
        await nursery.start(here.dispatch.run)
        await trio.sleep(2)
        assert here.started == []
        here.clock.set_wall_ms(here.clock.wall_ms() + 60_000)
        await until(lambda: here.started == ["1"])
        nursery.cancel_scope.cancel()


async def test_jobs_of_a_claim_whose_answer_was_lost_are_given_back_and_run(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer()}
        await here.add(Job("1", "a"))
        claim, lost = here.store.get_waiting_jobs, [StoreAway("answer lost")]

        async def lose(*args: object, **named: object) -> list[Held]:
            held = await claim(*args, **named)  # type: ignore[arg-type]
            if lost:
                raise lost.pop()
            return held

        here.store.get_waiting_jobs = lose  # type: ignore[method-assign]
        await nursery.start(here.renew.run)
        await nursery.start(here.dispatch.run)
        await until(lambda: here.started == ["1"])
        assert not here.dispatch.reply_lost
        nursery.cancel_scope.cancel()


async def test_outcomes_go_to_the_journal_and_are_offered_again_until_it_takes_them(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        write, refusals = here.journal.write, [JournalRefused("full", full=True)] * 3

        def refuse(lane: Lane, records: int, body: bytes) -> int:
            if refusals:
                raise refusals.pop()
            return write(lane, records, body)

        here.journal.write = refuse  # type: ignore[method-assign]
        await nursery.start(here.settle.run)
        here.scheduler.jobs_started("a", 1)
        outcome = Outcome("1", 7, Fate.SUCCEEDED, "a", 0, 1)
        here.runner.stop(Stopped([outcome], []))
        await until(lambda: here.journal.end > 0)
        token = here.journal.read_reserve(Lane.OUTCOMES, 10)
        assert token is not None
        (piece,) = await here.journal.read(token)
        assert decode_outcomes(piece.body) == [outcome]
        assert here.scheduler.running() == {}
        assert here.runner.settled_ids == []  # in hand until the store knows
        nursery.cancel_scope.cancel()


async def test_untried_jobs_go_back_to_the_store_also_when_it_was_away(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.add(Job("1", "a"))
        await nursery.start(here.renew.run)
        owner = await here.membership.wait_trusted()
        held = await here.store.get_waiting_jobs(owner, "a", 1, priority_min=0, priority_max=0, bytes_max=1000)
        here.scheduler.jobs_started("a", 1)
        here.store.away = "cable"
        await nursery.start(here.settle.run)
        await nursery.start(here.settle.run_returns)
        here.runner.stop(Stopped([], held))
        await until(lambda: here.settle.pace.reason is not None)
        assert here.settle.pending == 1
        here.store.away = None
        await until(lambda: here.runner.settled_ids == ["1"])
        view = await here.store.get_job("1")
        assert isinstance(view, JobView)
        assert (view.state, view.attempts) == (State.WAITING, 0)
        nursery.cancel_scope.cancel()


async def test_a_dead_daemons_jobs_are_ready_again_after_a_lease(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        other = House(here.journal, here.store, here.clock, "d2")
        await here.add(Job("1", "a"))
        with trio.CancelScope() as life:
            async with trio.open_nursery() as inner:
                await inner.start(other.renew.run)
                owner = await other.membership.wait_trusted()
                assert await here.store.get_waiting_jobs(owner, "a", 1, priority_min=0, priority_max=0, bytes_max=1000)
                life.cancel()
        died_s = trio.current_time()
        await nursery.start(here.renew.run)
        await nursery.start(here.reap.run)
        while (await here.store.stats()).waiting == 0:
            await trio.sleep(0.1)
        config = here.membership.config
        assert config.lease_s < trio.current_time() - died_s <= config.lease_s + 2 * config.renew_s
        assert not other.membership.trusts()
        nursery.cancel_scope.cancel()


async def test_trust_ends_before_others_may_take_over_and_work_is_stopped(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await nursery.start(here.renew.run)
        await here.membership.wait_trusted()
        here.store.away = "cable"
        await until(lambda: here.runner.stops > 0)
        assert not here.membership.trusts()
        assert here.membership.owner is not None  # doubt drops nothing: it may still prove ours
        here.store.away = None
        await here.membership.wait_trusted()
        nursery.cancel_scope.cancel()


async def test_a_burnt_daemon_rejoins_under_a_new_epoch(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await nursery.start(here.renew.run)
        owner = await here.membership.wait_trusted()
        members = await here.store.renew_sysid(owner)
        await here.store.reap("d1", members["d1"], 10)
        with pytest.raises(StaleOwner):
            await here.store.renew_sysid(owner)
        await until(lambda: here.membership.owner not in (None, owner))
        assert here.membership.owner is not None
        assert here.membership.owner.epoch > owner.epoch
        assert here.runner.stops > 0
        nursery.cancel_scope.cancel()


async def test_purge_clears_store_and_journal_and_survives_a_store_that_is_away(autojump_clock: None) -> None:
    clock = TrioClock()
    config = JournalConfig(directory=Path("/j"), segment_bytes=10, retention_s=0, retention_bytes=0)
    async with open_journal(config, clock=clock, files=MemoryFiles()) as journal, trio.open_nursery() as nursery:
        for _ in range(4):
            await journal.wsync(journal.write(Lane.JOBS, 1, b"x" * 20))
        store = FakeStore(clock)
        store.away = "cable"
        applied: list[int | None] = [None]
        purge = Purge(journal=journal, store=store, applied=lambda: applied[0], source=random.Random(1))
        await nursery.start(purge.run)
        await until(lambda: purge.pace.reason is not None)
        store.away = None
        await until(lambda: purge.pace.reason is None)
        assert journal.stats().segments == 4
        applied[0] = journal.end
        await trio.sleep(2 * PURGE_EVERY_S)
        assert journal.stats().segments == 1
        nursery.cancel_scope.cancel()


async def test_bells_ring_for_those_who_wait() -> None:
    endings = Endings()
    with endings.waiting("1") as one, endings.waiting("1") as two, endings.waiting("2") as other:
        endings.ring(["1", "3"])
        assert (one.is_set(), two.is_set(), other.is_set()) == (True, True, False)
    endings.ring(["1"])
