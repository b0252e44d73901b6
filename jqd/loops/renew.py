"""Keeps the owner lease fresh, and stops the work in hand when trust in it ends.

One small call renews everything held, whatever its number. When the store does not answer in time the work is
stopped but nothing is dropped: what an owner holds stays its own until its epoch is burnt. When the epoch *is* burnt,
a new one is reserved, and what the old one still holds goes back first.
"""

import random
from collections.abc import Callable

import trio

from jqd.clock import Clock
from jqd.errors import StaleOwner, StoreAway, StoreRefused
from jqd.log import get_logger
from jqd.loops.membership import Membership
from jqd.loops.pace import Pace
from jqd.store import Member, Owner, Store


class Renew:
    """Joins the store's members, renews, rejoins."""

    def __init__(
        self,
        *,
        store: Store,
        membership: Membership,
        clock: Clock,
        source: random.Random,
        stop_work: Callable[[], None],
        seen: Callable[[dict[str, Member]], None],
    ) -> None:
        self.pace = Pace("renew", source=source)
        self._store = store
        self._membership = membership
        self._clock = clock
        self._stop_work = stop_work
        self._seen = seen
        self._log = get_logger("renew")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Renew until cancelled."""
        task_status.started()
        while True:
            try:
                await self._renew_once()
            except (StoreAway, StoreRefused) as error:
                await self.pace.wait_after(error)
            else:
                await trio.sleep(self._membership.config.renew_s)
            if not self._membership.trusts():
                self._stop_work()

    async def _renew_once(self) -> None:
        owner = self._membership.owner
        sent_at_s = self._clock.mono_s()
        if owner is None:
            owner = await self._join()
            sent_at_s = self._clock.mono_s()
        try:
            members = await self._store.renew_sysid(owner)
        except StaleOwner as error:
            self._log.error("renew.burnt", sysid=owner.sysid, epoch=owner.epoch, error=str(error))
            self._membership.burnt()
            return
        self.pace.went_well()
        self._membership.joined(owner, sent_at_s)
        self._seen(members)

    async def _join(self) -> Owner:
        """A new epoch. The journal's lock proves that no other process lives under this sysid."""
        owner = await self._store.reserve_sysid(self._membership.sysid, previous_epoch_dead=True)
        self._log.info("renew.joined", sysid=owner.sysid, epoch=owner.epoch)
        return owner
