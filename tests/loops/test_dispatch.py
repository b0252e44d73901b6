"""One dispatcher over several partitions: the best goes first over all, and who is away holds up only its own jobs."""

from typing import Any

import pytest
import trio
import trio.testing

from jqd.domain.job import Job
from jqd.domain.tenant import annotate, tenant_of
from jqd.loops.claims import IDLE_S
from jqd.loops.dispatch import MOMENT_S, TROUBLE_S
from jqd.loops.poison import EMPTYING_S, SETTLING_S
from jqd.runner.demand import Linger
from tests.loops.house import offer, until
from tests.loops.sides import ALONE_S, running
from tests.loops.test_poison import blame


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
