"""What a store forgets it is told again, and no job starts before that."""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from jqd.domain.errors import JournalRefused
from jqd.domain.job import Fate, Held, Outcome, State
from jqd.domain.record import Lane, encode_cancels, encode_outcomes
from jqd.journal import JournalConfig, open_journal
from jqd.recovery.recovery import RESIGN_S
from jqd.store import Owner
from tests.harness.files import MemoryFiles
from tests.loops.barred import claim, end, eventually, push, state
from tests.loops.house import House, house, offer, until


@pytest.mark.parametrize("loss", ["wiped", "older", "restarted"])
async def test_a_store_that_forgot_is_told_again_and_what_is_in_hand_stays_there(
    autojump_clock: None, loss: str
) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        image = here.store.image()
        waiting, running, done, cancelled = await push(here, 4)
        await here.journal.wsync(here.journal.write(Lane.CANCELS, 1, encode_cancels([cancelled])))
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        await here.lanes[Lane.CANCELS].wait_caught_up(here.journal.end)
        held = {each.job.id: each for each in await claim(here, owner)}
        await here.store.release_jobs(owner, {waiting: held[waiting].fence})
        here.runner.forget([(waiting, held[waiting].fence)])
        await end(here, done, held[done].fence)
        await here.lanes[Lane.OUTCOMES].wait_caught_up(here.journal.end)
        if loss == "wiped":
            here.store.wipe()
        else:
            here.store.restart(image if loss == "older" else None)
        lost_s = trio.current_time()
        await until(lambda: here.membership.not_ready_reason() is not None)
        claimer = await here.wait_claimable()
        lease_s = here.membership.config.lease_s
        assert lease_s < trio.current_time() - lost_s < 2 * lease_s, "daemons that have not looked get a lease"
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        assert [each.job.id for each in await claim(here, claimer)] == [waiting]
        assert await state(here, running) is State.RUNNING
        assert await state(here, done) is State.SUCCEEDED
        assert await state(here, cancelled) is State.CANCELLED
        await end(here, running, held[running].fence)
        await here.lanes[Lane.OUTCOMES].wait_caught_up(here.journal.end)
        assert await state(here, running) is State.SUCCEEDED, "its fence is still good"
        assert here.runner.lost == []
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def lost_after_its_end(here: House) -> AsyncIterator[tuple[str, Held]]:
    """A job that ended here, and is on no disk yet: the store went back, and it is in the hand of who stands still."""
    config = JournalConfig(directory=Path("/other"))
    async with open_journal(config, clock=here.clock, files=MemoryFiles()) as journal, trio.open_nursery() as nursery:
        other = House(journal, here.store.another_client(), here.clock, "d2")
        await here.join(nursery)
        (job_id,) = await push(here)
        async with trio.open_nursery() as alive:
            await other.join(alive)
            await until(lambda: here.membership.settled and other.membership.settled)
            await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
            theirs = await other.wait_claimable()
            (before,) = await claim(other, theirs)
            image = here.store.image()
            await other.store.release_jobs(theirs, {job_id: before.fence})
            alive.cancel_scope.cancel()
        (held,) = await claim(here, await here.wait_claimable())
        here.runner.over.add(job_id)
        here.store.restart(image)

        async def other_has_them(owner: Owner, holds: Mapping[str, int], generations: Mapping[str, int]) -> list[str]:
            """As the store answers where the other's claim is the later one."""
            return list(holds)

        here.store.reassert = other_has_them  # type: ignore[method-assign, assignment]
        yield job_id, held
        nursery.cancel_scope.cancel()


async def test_nobody_claims_what_ended_here_and_lies_in_another_hand_before_the_store_knows(
    autojump_clock: None,
) -> None:
    """Its ending waited for a slow disk: the other was taken for dead, and the job ran once more."""
    async with house() as here, trio.open_nursery() as nursery:
        noted = trio.Event()
        here.runner.take_note = noted.wait
        async with lost_after_its_end(here) as (job_id, held):
            await until(lambda: here.runner.lost == [job_id])
            await trio.sleep(3 * here.membership.config.lease_s)
            assert not here.membership.through
            await end(here, job_id, held.fence)
            noted.set()
            await until(lambda: here.membership.through)
            assert await state(here, job_id) is State.SUCCEEDED
        nursery.cancel_scope.cancel()


async def test_a_disk_that_takes_no_such_ending_stops_the_others_for_a_minute_only(autojump_clock: None) -> None:
    async def refuse() -> None:
        raise JournalRefused("no space left", full=True)

    async with house() as here, trio.open_nursery() as nursery:
        here.runner.take_note = refuse
        async with lost_after_its_end(here) as (job_id, _):
            await until(lambda: here.runner.lost == [job_id])
            began_s = trio.current_time()
            before = here.membership.owner
            await until(lambda: here.membership.through)
            assert here.membership.owner != before, "it gave its seat up, and came back"
            assert RESIGN_S <= trio.current_time() - began_s <= RESIGN_S + 5, "it does not wait once more"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("fate", [Fate.FAILED, Fate.DEAD])
async def test_what_failed_for_good_in_a_time_the_store_forgot_does_not_run_again(
    autojump_clock: None, fate: Fate
) -> None:
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        owner = await here.wait_claimable()
        (job_id,) = await push(here)
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        image = here.store.image()  # it knows the job, and nothing of its run
        await trio.sleep(1)
        (held,) = await claim(here, owner)
        failure = Outcome(job_id, held.fence, fate, "a", 0, 1)
        await here.journal.wsync(here.journal.write(Lane.OUTCOMES, 1, encode_outcomes([failure])))
        await here.lanes[Lane.OUTCOMES].wait_caught_up(here.journal.end)
        await trio.sleep(1)
        here.store.restart(image)
        here.runner.offers = {"a": offer()}
        await nursery.start(here.dispatch.run)
        await trio.sleep(30)
        assert here.started == []
        assert await state(here, job_id) is State.FAILED
        nursery.cancel_scope.cancel()


async def test_nobody_claims_while_a_member_still_tells_the_store_what_it_forgot(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        clock = here.clock
        config = JournalConfig(directory=Path("/other"))
        async with open_journal(config, clock=clock, files=MemoryFiles()) as journal:
            other = House(journal, here.store.another_client(), clock, "d2")
            await here.join(nursery)
            await other.join(nursery)
            await here.wait_claimable()
            await other.wait_claimable()
            (job_id,) = await push(here)
            await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
            (held,) = await claim(other, other.membership.owner or pytest.fail("no seat"))
            outcomes, gate = other.lanes[Lane.OUTCOMES], trio.Event()
            apply = outcomes._settings.apply

            async def late(*args: object) -> object:
                await gate.wait()
                return await apply(*args)  # type: ignore[arg-type]

            outcomes._settings = outcomes._settings._replace(apply=late)
            await end(other, job_id, held.fence)
            here.store.restart(None)
            here.store.wipe()
            await trio.sleep(100)
            assert here.membership.through
            assert "another daemon" in (here.membership.not_ready_reason() or "")
            assert other.membership.not_ready_reason() is not None
            gate.set()
            await here.wait_claimable()
            assert await state(here, job_id) is State.SUCCEEDED
            nursery.cancel_scope.cancel()


async def test_a_position_that_went_back_in_a_store_that_seems_the_same_gives_it_a_new_life(
    autojump_clock: None,
) -> None:
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.wait_claimable()
        image = here.store.image()
        first = await push(here, 3)
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        before = (await here.store.look(fresh=False)).identity
        here.store.load(image)  # somebody put old keys back by hand
        second = await push(here)
        for job_id in first + second:
            assert await eventually(here, job_id, State.WAITING)
        assert (await here.store.look(fresh=False)).identity != before
        nursery.cancel_scope.cancel()


async def test_a_random_walk_of_losses_ends_with_every_job_where_it_belongs(autojump_clock: None) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when it fails
    source = random.Random(seed)
    async with house(sole=True) as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await nursery.start(here.dispatch.run)
        here.runner.offers = {"a": offer(jobs_max=3)}
        images = [here.store.image()]
        pushed: list[str] = []
        ended: set[str] = set()
        for _ in range(60):
            await trio.sleep(source.random())
            match source.choice(("push", "push", "end", "end", "image", "restart", "wipe", "older")):
                case "push":
                    pushed += await push(here, source.randint(1, 4))
                case "end":
                    for job_id, fence in list(here.runner.get_running_jobs().items())[: source.randint(0, 5)]:
                        await end(here, job_id, fence)
                        ended.add(job_id)
                case "image":
                    images.append(here.store.image())
                case "restart":
                    here.store.restart(None)
                case "older":
                    here.store.restart(source.choice(images))
                case "wipe":
                    here.store.wipe()
        while len(ended) < len(pushed):
            await trio.sleep(1)
            for job_id, fence in here.runner.get_running_jobs().items():
                await end(here, job_id, fence)
                ended.add(job_id)
        await trio.sleep(30)  # the last loss was noticed by now
        await here.wait_claimable()
        for lane in here.lanes.values():
            await lane.wait_caught_up(here.journal.end)
        assert {job_id: await state(here, job_id) for job_id in pushed} == dict.fromkeys(pushed, State.SUCCEEDED)
        starts = {job_id: here.started.count(job_id) for job_id in pushed}
        assert max(starts.values(), default=1) == 1, f"seed {seed}: one daemon, never killed, ran a job twice: {starts}"
        nursery.cancel_scope.cancel()
