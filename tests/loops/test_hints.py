"""Looks at what waits: at hints, at dates, and now and then; and how soon what came is claimed."""

import pytest
import trio
import trio.testing

from jqd.domain.job import Fate, Job, Outcome, Wanted
from jqd.loops.claims import IDLE_S, QUIET_SHARE, UNWANTED_S
from jqd.loops.rows import Row
from jqd.store import Claimed
from tests.loops.house import offer, until
from tests.loops.sides import running


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


async def test_a_job_that_comes_with_a_better_one_for_another_worker_is_claimed_at_once(autojump_clock: None) -> None:
    async with running() as sides:
        side, jobs = sides.sides[0], [Job("first", "a", priority=1), Job("second", "a", priority=9)]
        side.runner.offers = {"a": offer(priority_min=5)}
        await trio.sleep(60.02)
        await side.store.apply_jobs("cd" * 16, 0, 1, jobs)
        began_s = trio.current_time()
        side.claims.note_new_jobs(jobs)
        await until(lambda: "second" in sides.started)
        assert trio.current_time() - began_s < IDLE_S / 4


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.ENTRUSTED, Fate.DEAD, Fate.RETRY])
async def test_an_end_by_which_nothing_becomes_ready_causes_no_look(autojump_clock: None, fate: Fate) -> None:
    async with running() as sides:
        claims = sides.sides[0].claims
        assert not claims.is_stale
        claims.note_outcomes([Outcome("0", 1, Fate.SUCCEEDED, "a", 0, 1), Outcome("1", 1, fate, "a", 0, 1)])
        assert claims.is_stale is (fate is Fate.RETRY)


async def test_batch_after_batch_is_claimed_without_a_look_for_a_while(autojump_clock: None) -> None:
    look, claim = "get_waiting_jobtypes", "get_waiting_jobs"
    async with running() as sides:
        side = sides.sides[0]
        side.runner.offers = {"a": offer(), "b": offer()}
        await trio.sleep(1)
        side.called.clear()
        jobs = [Job(f"{number:02}", "ab"[number % 2], priority=number // 50) for number in range(95)]
        await side.store.apply_jobs("cd" * 16, 0, 95, jobs)
        side.claims.wake()
        await until(lambda: len(sides.started) == 95)
        assert side.called.count(look) <= side.called.count(claim) // 2
        assert {jobtype for _, jobtype, _ in side.runner.given[:2]} == {"a", "b"}, "of equal ones each has its turn"
        assert {int(one) // 50 for one in sides.started[:50]} == {0}, "none was claimed before a better one"
        side.hangs = {claim: IDLE_S}
        side.called.clear()
        await side.add(*(Job(f"a{number:02}", "a") for number in range(30)))
        await until(lambda: len(sides.started) == 125)
        assert side.called.count(look) >= 2, "rows get old"


@pytest.mark.parametrize("change", ["none", "room", "better", "behind", "of another type", "late", "look"])
async def test_room_and_jobs_that_come_cause_a_look_where_the_rows_say_too_little(
    autojump_clock: None, change: str
) -> None:
    async with running() as sides:
        side = sides.sides[0]
        side.runner.offers = {"a": offer(priority_min=5)}
        side.claims.rows = rows = [Row("a", 5, "1", 20, False, 5, side.claims)]
        side.claims._wanted, side.claims._hold_until_s = side.runner.wanted(), sides.clock.mono_s() + 1
        assert (side.claims.is_stale, side.claims.is_fresh) == (False, False)
        if change == "room":
            side.runner.offers["b"] = offer()
        elif change == "late":
            side.claims._hold_until_s = sides.clock.mono_s()
        elif change == "look":
            side.claims.since_s = 0.0
        if change in ("better", "behind", "of another type"):
            priority = 4 if change == "better" else 6
            side.claims.note_new_jobs([Job("2", "b" if change == "of another type" else "a", priority=priority)])
        else:
            side.claims.note_free_slot()
        is_known = change in ("none", "behind")
        assert (side.claims.is_stale, side.claims.is_fresh) == (not is_known, is_known)
        assert side.claims.rows == ([rows[0]._replace(waiting=21)] if change == "behind" else rows)


async def test_a_claim_that_finds_nothing_while_jobs_come_drops_its_row(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as sides:
        side = sides.sides[0]

        async def took(*_: object, **__: object) -> Claimed:
            monkeypatch.undo()
            await side.add(Job("2", "a"))
            return Claimed()

        monkeypatch.setattr(side.store, "get_waiting_jobs", took)
        await side.add(Job("1", "a"))
        await until(lambda: sides.started == ["1", "2"])


async def test_a_row_whose_best_jobs_are_gone_lets_no_worse_ones_overtake(autojump_clock: None) -> None:
    async with running() as sides:
        side = sides.sides[0]
        await trio.sleep(1)
        jobs = [Job(f"a{n}", "a", priority=7 if n else 1) for n in range(9)]
        jobs += [Job(f"b{n}", "b", priority=20 if n > 2 else 5) for n in range(6)]
        await side.store.apply_jobs("cd" * 16, 0, len(jobs), jobs)
        side.runner.offers = {"a": offer(jobs_max=1), "b": offer(jobs_max=1)}
        side.claims.wake()
        await until(lambda: len(sides.started) == len(jobs))
        of = {job.id: job.priority for job in jobs}
        assert [of[one] for one in sides.started] == sorted(of.values())


async def test_what_comes_while_a_look_is_under_way_is_looked_for_once_more(autojump_clock: None) -> None:
    async with running() as sides:
        claims = sides.sides[0].claims
        await trio.sleep(1)
        for is_claiming in True, False:
            claims.rows = [Row("a", 0, "x", 1, suspect=False, rank=0, claims=claims)]
            claims.is_stale, claims._found_none = False, False
            claims._hold_until_s, claims.since_s = trio.current_time() + 1e6, trio.current_time()
            claims.is_claiming = is_claiming
            claims.note_new_jobs([Job("1", "a", priority=1)])
            assert claims.is_stale is not is_claiming
        claims.since_s = None


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
