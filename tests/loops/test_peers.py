"""What a daemon knows of the others from its renewals."""

from typing import Any

import pytest
import trio

from jqd.domain.errors import StoreAway, StoreError, StoreRefused
from jqd.loops.backoff import STORE_BACKOFF
from jqd.store import Owner, Renewed
from jqd.store.methods import BYTES_MAX
from tests.contract.bench import StoreBench
from tests.loops.house import House, house, until


async def hold(here: House, sysid: str, jobs: int = 3) -> Owner:
    """A daemon of that name that holds jobs."""
    await here.store.look(fresh=True)
    owner = await here.store.reserve_sysid(sysid, True, through=True)
    bench = StoreBench(here.store, here.clock)
    await bench.add(*(bench.make() for _ in range(jobs)))
    assert len(await bench.claim(owner, limit=jobs)) == jobs
    return owner


async def test_daemons_are_told_apart_by_their_heartbeats(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        assert here.renew.peers() == []
        await here.store.look(fresh=True)
        other = await here.store.reserve_sysid("d0", True, through=True)
        await here.join(nursery)
        await until(lambda: len(here.renew.peers()) == 2)
        ours, peer = here.renew.peers()
        assert (ours.sysid, ours.is_this, ours.living) == ("d1", True, True)
        assert (peer.sysid, peer.is_this, peer.living, peer.epoch) == ("d0", False, True, other.epoch)
        lease_s = here.membership.config.lease_s
        await trio.sleep(lease_s / 2)
        await here.store.renew_sysid(other, through=True)
        await trio.sleep(lease_s * 0.75)
        assert [peer.living for peer in here.renew.peers()] == [True, True], "it was heard of meanwhile"
        await trio.sleep(lease_s)
        ours, peer = here.renew.peers()
        assert (ours.living, ours.last_seen_s <= here.membership.config.renew_s) == (True, True)
        assert (peer.living, peer.last_seen_s > lease_s) == (False, True)
        await here.store.release_sysid(other)
        await until(lambda: len(here.renew.peers()) == 1)
        nursery.cancel_scope.cancel()


async def test_while_the_store_is_away_nobody_is_taken_for_dead(autojump_clock: None) -> None:
    """Each daemon had called all others dead, and itself."""
    async with house() as here, trio.open_nursery() as nursery:
        await here.store.look(fresh=True)
        other = await here.store.reserve_sysid("d0", True, through=True)
        await here.join(nursery)
        await until(lambda: len(here.renew.peers()) == 2)
        config = here.membership.config
        await here.store.renew_sysid(other, through=True)
        await trio.sleep(config.renew_s)
        here.store.away = "the cable"
        await trio.sleep(config.lease_s + config.renew_s)
        assert [(peer.sysid, peer.living) for peer in here.renew.peers()] == [("d1", None), ("d0", None)]
        here.store.away = None
        await until(lambda: here.renew.backoff.reason is None)
        assert [(peer.sysid, peer.living) for peer in here.renew.peers()] == [("d1", True), ("d0", None)]
        await trio.sleep(config.lease_s + config.renew_s)
        assert [(peer.sysid, peer.living) for peer in here.renew.peers()] == [("d1", True), ("d0", False)]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("why", [StoreAway("the cable"), StoreRefused("NOREPLICAS Not enough good replicas to write.")])
async def test_the_first_who_is_answered_again_reaps_nobody(why: StoreError, autojump_clock: None) -> None:
    """Its jobs went back as those of a daemon that died: at the third such outage they were dead as crashers, though
    nobody had tried them."""
    async with house() as here, trio.open_nursery() as nursery:
        other = await hold(here, "d0")
        renew, reason = here.store.renew_sysid, list[StoreError]()

        async def refuse(*args: Any, **named: Any) -> Renewed:
            if reason:
                raise reason[0]
            return await renew(*args, **named)

        here.store.renew_sysid = refuse  # type: ignore[method-assign]
        await here.join(nursery)
        await nursery.start(here.reap.run)
        await until(lambda: len(here.renew.peers()) == 2)
        config = here.membership.config
        for outage_s in (config.lease_s, 1.5 * config.lease_s, 20 * config.lease_s):
            await renew(other, through=True)
            await trio.sleep(config.renew_s)
            reason.append(why)
            await trio.sleep(outage_s)
            reason.clear()
            await until(lambda: here.renew.backoff.reason is None)
            await trio.sleep(STORE_BACKOFF.cap_s)  # so much later the other one tries again
            await renew(other, through=True)
            await trio.sleep(config.renew_s)
            assert (here.reap.departures.rows(), here.reap.daemons, here.reap.jobs) == ([], 0, 0)
            assert (await here.store.get_held(other)).keys() != set(), "what it holds is still its own"
        await trio.sleep(config.lease_s + 2 * config.renew_s)
        assert (here.reap.daemons, here.reap.jobs) == (1, 3), "this time it fell silent at a store that answers"
        nursery.cancel_scope.cancel()


async def test_who_leaves_as_the_store_is_back_has_not_died(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        owner = await hold(here, "d0")
        await here.join(nursery)
        await nursery.start(here.reap.run)
        await until(lambda: len(here.renew.peers()) == 2)
        here.store.away = "the cable"
        await trio.sleep(here.membership.config.lease_s * 2)
        here.store.away = None
        assert await here.store._left("release_sysid", *owner, 1, BYTES_MAX) == 1
        await until(here.reap.departures.rows)
        (row,) = here.reap.departures.rows()
        assert (row.died, row.jobs) == (False, 2)
        assert row.at_ms - row.last_seen_at_ms > here.membership.config.lease_s * 1000
        nursery.cancel_scope.cancel()


async def test_who_left_is_told_apart_from_who_fell_silent(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.store.look(fresh=True)
        await here.join(nursery)
        await nursery.start(here.reap.run)
        other = await here.store.reserve_sysid("d0", True, through=True)
        await until(lambda: len(here.renew.peers()) == 2)
        await here.store.release_sysid(other)
        await until(lambda: [row.died for row in here.reap.departures.rows()] == [False])
        await here.store.reserve_sysid("d0", True, through=True)
        await until(lambda: [row.died for row in here.reap.departures.rows()] == [True])
        (row,) = here.reap.departures.rows()
        assert (row.kind, row.name, row.jobs, row.times) == ("daemon", "d0", 0, 1), "within the same minute"
        assert row.at_ms - row.last_seen_at_ms > here.membership.config.lease_s * 1000
        nursery.cancel_scope.cancel()


async def test_a_burnt_daemon_does_not_live(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.store.look(fresh=True)
        await here.store.reserve_sysid("d0", True, through=True)
        await here.join(nursery)
        await until(lambda: len(here.renew.peers()) == 2)
        here.renew._note_members({"d0": here.renew._peers["d0"]._replace(epoch=0)})
        (row,) = here.renew.peers()
        assert (row.epoch, row.living) == (0, False)
        nursery.cancel_scope.cancel()


async def test_who_gives_back_what_another_began_with_says_that_it_died_too(autojump_clock: None) -> None:
    """Its epoch is burnt by then: that is no sign of life."""
    async with house() as here, trio.open_nursery() as nursery:
        await hold(here, "d0")
        await here.join(nursery)
        await nursery.start(here.reap.run)
        await until(lambda: len(here.renew.peers()) == 2)
        lease_s = here.membership.config.lease_s
        await trio.sleep(lease_s * 0.9)
        assert await here.store.reap("d0", here.renew._peers["d0"], 1) == 1
        await until(here.reap.departures.rows)
        (row,) = here.reap.departures.rows()
        assert (row.died, row.jobs) == (True, 2)
        assert row.at_ms - row.last_seen_at_ms > lease_s / 2 * 1000
        nursery.cancel_scope.cancel()


async def test_who_was_burnt_before_anybody_here_heard_it_died(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        owner = await hold(here, "d0")
        member = (await here.store.renew_sysid(owner, through=True)).members["d0"]
        assert await here.store.reap("d0", member, 1) == 1
        await here.join(nursery)
        await nursery.start(here.reap.run)
        await until(here.reap.departures.rows)
        (row,) = here.reap.departures.rows()
        assert (row.died, row.jobs, row.last_seen_at_ms) == (True, 2, 0), "nobody knows when it was last heard"
        nursery.cancel_scope.cancel()


async def test_who_is_met_as_it_leaves_with_many_jobs_has_not_died(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        owner = await hold(here, "d0")
        await here.join(nursery)
        await nursery.start(here.reap.run)
        await until(lambda: len(here.renew.peers()) == 2)
        assert await here.store._left("release_sysid", *owner, 1, BYTES_MAX) == 1
        await until(here.reap.departures.rows)
        (row,) = here.reap.departures.rows()
        assert (row.died, row.jobs) == (False, 2)
        nursery.cancel_scope.cancel()


async def test_a_start_whose_answer_was_lost_is_no_death(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        reserve, lost = here.store.reserve_sysid, [StoreAway("the answer was lost")]

        async def lose(*args: object, **named: object) -> Owner:
            taken = await reserve(*args, **named)  # type: ignore[arg-type]
            if lost:
                raise lost.pop()
            return taken

        here.store.reserve_sysid = lose  # type: ignore[method-assign]
        await here.join(nursery)
        await here.wait_claimable()
        assert (lost, here.reap.departures.rows()) == ([], [])
        nursery.cancel_scope.cancel()


async def test_a_start_after_a_process_that_did_not_leave_says_so(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await hold(here, "d1")
        await here.join(nursery)
        await here.wait_claimable()
        assert [(row.name, row.died, row.jobs) for row in here.reap.departures.rows()] == [("d1", True, 3)]
        nursery.cancel_scope.cancel()
