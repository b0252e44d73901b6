"""Ordinary jobs are told last, and no claim waits for them: until then nobody is told that a job is not there."""

import pytest
import trio

from jqd.domain.record import Lane
from jqd.loops.membership import BEHIND_S
from jqd.store import OnItsWay
from tests.loops.barred import push
from tests.loops.house import House, house, until

NOBODY = "01MCC5RM00000100000007001R"


async def is_told(here: House) -> bool:
    return not isinstance(await here.store.get_job(NOBODY), OnItsWay)


def hold(here: House) -> trio.Event:
    """The lane of jobs stands until the event is set."""
    lane, go = here.lanes[Lane.JOBS], trio.Event()
    apply = lane._settings.apply

    async def slow(*args: object) -> object:
        await go.wait()
        return await apply(*args)  # type: ignore[arg-type]

    lane._settings = lane._settings._replace(apply=slow)
    return go


async def empty(here: House) -> None:
    """The daemon comes through what is left of the store."""
    life = here.membership.life
    here.store.wipe()
    await until(lambda: here.membership.life not in (None, life) and here.membership.through)


async def test_a_store_that_was_emptied_is_told_when_the_jobs_are_there(autojump_clock: None) -> None:
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        await push(here)
        await here.join(nursery)
        await here.wait_claimable()
        await until(lambda: here.membership.restored)
        for _ in range(2):  # each time anew
            go = hold(here)
            await empty(here)
            await until(lambda: here.membership.settled)
            await trio.sleep(1)
            assert (here.membership.restored, await is_told(here)) == (False, False)
            go.set()
            await until(lambda: here.membership.restored)
            await trio.sleep(0.1)
            assert await is_told(here), "at once, not with the next renewal"
        nursery.cancel_scope.cancel()


async def test_health_says_whom_the_answers_wait_for(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.wait_claimable()
        other = await here.store.reserve_sysid("d0", True, through=True, reapply=True)

        async def renew() -> None:
            while True:
                await here.store.renew_sysid(other, through=True, restored=False)
                await trio.sleep(1)

        async with trio.open_nursery() as beats:
            beats.start_soon(renew)
            await trio.sleep(BEHIND_S / 2)
            assert here.membership.complaint is None, "it may take a while"
            await trio.sleep(BEHIND_S)
            assert "by d0: meanwhile pushes with unique keys" in str(here.membership.complaint)
            assert here.membership.not_ready_reason() is None, "jobs run"
            beats.cancel_scope.cancel()
        await here.store.release_sysid(other)
        await trio.sleep(here.membership.config.renew_s * 2)
        assert here.membership.complaint is None
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_emptied", [False, True])
async def test_a_member_that_hangs_is_waited_for_no_longer_than_its_lease(
    autojump_clock: None, is_emptied: bool
) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.wait_claimable()
        await nursery.start(here.reap.run)
        if is_emptied:
            await empty(here)
        hangs = await here.store.reserve_sysid("d0", True, through=not is_emptied, reapply=True)
        await here.store.renew_sysid(hangs, through=True, restored=False)
        assert not await is_told(here)
        await trio.sleep(here.membership.config.lease_s * 3)
        assert await is_told(here)
        nursery.cancel_scope.cancel()
