"""The recovery barrier: stores swapped, rolled back or emptied under living daemons, and copies of a journal."""

from pathlib import Path
from typing import Any

import pytest
import trio

from jqd.domain.errors import StaleOwner, StoreAway, StoreChanged, StoreMisplaced
from jqd.domain.job import Fate, Outcome, State
from jqd.domain.record import Lane, encode_cancels
from jqd.journal import JournalConfig, open_journal
from jqd.store import Owner, Renewed, StoreLook
from jqd.testing.store import FakeStore
from tests.harness.files import MemoryFiles
from tests.loops.barred import claim, claimed_here, end, eventually, push, state
from tests.loops.house import House, TrioClock, house, offer, until


async def test_the_first_daemon_of_a_store_nobody_used_claims_at_once(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        began_s = trio.current_time()
        await here.join(nursery)
        await here.wait_claimable()
        assert trio.current_time() - began_s < here.membership.config.renew_s
        nursery.cancel_scope.cancel()


async def test_nothing_is_sent_to_a_store_that_could_not_be_looked_at(
    autojump_clock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be another partition: what is not its own would be passed over, and never come to it."""
    async with house() as here, trio.open_nursery() as nursery:
        look = here.store.look

        async def misplaced(**known: Any) -> StoreLook:
            raise StoreMisplaced("begun as another one")

        monkeypatch.setattr(here.store, "look", misplaced)
        (job_id,) = await push(here)
        await end(here, job_id, 1)
        await here.journal.wsync(here.journal.write(Lane.CANCELS, 1, encode_cancels([job_id])))
        await here.join(nursery)
        await until(lambda: here.barrier.backoff.reason is not None)
        await trio.sleep(10)
        assert await here.store.applied(here.journal.journal_id) == dict.fromkeys(Lane, 0)
        monkeypatch.setattr(here.store, "look", look)
        for lane in here.lanes.values():
            await lane.wait_caught_up(here.journal.end)
        nursery.cancel_scope.cancel()


async def test_a_restarted_daemon_joins_a_settled_store_at_once_but_not_before_its_endings_are_applied(
    autojump_clock: None,
) -> None:
    clock, disk = TrioClock(), MemoryFiles()
    store = FakeStore(clock)
    config = JournalConfig(directory=Path("/journal"))
    async with open_journal(config, clock=clock, files=disk) as journal, trio.open_nursery() as nursery:
        here = House(journal, store, clock)
        job_id, held = await claimed_here(here, nursery)
        nursery.cancel_scope.cancel()
    async with open_journal(config, clock=clock, files=disk) as journal, trio.open_nursery() as nursery:
        here = House(journal, store, clock)
        # As if the kill came between the outcome's sync and its way to the store.
        await end(here, job_id, held.fence)
        apply, tried = here.store.apply_outcomes, trio.Event()

        async def slow(*args: object) -> list[int] | None:
            tried.set()
            await trio.sleep(60)
            return await apply(*args)  # type: ignore[arg-type]

        here.lanes[Lane.OUTCOMES]._settings = here.lanes[Lane.OUTCOMES]._settings._replace(apply=slow)
        here.runner.offers = {"a": offer()}
        await nursery.start(here.dispatch.run)
        await here.join(nursery)
        await tried.wait()
        await trio.sleep(30)
        assert here.membership.owner is None, "it has not joined, so its old hold still stands"
        assert await state(here, job_id) is State.RUNNING
        began_s = trio.current_time()
        await here.wait_claimable()
        assert trio.current_time() - began_s < 35
        await trio.sleep(5)
        assert here.started == []
        assert await state(here, job_id) is State.SUCCEEDED
        nursery.cancel_scope.cancel()


async def test_what_another_holds_by_now_is_dropped_unsent(autojump_clock: None) -> None:
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        (job_id,) = await push(here)
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        (held,) = await claim(here, owner)
        # An older life of the store, in which the job had ended through somebody else.
        await here.store.apply_outcomes("cd" * 16, 0, 1, [Outcome(job_id, held.fence, Fate.SUCCEEDED, "a", 0, 1)])
        here.store.restart(None)
        await until(lambda: here.runner.lost == [job_id])
        nursery.cancel_scope.cancel()


async def test_a_hold_the_store_has_and_we_do_not_goes_back_to_ready(autojump_clock: None) -> None:
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        (job_id,) = await push(here)
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        (held,) = await claim(here, owner)
        image = here.store.image()
        await here.store.release_jobs(owner, {job_id: held.fence})
        here.runner.forget([(job_id, held.fence)])
        here.store.restart(image)
        assert await eventually(here, job_id, State.WAITING)
        nursery.cancel_scope.cancel()


async def test_the_barrier_survives_a_store_that_goes_away_in_the_midst_of_it(autojump_clock: None) -> None:
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        reserve = here.store.reserve_sysid
        falls = [
            StoreAway("answer lost"),
            StoreChanged("it restarted"),
            StaleOwner("reaped at once"),
            StoreAway("lost"),
        ]

        async def lose(*args: object, **named: object) -> Owner:
            taken = await reserve(*args, **named)  # type: ignore[arg-type]
            if falls:
                raise falls.pop()
            return taken

        here.store.reserve_sysid = lose  # type: ignore[method-assign]
        await trio.sleep(1)  # epochs are dates
        here.store.wipe()
        await until(lambda: here.membership.owner != owner)
        await here.wait_claimable()
        assert falls == []
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("began", [True, False])
async def test_a_store_that_nobody_used_is_settled_at_once_only_for_a_journal_that_begins_now(
    autojump_clock: None, began: bool
) -> None:
    """An empty journal of an earlier start tells nothing: others may have used the store before it was emptied."""
    clock, disk = TrioClock(), MemoryFiles()
    config = JournalConfig(directory=Path("/journal"))
    if began:
        async with open_journal(config, clock=clock, files=disk):
            pass  # a daemon that took nothing and was killed
    async with open_journal(config, clock=clock, files=disk) as journal, trio.open_nursery() as nursery:
        here = House(journal, FakeStore(clock), clock)
        await here.join(nursery)
        await until(lambda: here.membership.through)
        assert here.membership.settled is not began
        await here.wait_claimable()
        nursery.cancel_scope.cancel()


async def test_a_finished_job_does_not_come_back_before_its_ending(autojump_clock: None) -> None:
    """The store was wiped, and settled by another, while its daemon was down."""
    clock, disk = TrioClock(), MemoryFiles()
    store = FakeStore(clock)
    config = JournalConfig(directory=Path("/journal"))
    async with open_journal(config, clock=clock, files=disk) as journal, trio.open_nursery() as nursery:
        here = House(journal, store, clock)
        job_id, held = await claimed_here(here, nursery)
        await end(here, job_id, held.fence)
        await here.lanes[Lane.OUTCOMES].wait_caught_up(journal.end)
        assert await state(here, job_id) is State.SUCCEEDED
        nursery.cancel_scope.cancel()
    store.wipe()
    other_config = JournalConfig(directory=Path("/other"))
    async with (
        open_journal(other_config, clock=clock, files=MemoryFiles()) as empty,
        open_journal(config, clock=clock, files=disk) as journal,
        trio.open_nursery() as nursery,
    ):
        other = House(empty, store.another_client(), clock, "d2")
        await other.join(nursery)
        theirs = await other.wait_claimable()
        here = House(journal, store.another_client(), clock)
        lane = here.lanes[Lane.OUTCOMES]
        apply = lane._settings.apply

        async def slow(*args: object) -> object:
            await trio.sleep(1)
            return await apply(*args)  # type: ignore[arg-type]

        lane._settings = lane._settings._replace(apply=slow)
        await here.join(nursery)
        for _ in range(20):
            await trio.sleep(0.1)
            got = await other.store.get_waiting_jobs(theirs, "a", 9, priority_min=0, priority_max=0, bytes_max=1 << 20)
            assert not got, f"a finished job is claimed again: {got}"
        assert await state(here, job_id) is State.SUCCEEDED
        nursery.cancel_scope.cancel()


async def test_a_life_that_is_over_already_need_not_be_ended(autojump_clock: None) -> None:
    """A lane saw its position go back, and another call that this is another life: no more is sent before a look."""
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.wait_claimable()
        (job_id,) = await push(here)
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        here.store.wipe()
        with pytest.raises(StoreChanged):
            await here.store.applied(here.journal.journal_id)
        here.barrier.rolled_back()
        with trio.fail_after(30):
            await trio.sleep(1)
            await here.wait_claimable()
            await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        assert await state(here, job_id) is State.WAITING
        nursery.cancel_scope.cancel()


async def test_a_renewal_that_another_life_answered_says_nothing_of_this_one(autojump_clock: None) -> None:
    """Its answer was late, and all were through in that life: here nobody has had a lease yet to notice the loss."""
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        renew, sent, answered = here.store.renew_sysid, trio.Event(), trio.Event()

        async def renews_late(owner: Owner, *, through: bool, **says: bool) -> Renewed:
            if sent.is_set():
                await trio.sleep(0.5)  # the others take their time, too
            answer = await renew(owner, through=through, **says)
            if through and not sent.is_set():
                sent.set()
                await answered.wait()
            return answer

        here.store.renew_sysid = renews_late  # type: ignore[method-assign]
        await sent.wait()
        here.store.restart()
        here.membership.disturbed()  # a claim met it
        await until(lambda: here.membership.through)
        assert here.membership.joined_as == owner, "the seat is known there"
        answered.set()
        restarted_s = trio.current_time()
        await here.wait_claimable()
        assert trio.current_time() - restarted_s > here.membership.config.lease_s / 2
        nursery.cancel_scope.cancel()
