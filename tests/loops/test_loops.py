"""dispatch, settle, renew, reap and purge over the shipped fakes; no thread and no socket, so the clock may jump."""

import io
import json
import random
from typing import Any

import pytest
import trio

from jqd.domain.backoff import Backoff
from jqd.domain.errors import JournalRefused, StaleOwner, StoreAway
from jqd.domain.job import INTERRUPTED, Fate, Job, Outcome, State
from jqd.domain.record import Lane, decode_outcomes
from jqd.loops.purge import Purge
from jqd.runner import Capacity, Runner, RunnerConfig, Stopped, WorkerRegistry, WorkerSpec, make_pool
from jqd.service.waiters import Waiters
from jqd.store import Claimed, JobView, Member, Purged
from tests.loops.house import House, house, offer, until
from tests.store.job_places import places_of


async def test_the_best_priority_goes_first_over_all_jobtypes_and_bounds_the_batch(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer(), "b": offer()}
        await here.add(*(Job(f"{n}", "a", priority=n) for n in range(4)), Job("x", "b", priority=2))
        await here.join(nursery)
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
        await here.join(nursery)
        await nursery.start(here.dispatch.run)
        await until(lambda: len(here.started) == 2)
        await trio.sleep(1)
        assert here.started == ["3", "5"]
        nursery.cancel_scope.cancel()


async def test_what_nobody_can_run_hides_nothing_that_somebody_can(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {f"t{n}": offer(priority_min=10, priority_max=20) for n in range(100)}
        await here.add(*(Job(f"{n:03}", f"t{n}") for n in range(100)), Job("a", "t7", priority=15))
        await here.add(Job("b", "t99", priority=12), Job("c", "t99", priority=21))
        await here.join(nursery)
        await nursery.start(here.dispatch.run)
        await until(lambda: len(here.started) == 2)
        await trio.sleep(1)
        assert here.started == ["b", "a"]
        nursery.cancel_scope.cancel()


async def test_nothing_is_claimed_before_joining_nor_without_a_free_worker(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.add(Job("1", "a"))
        await nursery.start(here.dispatch.run)
        await trio.sleep(5)
        here.runner.offers = {"a": offer()}
        await trio.sleep(5)
        assert here.started == []
        await here.join(nursery)
        await until(lambda: here.started == ["1"])
        nursery.cancel_scope.cancel()


async def test_a_job_with_a_date_starts_when_it_falls_due(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer()}
        await here.add(Job("1", "a", eligible_at_ms=here.clock.wall_ms() + 60_000))
        await here.join(nursery)
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

        async def lose(*args: object, **named: object) -> Claimed:
            held = await claim(*args, **named)  # type: ignore[arg-type]
            if lost:
                raise lost.pop()
            return held

        here.store.get_waiting_jobs = lose  # type: ignore[method-assign]
        await here.join(nursery)
        await nursery.start(here.dispatch.run)
        await until(lambda: here.started == ["1"])
        assert not here.claims.reply_lost
        nursery.cancel_scope.cancel()


async def test_jobs_of_a_claim_that_is_done_after_its_caller_gave_up_are_given_back_and_run(
    autojump_clock: None,
) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await nursery.start(here.dispatch.run)
        owner = await here.wait_claimable()
        await here.add(Job("1", "a"))
        # Nobody waits for this one any more: the network kept it until its caller had compared and gone on.
        await here.store.get_waiting_jobs(owner, "a", 9, priority_min=0, priority_max=0, bytes_max=1 << 20)
        here.runner.offers = {"a": offer()}
        with trio.fail_after(here.membership.config.lease_s + 1):
            await until(lambda: here.started == ["1"])
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["taken for dead", "the store went back", "we stood still"])
async def test_the_answer_to_a_claim_of_a_seat_that_was_lost_meanwhile_starts_nothing(
    autojump_clock: None, how: str
) -> None:
    """A store that went back may know our seat still, and not who took it from us and ran the job."""
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        await here.add(Job("1", "a"))
        claim, asked, heard = here.store.get_waiting_jobs, trio.Event(), trio.Event()

        async def answer_late(*args: object, **named: object) -> Claimed:
            held = await claim(*args, **named)  # type: ignore[arg-type]
            asked.set()
            await heard.wait()
            return held

        here.store.get_waiting_jobs = answer_late  # type: ignore[method-assign]
        here.runner.offers = {"a": offer()}
        await nursery.start(here.dispatch.run)
        await asked.wait()
        here.runner.offers = {}
        life = here.membership.life
        if how == "taken for dead":
            counter, epoch, _ = places_of(here.store).members()[owner.sysid]
            assert await here.store.reap(owner.sysid, Member(counter, epoch, through=True), 9) == 1
            await until(lambda: here.membership.joined_as not in (None, owner) and here.membership.trusts())
        elif how == "we stood still":  # and the store may have gone back without that anybody sees it by its life
            here.clock.suspend(here.membership.config.lease_s + 1)
            await until(here.membership.trusts)
        else:
            await here.store.new_life(str(life))
            await until(lambda: here.membership.joined_as == owner and here.membership.life != life)
        heard.set()
        await trio.sleep(1)
        assert here.started == [], "the new seat's trust does not cover what the old one claimed"
        view = await here.store.get_job("1")
        assert isinstance(view, JobView)
        assert view.state is State.WAITING, "it went back"
        nursery.cancel_scope.cancel()


def without_turn(here: House) -> tuple[Any, WorkerRegistry]:
    """A runner that nobody runs, in that house: its jobs wait to be sent."""
    workers = WorkerRegistry(None, clock=here.clock)
    workers.register(WorkerSpec(name="w", url="http://127.0.0.1:9/", max_jobs=10))
    config = RunnerConfig()
    runner: Any = Runner(
        config,
        workers=workers,
        clock=here.clock,
        source=random.Random(1),
        trusts=lambda: True,
        backoff=Backoff(),
        daemon="",
        pool=make_pool(config, 1),
        capacity=Capacity(config, workers, random.Random(1), here.clock),
    )
    here.claims.runner = here.settle._runner = runner
    return runner, workers


async def test_a_job_that_was_never_sent_does_not_begin_late(autojump_clock: None) -> None:
    """It was claimed in time and waited for a turn until it was too late; then its daemon handed back all it had."""
    async with house() as here, trio.open_nursery() as nursery:
        runner, workers = without_turn(here)
        expires_at_ms = here.clock.wall_ms() + 30_000
        await here.add(Job("1", "a", expires_at_ms=expires_at_ms), Job("2", "a"))
        await here.join(nursery)
        await nursery.start(here.settle.run)
        await nursery.start(here.settle.run_returns)
        await nursery.start(here.dispatch.run)
        await until(lambda: here.started == ["1", "2"])
        workers.unregister(workers.list()[0].id)
        await until(lambda: here.clock.wall_ms() > expires_at_ms)
        runner.stop_work()
        await until(lambda: runner.get_running_jobs() == {})
        views = [await here.store.get_job(job_id) for job_id in ("1", "2")]
        assert [view.state for view in views if isinstance(view, JobView)] == [State.FAILED, State.WAITING]
        nursery.cancel_scope.cancel()


async def test_a_job_that_is_given_anew_while_it_is_at_work_counts_once_for_each_claim(autojump_clock: None) -> None:
    """As by a store that lost the claim: the runner drops the void attempt, which stops as any other does."""
    async with house() as here, trio.open_nursery() as nursery:
        runner, workers = without_turn(here)
        await here.add(Job("1", "a"))
        await here.join(nursery)
        await nursery.start(here.settle.run)
        await nursery.start(here.dispatch.run)
        await until(lambda: here.started == ["1"])
        owner = await here.wait_claimable()
        await here.store.release_jobs(owner, places_of(here.store).in_flight(owner.sysid))
        await until(lambda: here.started == ["1", "1"])
        await until(lambda: here.scheduler.running() == {"a": 1})
        workers.unregister(workers.list()[0].id)
        runner.stop_work()
        await until(lambda: here.scheduler.running() == {})
        nursery.cancel_scope.cancel()


async def test_outcomes_go_to_the_journal_and_are_offered_again_until_it_takes_them(
    autojump_clock: None, logged: io.StringIO
) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        write, refusals = here.journal.write, [JournalRefused("full", full=True)] * 3

        def refuse(*args: Any, **how: Any) -> int:
            if refusals:
                raise refusals.pop()
            return write(*args, **how)

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
        assert here.runner.out_of_hand_ids == []  # in flight until the store knows
        events = [json.loads(line)["event"] for line in logged.getvalue().splitlines()]
        assert [event for event in events if event.startswith("outcomes")] == ["outcomes.refused", "outcomes.goes_on"]
        nursery.cancel_scope.cancel()


async def test_while_the_journal_takes_nothing_what_it_promises_nobody_goes_back_all_the_same(
    autojump_clock: None,
) -> None:
    """An interrupted job would lie in this hand for as long as the disk is full, and cost a death when we stop."""
    async with house() as here, trio.open_nursery() as nursery:
        await here.add(Job("1", "a"), Job("2", "a"), Job("3", "a"))
        await here.join(nursery)
        owner = await here.wait_claimable()
        held = await here.store.get_waiting_jobs(owner, "a", 3, priority_min=0, priority_max=0, bytes_max=1000)
        here.scheduler.jobs_started("a", 3)
        write, is_full = here.journal.write, True

        def refuse(*args: Any, **how: Any) -> int:
            if is_full:
                raise JournalRefused("full", full=True)
            return write(*args, **how)

        here.journal.write = refuse  # type: ignore[method-assign]
        await nursery.start(here.settle.run)
        await nursery.start(here.settle.run_returns)
        done, cut = [
            Outcome(one.job.id, one.fence, fate, "a", 0, 1, reason=reason)
            for one, fate, reason in zip(held, (Fate.SUCCEEDED, Fate.RETRY), ("", INTERRUPTED), strict=False)
        ]
        here.runner.stop(Stopped([done, cut], []))
        await until(lambda: cut.job_id in here.runner.out_of_hand_ids)
        here.runner.stop(Stopped([], held[2:]))  # it has stopped since
        await until(lambda: len(here.runner.out_of_hand_ids) == 2)
        assert places_of(here.store).in_flight(owner.sysid) == {done.job_id: done.fence}
        assert (here.scheduler.running(), here.settle.unwritten) == ({}, 1), "this alone waits for the disk"
        is_full = False
        await until(lambda: len(here.runner.out_of_hand_ids) == 3)
        assert here.settle.pending == 0
        nursery.cancel_scope.cancel()


async def test_untried_jobs_go_back_to_the_store_also_when_it_was_away(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.add(Job("1", "a"))
        await here.join(nursery)
        owner = await here.wait_claimable()
        held = await here.store.get_waiting_jobs(owner, "a", 1, priority_min=0, priority_max=0, bytes_max=1000)
        here.scheduler.jobs_started("a", 1)
        here.store.away = "cable"
        await nursery.start(here.settle.run)
        await nursery.start(here.settle.run_returns)
        here.runner.stop(Stopped([], held))
        await until(lambda: here.settle.backoff.reason is not None)
        assert (here.settle.pending, here.viewed > 0) == (1, True)  # before they go back, or others send them there
        here.store.away = None
        await until(lambda: here.runner.out_of_hand_ids == ["1"])
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
                await other.join(inner)
                owner = await other.wait_claimable()
                assert await here.store.get_waiting_jobs(owner, "a", 1, priority_min=0, priority_max=0, bytes_max=1000)
                life.cancel()
        died_s = trio.current_time()
        await here.join(nursery)
        await nursery.start(here.reap.run)
        while (await here.store.stats()).waiting == 0:
            await trio.sleep(0.1)
        config = here.membership.config
        assert config.lease_s < trio.current_time() - died_s <= config.lease_s + 2 * config.renew_s
        assert not other.membership.trusts()
        nursery.cancel_scope.cancel()


async def test_trust_ends_before_others_may_take_over_and_work_is_stopped(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.membership.wait_trusted()
        stops, here.store.away = here.runner.stops, "cable"
        await until(lambda: here.runner.stops > stops)
        assert not here.membership.trusts()
        assert here.membership.owner is not None  # doubt drops nothing: it may still prove ours
        here.store.away = None
        await here.membership.wait_trusted()
        nursery.cancel_scope.cancel()


async def test_work_of_a_daemon_that_alone_reaches_its_store_goes_on_until_it_resigns(autojump_clock: None) -> None:
    """Nobody else can have its jobs; new ones do not start."""
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.membership.wait_trusted()
        stops, here.store.away = here.runner.stops, "cable"
        await trio.sleep(10 * here.membership.config.lease_s)
        assert not here.membership.trusts()
        here.store.away = None
        await here.membership.wait_trusted()
        assert here.runner.stops == stops
        here.membership.resigned()
        await until(lambda: here.runner.stops > stops)
        nursery.cancel_scope.cancel()


async def test_a_burnt_daemon_rejoins_under_a_new_epoch(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        await trio.sleep(1)  # between two renewals
        members = (await here.store.renew_sysid(owner, through=True)).members
        await here.store.reap("d1", members["d1"], 10)
        with pytest.raises(StaleOwner):
            await here.store.renew_sysid(owner, through=True)
        await until(lambda: here.membership.owner not in (None, owner))
        assert here.membership.owner is not None
        assert here.membership.owner.epoch > owner.epoch
        assert await here.wait_claimable() == here.membership.owner
        nursery.cancel_scope.cancel()


async def test_purge_clears_the_store_and_survives_one_that_is_away(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        purge, rows = Purge(store=here.store, source=random.Random(1)), [3, 2, 0]

        async def purge_rows(limit: int) -> Purged:
            await here.store.stats()
            return Purged(rows.pop(0) if rows else 0, 0)

        here.store.purge = purge_rows  # type: ignore[method-assign]
        here.store.away = "cable"
        await nursery.start(purge.run)
        await until(lambda: purge.backoff.reason is not None)
        assert rows == [3, 2, 0]
        here.store.away = None
        await until(lambda: not rows)
        assert purge.backoff.reason is None
        nursery.cancel_scope.cancel()


async def test_bells_ring_for_those_who_wait() -> None:
    endings = Waiters()
    with endings.waiting("1") as one, endings.waiting("1") as two, endings.waiting("2") as other:
        endings.ring(["1", "3"])
        assert (one.is_set(), two.is_set(), other.is_set()) == (True, True, False)
    endings.ring(["1"])
