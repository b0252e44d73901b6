"""What a daemon knows of the others from its renewals."""

import trio

from tests.loops.house import house, until


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
        assert (ours.living, ours.heard_s <= here.membership.config.renew_s) == (True, True)
        assert (peer.living, peer.heard_s > lease_s) == (False, True)
        await here.store.release_sysid(other)
        await until(lambda: len(here.renew.peers()) == 1)
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
        assert row.at_ms - row.heard_at_ms > here.membership.config.lease_s * 1000
        nursery.cancel_scope.cancel()


async def test_a_burnt_daemon_does_not_live(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.store.look(fresh=True)
        await here.store.reserve_sysid("d0", True, through=True)
        await here.join(nursery)
        await until(lambda: len(here.renew.peers()) == 2)
        here.renew._note_members({"d0": here.renew._peers["d0"][0]._replace(epoch=0)})
        (row,) = here.renew.peers()
        assert (row.epoch, row.living) == (0, False)
        nursery.cancel_scope.cancel()
