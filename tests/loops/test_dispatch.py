"""One dispatcher over several partitions: the best goes first over all, and who is away holds up only its own jobs."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from jqd.domain.job import Job, Wanted
from jqd.domain.lease import LeaseConfig
from jqd.domain.pauses import Paused
from jqd.domain.settings import SettingTable
from jqd.domain.tenant import annotate, tenant_of
from jqd.loops.claims import IDLE_S, QUIET_SHARE, UNWANTED_S, Claims
from jqd.loops.dispatch import MOMENT_S, TROUBLE_S, Dispatch
from jqd.loops.membership import Membership
from jqd.loops.poison import EMPTYING_S, SETTLING_S, PoisonGuard
from jqd.loops.store_standing import Known, Through
from jqd.rate_limits.constraints import Constraints
from jqd.runner.demand import Linger
from jqd.scheduler import Scheduler
from jqd.store import Renewed
from jqd.testing.store import FakeStore
from tests.loops.house import HandRunner, TrioClock, offer, until
from tests.loops.test_poison import blame

ALONE_S = 60.0


class Side:
    """One partition: its store, and what was started of it."""

    def __init__(self, number: int, clock: TrioClock, scheduler: Scheduler, told: list[str]) -> None:
        self.store, self.runner, self.number = FakeStore(clock), HandRunner(), number
        self.settings = SettingTable()
        self.runner.paused = Paused(self.settings)
        self.membership = Membership("d1", LeaseConfig(lease_s=9_000), clock, sole=True)
        self.called: list[str] = []
        self.drained: str | None = None
        self.hangs: dict[str, float] = {}  # by method: so long its answer takes
        runner: Any = self.runner
        self.claims = Claims(
            store=self._slow(),
            scheduler=scheduler,
            runner=runner,
            membership=self.membership,
            clock=clock,
            source=random.Random(1),
            started=lambda worker, held: told.extend(one.job.id for one in held),
            constraints=Constraints(SettingTable()),
            outdated=lambda: None,
            rules_at=lambda: 0,
            refresh_settings=trio.lowlevel.checkpoint,
            drained=lambda: self.drained,
        )
        self._jobs = 0

    def _slow(self) -> Any:
        side, store = self, self.store

        class Slow:
            def __getattr__(self, name: str) -> Any:
                async def call(*args: Any, **named: Any) -> Any:
                    side.called.append(name)
                    answer = await getattr(store, name)(*args, **named)
                    await trio.sleep(side.hangs.get(name, 0))
                    return answer

                return call

        return Slow()

    async def join(self) -> None:
        await self.store.look(fresh=True)
        owner = await self.store.reserve_sysid("d1", True, through=True)
        self.membership.owner = owner
        self.membership.state = Through(Known("life", 0, settled=True, waits_for=()), owner)
        self.membership.renewed(0, Renewed({}, True, []))

    async def add(self, *jobs: Job) -> None:
        await self.store.apply_jobs("ab" * 16, self._jobs, self._jobs + len(jobs), jobs)
        self._jobs += len(jobs)
        self.runner.offers |= {job.jobtype: offer() for job in jobs}
        self.claims.came(jobs)


class Sides:
    """Three partitions, and their one dispatcher."""

    def __init__(self) -> None:
        self.clock, self.started = TrioClock(), list[str]()
        scheduler = Scheduler()
        self.sides = [Side(number, self.clock, scheduler, self.started) for number in range(3)]
        claims = [side.claims for side in self.sides]
        self.dispatch = Dispatch(claims, scheduler, self.clock, PoisonGuard(self.clock, ALONE_S))


@asynccontextmanager
async def running() -> AsyncIterator[Sides]:
    sides = Sides()
    for side in sides.sides:
        await side.join()
    async with trio.open_nursery() as nursery:
        await nursery.start(sides.dispatch.run)
        await trio.sleep(1)
        yield sides
        nursery.cancel_scope.cancel()


async def test_the_best_goes_first_over_all_partitions_and_of_equals_the_oldest(autojump_clock: None) -> None:
    async with running() as sides:
        one, two, three = sides.sides
        for side in sides.sides:
            side.runner.offers = {}
        await one.store.apply_jobs("ab" * 16, 0, 3, [Job("a1", "a", priority=1), Job("a5", "a", priority=5)])
        await two.store.apply_jobs("ab" * 16, 0, 3, [Job("b3", "b", priority=3)])
        await three.store.apply_jobs("ab" * 16, 0, 3, [Job("c2", "a", priority=2), Job("c9", "a", priority=9)])
        for side in sides.sides:
            side.runner.offers = {"a": offer(), "b": offer()}
        await until(lambda: len(sides.started) == 5)
        assert sides.started == ["a1", "c2", "b3", "a5", "c9"], "also of one jobtype that waits in two partitions"


async def test_a_tenant_with_10_jobs_moves_on_beside_one_with_10000_older_ones(autojump_clock: None) -> None:
    async with running() as sides:
        side, batch = sides.sides[0], 100
        jobs = [Job(f"0{number:04}", annotate("acme", "a")) for number in range(10_000)]
        jobs += [Job(f"1{number:04}", annotate("zoo", "b")) for number in range(10)]
        for at in range(0, len(jobs), 2_000):
            await side.store.apply_jobs("ab" * 16, at, at + 2_000, jobs[at : at + 2_000])
        side.runner.offers = {
            one.jobtype: offer(jobs_max=batch, tenant=tenant_of(one.jobtype)) for one in (jobs[0], jobs[-1])
        }
        await until(lambda: len(sides.started) >= 3 * batch)
        assert sides.started[batch : 2 * batch] == [one.id for one in [*jobs[-10:], *jobs[batch : 2 * batch - 10]]]


async def test_a_daemon_that_is_drained_begins_nothing_until_it_is_resumed(autojump_clock: None) -> None:
    async with running() as sides:
        one, two, _ = sides.sides
        one.drained = "somebody drained it"
        await one.add(Job("a", "a"))
        await two.add(Job("b", "b"))
        await until(lambda: "b" in sides.started)
        await trio.sleep(60)
        assert sides.started == ["b"]
        one.drained = None
        await until(lambda: sides.started == ["b", "a"])


async def test_partitions_with_equal_jobs_are_claimed_from_side_by_side(autojump_clock: None) -> None:
    async with running() as sides:
        one, two, _ = sides.sides
        one.hangs = {"get_waiting_jobs": TROUBLE_S / 2}
        await one.add(Job("a", "a"))
        await two.add(Job("b", "b"))
        began_s = trio.current_time()
        await until(lambda: "b" in sides.started)
        assert trio.current_time() - began_s < TROUBLE_S / 4
        await until(lambda: "a" in sides.started)


@pytest.mark.parametrize("call", ["get_waiting_jobtypes", "get_waiting_jobs"])
async def test_a_partition_that_hangs_holds_up_worse_jobs_for_a_while_and_its_own_for_long(
    autojump_clock: None, call: str
) -> None:
    async with running() as sides:
        bad, good, _ = sides.sides
        bad.hangs = {call: 3_600}
        await bad.add(Job("lost", "a", priority=-1))
        await trio.sleep(0.01)
        for number in range(5):
            began_s = trio.current_time()
            await good.add(Job(f"{number}", "b"))
            await until(lambda number=number: f"{number}" in sides.started)  # type: ignore[misc]
            took_s = trio.current_time() - began_s
            assert took_s <= (MOMENT_S + IDLE_S if number else TROUBLE_S + IDLE_S) + 0.02
        assert "lost" not in sides.started


async def test_a_partition_that_is_away_or_slow_takes_no_time_from_others(autojump_clock: None) -> None:
    async with running() as sides:
        away, slow, good = sides.sides
        away.store.away = "cable"
        slow.hangs = {"get_waiting_jobtypes": MOMENT_S * 0.8}
        await trio.sleep(1)
        assert away.claims.backoff.reason is not None
        began_s = trio.current_time()
        for number in range(50):
            await good.add(Job(f"{number:02}", "b"))
            await until(lambda number=number: f"{number:02}" in sides.started)  # type: ignore[misc]
        assert trio.current_time() - began_s < 50 * 0.03, "a step of this test takes 0.01 s"
        away.store.away = None
        await away.add(Job("back", "a"))
        await until(lambda: "back" in sides.started)


async def test_who_cannot_claim_is_asked_nothing_and_who_idles_is_looked_at_now_and_then(autojump_clock: None) -> None:
    async with running() as sides:
        out, idle, busy = sides.sides
        out.membership.disturbed()
        await busy.add(*(Job(f"{number}", "b") for number in range(3)))
        busy.runner.offers = {"b": offer(priority_min=50)}
        idle.runner.offers = {"a": offer()}
        for is_alone, looks in ((False, 100), (True, 10)):  # within 5 s
            for side in sides.sides:
                side.membership.is_alone = is_alone
            await trio.sleep(2)
            for side in sides.sides:
                side.called.clear()
            await trio.sleep(5)
            assert out.called == []
            assert looks - 1 <= len(idle.called) <= looks + 2, "where nothing is ready a look is one call"
            assert looks + 9 <= len(busy.called) <= looks + 14, "two of them a second are two calls"


async def test_jobs_that_come_where_none_waits_are_claimed_without_a_look(autojump_clock: None) -> None:
    look, claim, seen = "get_waiting_jobtypes", "get_waiting_jobs", list[str]()
    async with running() as sides:
        side = sides.sides[0]
        for first in look, claim, claim:  # the first has met nobody who takes such a job
            await trio.sleep(1)
            side.called.clear()
            sides.started.clear()
            await side.add(Job(f"late {len(seen)}", "b", priority=2), Job(f"soon {len(seen)}", "a", priority=1))
            await until(lambda: len(sides.started) == 2)
            assert next(name for name in side.called if name in (look, claim)) == first
            seen += sides.started
        assert seen == ["soon 0", "late 0", "soon 2", "late 2", "soon 4", "late 4"]
        side.runner.offers = {}
        await side.store.apply_jobs("cd" * 16, 0, 1, [Job("best", "c", priority=0)])
        side.claims.wake()
        await trio.sleep(1)
        side.runner.offers = {"c": offer()}
        await side.add(Job("last", "a", priority=1))
        await until(lambda: len(sides.started) == 4)
        assert sides.started[2:] == ["best", "last"], "nobody wanted any when it came"


async def test_after_a_quiet_time_a_date_begins_on_time_and_a_lost_hint_costs_half_of_the_quiet_time(
    autojump_clock: None,
) -> None:
    async with running() as sides:
        side = sides.sides[1]
        await trio.sleep(60)
        due_s = trio.current_time() + 7.777
        await side.add(Job("dated", "a", eligible_at_ms=sides.clock.wall_ms() + 7777))
        await until(lambda: "dated" in sides.started)
        assert due_s <= trio.current_time() < due_s + 2 * IDLE_S
        side.claims.wake()
        await trio.sleep(1)
        await side.store.apply_jobs("cd" * 16, 0, 1, [Job("silent", "a")])
        began_s = trio.current_time()
        await until(lambda: "silent" in sides.started)
        assert trio.current_time() - began_s <= 1 / QUIET_SHARE + IDLE_S
        await trio.sleep(60)
        await side.store.apply_jobs("cd" * 16, 1, 2, [Job("late", "a")])
        began_s = trio.current_time()
        await until(lambda: "late" in sides.started)
        assert trio.current_time() - began_s <= UNWANTED_S


async def test_where_nobody_is_free_dates_are_looked_at_twice_a_second_and_who_comes_is_served_at_once(
    autojump_clock: None,
) -> None:
    async with running() as sides:
        side = sides.sides[0]
        await side.add(Job("far", "a", eligible_at_ms=sides.clock.wall_ms() + 3_600_000))
        side.runner.offers = {}
        await trio.sleep(1)
        side.called.clear()
        await trio.sleep(10)
        assert 10 <= len(side.called) <= 21, "20 times a second where somebody is free"
        await side.store.apply_jobs("cd" * 16, 0, 1, [Job("dated", "a", eligible_at_ms=sides.clock.wall_ms() + 60)])
        await trio.sleep(0.07)  # it is due, and another daemon's: nobody told us
        side.runner.offers = {"a": offer()}
        began_s = trio.current_time()
        side.claims.wake()  # a worker registers, or has room again
        await until(lambda: "dated" in sides.started)
        assert trio.current_time() - began_s < IDLE_S
        side.runner.offers = {}
        side.membership.is_alone = False
        await trio.sleep(3)
        await side.store.apply_jobs("cd" * 16, 1, 2, [Job("late", "b")])
        side.runner.offers = {"b": offer()}  # a back-off is over: nothing tells that
        began_s = trio.current_time()
        await until(lambda: "late" in sides.started)
        assert trio.current_time() - began_s < 2 * IDLE_S


async def test_where_no_worker_is_nothing_turns_but_twice_a_second_and_the_first_is_served_at_once(
    autojump_clock: None,
) -> None:
    async with running() as sides:
        for side in sides.sides:
            side.runner.offers, side.runner.is_served = {}, False
        await trio.sleep(1)
        rounds = sides.dispatch.rounds
        await trio.sleep(10)
        assert sides.dispatch.rounds - rounds <= 10 * 2 * (1 + len(sides.sides)), "a look tells when it is over"
        await sides.sides[1].store.apply_jobs("cd" * 16, 0, 1, [Job("another's", "a")])
        await trio.sleep(0.1)
        began_s = trio.current_time()
        for side in sides.sides:
            side.runner.offers, side.runner.is_served = {"a": offer()}, True
            side.claims.wake()
        await until(lambda: "another's" in sides.started)
        assert trio.current_time() - began_s < IDLE_S


async def test_looks_at_thousands_of_workers_leave_the_daemon_half_of_its_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as all_:
        side, looks = all_.sides[0], list[float]()

        def wanted() -> list[Wanted]:
            looks.append(trio.current_time())
            autojump_clock.jump(0.04)  # so long it takes here, and nothing else is done meanwhile
            return [Wanted("a")]

        side.runner.wanted = wanted  # type: ignore[method-assign]
        began_s = trio.current_time()
        while trio.current_time() < began_s + 4:
            side.claims.wake()  # somebody registers
            await trio.sleep(0.001)
        assert 45 <= len(looks) <= 52
        looks.clear()
        await trio.sleep(4)
        assert 5 <= len(looks) <= 11, "without a hint a tenth of it"


async def test_a_suspect_has_the_hand_of_all_partitions_for_itself(autojump_clock: None) -> None:
    async with running() as sides:
        one, two, _ = sides.sides
        await two.add(Job("0", "b"))
        await until(lambda: sides.started == ["0"])
        one.hangs = {"get_waiting_jobtypes": 1}  # until it is a suspect
        await one.add(Job("1", "a"))
        await blame(one.store, "1")
        one.hangs = {}
        await until(lambda: any(row.suspect for row in one.claims.rows))
        await two.add(Job("2", "b"))
        await trio.sleep(EMPTYING_S / 2)
        assert sides.started == ["0"], "all wait until our hand is empty"
        two.runner.forget([("0", 0)])
        await until(lambda: sides.started == ["0", "1"])
        await trio.sleep(ALONE_S - 1)
        assert sides.started == ["0", "1"], "nothing beside it"
        await until(lambda: sides.started == ["0", "1", "2"])


async def test_a_suspect_does_not_wait_for_a_partition_that_cannot_be_told_what_ended(autojump_clock: None) -> None:
    """One server is stopped with jobs of ours in flight: the suspect of another runs in company, and others behind
    it."""
    async with running() as sides:
        one, two, _ = sides.sides
        await two.add(Job("0", "b"))
        await until(lambda: sides.started == ["0"])
        two.runner.over.add("0")
        two.store.away = "stopped"
        one.hangs = {"get_waiting_jobtypes": 1}
        await one.add(Job("1", "a"))
        await blame(one.store, "1")
        one.hangs = {}
        await until(lambda: any(row.suspect for row in one.claims.rows))
        await one.add(Job("2", "c", priority=1))
        began_s = trio.current_time()
        await until(lambda: sides.started[1:] == ["1", "2"])
        assert SETTLING_S - 0.1 <= trio.current_time() - began_s < SETTLING_S + 4 * IDLE_S


async def test_jobs_behind_a_suspect_hold_up_no_other_partition(autojump_clock: None) -> None:
    """Others have their turn: what waits behind the suspect is claimed, and equal jobs elsewhere beside it."""
    async with running() as sides:
        one, two, _ = sides.sides
        one.hangs = {"get_waiting_jobtypes": 1}
        await one.add(Job("1", "a"))
        await blame(one.store, "1")
        sides.dispatch._alone._others_until_s = sides.clock.mono_s() + 100
        one.hangs = {"get_waiting_jobs": 0.01}
        await one.add(*(Job(f"2{number:03}", "a") for number in range(200)))
        one.runner.offers = {"a": offer(jobs_max=2)}
        await until(lambda: len(sides.started) > 1)
        await two.add(Job("3", "b"))
        await until(lambda: "3" in sides.started)
        assert sides.started.index("3") < 50


async def test_jobs_that_linger_are_claimed_the_moment_that_is_over(autojump_clock: None) -> None:
    """Between two looks, too: the real rule decides, on the dispatcher's clock. Other jobs go on meanwhile."""
    async with running() as all_:
        side, linger, began_s = all_.sides[0], Linger(), trio.current_time()
        given = side.runner.offer

        def offers(jobtype: str, priority: int, waiting: int | None = None) -> Any:
            waits = jobtype == "few" and linger.waits(jobtype, waiting, 5, 0.123, all_.clock.mono_s())
            return None if waits else given(jobtype, priority, waiting)

        side.runner.offer = offers  # type: ignore[method-assign]
        side.runner.linger_s = lambda: linger.next_s(all_.clock.mono_s())  # type: ignore[method-assign]
        await side.add(Job("a", "few", priority=1), Job("b", "other", priority=2))
        await until(lambda: "b" in all_.started)
        assert all_.started == ["b"]
        await until(lambda: "a" in all_.started)
        assert 0.123 <= trio.current_time() - began_s < 0.123 + IDLE_S / 5
