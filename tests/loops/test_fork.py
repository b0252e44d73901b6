"""A journal that gets a new id: what the old one had applied is marked for the new one, or nothing is changed."""

from types import SimpleNamespace
from typing import Any

import trio

from jqd.daemon import FORK_RETRY_S, _fork
from jqd.record import Lane
from tests.loops.house import House, house
from tests.loops.test_barrier import push


def daemon_of(here: House) -> Any:
    """As much of a daemon as is asked."""
    return SimpleNamespace(journal=here.journal, store=here.store, lanes=here.lanes)


async def test_the_new_id_stands_where_the_old_one_did(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await here.join(nursery)
        await here.membership.wait_claimable()
        await push(here, 3)
        await here.lanes[Lane.JOBS].wait_caught_up(here.journal.end)
        new = await _fork(daemon_of(here))
        assert new.hex() != here.journal.journal_id
        applied = await here.store.applied(new.hex())
        assert applied == await here.store.applied(here.journal.journal_id)
        assert applied[Lane.JOBS] > 0
        nursery.cancel_scope.cancel()


async def test_lanes_that_never_asked_stand_where_this_life_began_at_most(autojump_clock: None) -> None:
    async with house() as here:
        # The store has applied more of this journal than the directory ever held: an older copy.
        await here.store.skip(here.journal.journal_id, Lane.JOBS, 0, 5_000)
        new = await _fork(daemon_of(here))
        assert await here.store.applied(new.hex()) == dict.fromkeys(Lane, here.journal.opened_at)


async def test_a_store_that_is_away_leaves_the_id_as_it_is(autojump_clock: None) -> None:
    async with house() as here:
        here.store.away = "cable"
        began_s = trio.current_time()
        assert (await _fork(daemon_of(here))).hex() == here.journal.journal_id
        assert trio.current_time() - began_s >= FORK_RETRY_S
