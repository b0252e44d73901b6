"""A machine is suspended: its monotonic clock and its timers stand still, all others go on."""

import time
from typing import Any

import trio
import trio.testing

from jqd.domain.clock import SystemClock
from jqd.loops.heartbeat import DOUBT_S
from jqd.store import Owner, Renewed
from tests.loops.house import house, until


async def test_a_lease_that_ran_out_while_suspended_is_not_trusted_for_a_moment(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.wait_claimable()
        await trio.testing.wait_all_tasks_blocked()
        stops = here.runner.stops
        here.store.away = "no network yet"
        here.clock.suspend(here.membership.config.lease_s)
        assert not here.membership.trusts()
        await trio.sleep(1.1 * DOUBT_S)
        assert here.runner.stops == stops + 1, "its timer stood still, and it is stopped all the same"
        here.store.away = None
        await until(here.membership.trusts)
        nursery.cancel_scope.cancel()


async def test_who_was_taken_for_dead_meanwhile_trusts_its_new_seat_only_without_what_it_held(
    autojump_clock: None,
) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.wait_claimable()
        await trio.testing.wait_all_tasks_blocked()
        stops, owner = here.runner.stops, here.membership.owner
        assert owner is not None
        await here.store.another_client().release_sysid(owner)  # as a reaper does, and others have its jobs now
        here.clock.suspend(here.membership.config.lease_s)
        here.membership.hurry()  # before its timer
        while not here.membership.trusts():
            assert here.runner.stops == stops
            await trio.testing.wait_all_tasks_blocked()
        assert here.membership.owner != owner
        assert here.runner.stops == stops + 1, "what it held could be started"
        nursery.cancel_scope.cancel()


async def test_a_renewal_that_was_answered_after_it_extends_nothing(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.wait_claimable()
        renew, sent, woken = here.store.renew_sysid, trio.Event(), trio.Event()

        async def late(owner: Owner, **named: Any) -> Renewed:
            answer = await renew(owner, **named)
            sent.set()
            await woken.wait()
            return answer

        here.store.renew_sysid = late  # type: ignore[method-assign]
        await sent.wait()
        here.clock.suspend(here.membership.config.lease_s)
        here.store.away = "no network yet"
        woken.set()
        for _ in range(20):
            await trio.lowlevel.checkpoint()
            assert not here.membership.trusts()
        nursery.cancel_scope.cancel()


def test_the_real_clock_counts_from_boot() -> None:
    assert abs(SystemClock().boot_s() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 5
