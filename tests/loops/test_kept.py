"""Whether claims wait for a lease when the store is back: not where it proves that it knows all who did something."""

from collections.abc import Callable, Mapping

import pytest
import trio

from jqd.domain.errors import StoreAway
from jqd.store import Owner, Renewed
from jqd.testing.keyspace import Value
from tests.loops.house import House, house, until


async def restart(here: House, image: Mapping[bytes, Value] | None = None) -> float:
    """Start the store anew. Returns the seconds until claims begin again."""
    began_s, life = trio.current_time(), here.membership.life
    here.store.restart(image)
    here.store.away = None
    with trio.fail_after(60):
        await until(lambda: here.membership.life not in (None, life) and here.membership.through)
        await here.wait_claimable()
    return trio.current_time() - began_s


async def settle(here: House, nursery: trio.Nursery) -> Owner:
    await here.join(nursery)
    await here.wait_claimable()
    return await here.membership.wait_seated()


async def test_a_store_that_lost_nothing_is_used_at_once(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        owner = await settle(here, nursery)
        for _ in range(2):  # the second time it is settled by the first proof
            await trio.sleep(5 * here.membership.config.lease_s)
            assert await restart(here) < here.membership.config.renew_s + 1
            assert here.membership.seated == owner
        nursery.cancel_scope.cancel()


async def test_a_store_that_lost_what_it_had_confirmed_is_waited_for(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        owner = await settle(here, nursery)
        image = here.store.image()
        await trio.sleep(2 * here.membership.config.renew_s)
        assert await restart(here, image) >= here.membership.config.lease_s
        assert here.membership.seated == owner, "only who joined or left since is not known"
        nursery.cancel_scope.cancel()


async def test_a_store_that_was_away_for_longer_than_a_lease_is_waited_for(autojump_clock: None) -> None:
    """For all we know others took us for dead meanwhile, and one joined who did not wait for us."""
    async with house() as here, trio.open_nursery() as nursery:
        await settle(here, nursery)
        here.store.away = "the cable"
        await trio.sleep(here.membership.config.lease_s)
        assert await restart(here) >= here.membership.config.lease_s
        nursery.cancel_scope.cancel()


async def test_a_life_that_was_not_settled_proves_nothing_of_the_next(autojump_clock: None) -> None:
    async with house() as here, trio.open_nursery() as nursery:
        await settle(here, nursery)
        image = here.store.image()
        await trio.sleep(2 * here.membership.config.renew_s)
        life = here.membership.life
        here.store.restart(image)
        await until(lambda: here.membership.life not in (None, life) and here.membership.through)
        await trio.sleep(here.membership.config.renew_s)
        assert await restart(here) >= here.membership.config.lease_s
        nursery.cancel_scope.cancel()


async def test_a_proof_whose_answer_was_lost_is_none(autojump_clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The renewal that was to prove it has raised our counter: the store would look as if it had lost nothing."""
    async with house() as here, trio.open_nursery() as nursery:
        await settle(here, nursery)
        image, renew, lost = here.store.image(), here.store.renew_sysid, trio.Event()
        await trio.sleep(2 * here.membership.config.renew_s)

        async def renews_unheard(owner: Owner, *, through: bool, settle: bool = False) -> Renewed:
            answer = await renew(owner, through=through, settle=settle)
            if not through and not lost.is_set():
                lost.set()
                raise StoreAway("its answer was lost")
            return answer

        monkeypatch.setattr(here.store, "renew_sysid", renews_unheard)
        assert await restart(here, image) >= here.membership.config.lease_s
        assert lost.is_set()
        nursery.cancel_scope.cancel()


async def _never(here: House, other: Owner) -> None:
    await trio.sleep_forever()


async def _unheard(here: House, other: Owner) -> None:
    """Renews, and hears no answer."""
    while True:
        await trio.sleep(1)
        its = here.store.another_client()  # that knows of no answer
        await its.look(fresh=False)
        await its.renew_sysid(other, through=True)


async def _renews(here: House, other: Owner) -> None:
    its = here.store.another_client()
    await its.look(fresh=False)
    while True:
        await trio.sleep(1)
        await its.renew_sysid(other, through=True)


async def _leaves(here: House, other: Owner) -> None:
    await trio.sleep(1)
    await here.store.release_sysid(other)


@pytest.mark.parametrize(
    ("other_does", "waits"), [(_never, True), (_unheard, True), (_renews, False), (_leaves, False)]
)
async def test_who_joins_waits_until_all_others_have_heard_of_it_or_for_a_lease(
    autojump_clock: None, other_does: Callable[..., object], waits: bool
) -> None:
    """Else one of them could vouch for a store that came back without the newcomer, and what it had done."""
    async with house() as here, trio.open_nursery() as nursery:
        await here.store.look(fresh=True)
        other = await here.store.reserve_sysid("d0", True, through=True)
        nursery.start_soon(other_does, here, other)
        began_s = trio.current_time()
        await here.join(nursery)
        await until(lambda: here.membership.through and here.membership.trusts())
        assert not here.membership.settled, "a cancel here is not promised yet"
        await here.wait_claimable()
        took_s = trio.current_time() - began_s
        assert (took_s > here.membership.config.lease_s) == waits
        assert here.membership.settled
        nursery.cancel_scope.cancel()
