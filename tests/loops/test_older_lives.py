"""A store that goes on from what it was before, under another clock or in the same run: no end is lost."""

from pathlib import Path
from typing import Any

import pytest
import trio

from jqd.domain.job import Fate, State
from jqd.domain.record import Lane
from jqd.journal import JournalConfig, open_journal
from jqd.testing.clock import ManualClock
from jqd.testing.keyspace import Keyspace
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.loops.barred import claim, end, push, state
from tests.loops.house import House, TrioClock, house


async def settled(here: House) -> Any:
    """Wait until it is noted that all are through, and all that the journal has is applied."""
    owner = await here.wait_claimable()
    while not (await here.store.renew_sysid(owner, through=True)).settled:
        await trio.sleep(0.1)
    for lane in (Lane.JOBS, Lane.OUTCOMES):
        await here.lanes[lane].wait_caught_up(here.journal.end)
    return owner


async def fail_one(here: House, job_id: str) -> None:
    """Claim it, and end it for good."""
    (held,) = await claim(here, await settled(here))
    assert held.job.id == job_id
    await end(here, job_id, held.fence, Fate.DEAD)
    await here.lanes[Lane.OUTCOMES].wait_caught_up(here.journal.end)
    assert await state(here, job_id) is State.FAILED


async def disturbed(here: House) -> None:
    while here.membership.not_ready_reason() is None:
        await trio.sleep(0.1)


@pytest.mark.parametrize("behind_s", [0, 5, 30, 120, 3_600])
async def test_a_server_that_takes_over_may_have_a_clock_that_is_late(autojump_clock: None, behind_s: int) -> None:
    """Numbers of claims that were lost with the other server are above its time."""
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        (failed,) = await push(here)
        await settled(here)
        replica = here.store.image()
        await trio.sleep(1)
        await fail_one(here, failed)
        await trio.sleep(15)
        here.clock.set_wall_ms(ManualClock().wall_ms() - behind_s * 1000)
        here.store.restart(replica)
        await disturbed(here)
        owner = await settled(here)
        assert await state(here, failed) is State.FAILED
        assert await claim(here, owner) == []
        (new,) = await push(here)
        await settled(here)
        (held,) = await claim(here, owner)
        assert held.job.id == new
        await end(here, new, held.fence, Fate.DEAD)
        await here.lanes[Lane.OUTCOMES].wait_caught_up(here.journal.end)
        assert await state(here, new) is State.FAILED
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("is_started", [False, True])
async def test_old_keys_that_come_back_after_another_life_are_another_life(
    autojump_clock: None, is_started: bool
) -> None:
    """SWAPDB there and back. `is_started`: a daemon that starts then finds the store as all had left it."""
    clock, files = TrioClock(), MemoryFiles()
    store, config = FakeStore(clock), JournalConfig(directory=Path("/journal"))
    async with open_journal(config, clock=clock, files=files) as journal, trio.open_nursery() as nursery:
        here = House(journal, store, clock)
        await here.join(nursery)
        (failed,) = await push(here)
        await settled(here)
        first, life = store.server.keyspace, here.membership.life
        store.server.keyspace = Keyspace()
        await disturbed(here)
        await trio.sleep(1)
        await fail_one(here, failed)
        if not is_started:
            store.server.keyspace = first
            await disturbed(here)
            await settled(here)
            assert await state(here, failed) is State.FAILED
            assert here.membership.life != life
        nursery.cancel_scope.cancel()
    if is_started:
        store.server.keyspace = first
        async with open_journal(config, clock=clock, files=files) as journal, trio.open_nursery() as nursery:
            here = House(journal, store.another_client(), clock)
            await here.join(nursery)
            await settled(here)
            assert await state(here, failed) is State.FAILED
            assert here.membership.life != life
            nursery.cancel_scope.cancel()
