"""When a suspect is claimed: by a daemon that works, and the rule alone on a clock that is moved by hand."""

import trio

from jqd.domain.job import Fate, Job, Outcome
from jqd.loops.poison import EMPTYING_S, OTHERS, PoisonGuard
from jqd.store import Suspects
from jqd.testing.clock import ManualClock
from jqd.testing.store import FakeStore
from tests.loops.house import house, offer, until

ALONE_S = 60.0


async def blame(store: FakeStore, job: str) -> None:
    """That job was in flight at two deaths."""
    for number in range(2):
        owner = await store.reserve_sysid(f"dies-{number}", True, through=True)
        held = await store.get_waiting_jobs(owner, "a", 9, priority_min=0, priority_max=0, bytes_max=1 << 20)
        assert [one.job.id for one in held] == [job]
        seen = (await store.renew_sysid(owner, through=True)).members[owner.sysid]
        while await store.reap(owner.sysid, seen, 9):
            await trio.lowlevel.checkpoint()


async def test_a_suspect_waits_for_an_empty_hand_and_others_wait_for_it(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer(), "b": offer()}
        await here.join(nursery)
        await here.wait_claimable()
        await here.add(Job("1", "a"))
        await blame(here.store, "1")
        await here.add(Job("x", "b", priority=-1))
        await nursery.start(here.dispatch.run)
        await until(lambda: here.started == ["x"])
        await here.add(Job("2", "a"))
        await trio.sleep(1)
        assert here.started == ["x"], "our hand is not empty yet"
        ending = Outcome("x", here.runner.get_running_jobs()["x"], Fate.SUCCEEDED, "b", -1, 1)
        await here.store.apply_outcomes("cd" * 16, 0, 1, [ending])
        here.runner.forget([("x", ending.fence)])
        await until(lambda: here.started == ["x", "1"])
        await trio.sleep(30)
        assert "2" not in here.started, "nothing beside it"
        nursery.cancel_scope.cancel()


async def test_a_suspect_is_taken_in_company_when_the_hand_never_empties(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        here.runner.offers = {"a": offer(), "b": offer()}
        await here.join(nursery)
        await here.wait_claimable()
        await here.add(Job("1", "a"))
        await blame(here.store, "1")
        await here.add(Job("x", "b", priority=-1))
        await nursery.start(here.dispatch.run)
        await until(lambda: here.started == ["x"])
        await trio.sleep(EMPTYING_S - 1)
        assert here.started == ["x"]
        await until(lambda: here.started == ["x", "1"])
        await here.add(Job("2", "a"))
        await until(lambda: here.started == ["x", "1", "2"])
        nursery.cancel_scope.cancel()


def test_when_the_suspect_is_over_others_have_their_turn_first() -> None:
    clock = ManualClock()
    alone = PoisonGuard(clock, ALONE_S)
    clock.advance(1)
    assert alone.judge(suspect=False, empty=False, working=True) is Suspects.NONE
    assert alone.judge(suspect=True, empty=True, working=False) is Suspects.ALONE
    alone.taken(1)
    assert alone.judge(suspect=True, empty=False, working=True) is None
    clock.advance(2)
    assert alone.judge(suspect=True, empty=True, working=False) is Suspects.NONE
    clock.advance(2 * OTHERS - 0.5)
    assert alone.judge(suspect=True, empty=True, working=False) is Suspects.NONE
    clock.advance(1)
    assert alone.judge(suspect=True, empty=True, working=False) is Suspects.ALONE
    clock.advance(ALONE_S)
    assert alone.judge(suspect=False, empty=False, working=True) is Suspects.NONE, "whatever kills does it soon"


def test_a_suspect_that_another_daemon_took_holds_up_nobody() -> None:
    clock = ManualClock()
    alone = PoisonGuard(clock, ALONE_S)
    assert alone.judge(suspect=True, empty=True, working=False) is Suspects.ALONE
    alone.taken(5)
    assert alone.judge(suspect=False, empty=False, working=True) is Suspects.NONE


def test_a_hand_that_never_empties_takes_the_suspect_in_company() -> None:
    clock = ManualClock()
    alone = PoisonGuard(clock, ALONE_S)
    clock.advance(1)
    assert alone.judge(suspect=True, empty=False, working=True) is None
    assert alone.judge(suspect=False, empty=False, working=True) is Suspects.NONE, (
        "what is better goes first; the waiting begins anew"
    )
    clock.advance(EMPTYING_S - 1)
    assert alone.judge(suspect=True, empty=False, working=True) is None
    clock.advance(EMPTYING_S)
    assert alone.judge(suspect=True, empty=False, working=True) is Suspects.COMPANY
    assert alone.judge(suspect=True, empty=False, working=True) is Suspects.COMPANY, (
        "it is not waited for again so soon"
    )
