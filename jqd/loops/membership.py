"""This daemon's seat among the daemons of the store: its owner name, its epoch, and how long it may trust them."""

import trio

from jqd.clock import Clock
from jqd.lease import LeaseConfig, Trust
from jqd.store import Owner


class Membership:
    """Shared by the loops: `renew` keeps it, `dispatch` and `settle` act under it, the runner asks before each send."""

    def __init__(self, sysid: str, config: LeaseConfig, clock: Clock) -> None:
        self.sysid = sysid
        self.config = config
        self._clock = clock
        self._trust = Trust(config)
        self._owner: Owner | None = None
        self._changed = trio.Event()

    @property
    def owner(self) -> Owner | None:
        """Under which name and epoch we hold jobs; None before the first reservation and after our epoch was burnt."""
        return self._owner

    def trusts(self) -> bool:
        """Whether work may be started now."""
        return self._owner is not None and self._trust.holds(self._clock.mono_s())

    async def wait_trusted(self) -> Owner:
        """Return the owner once it may act."""
        while self._owner is None or not self.trusts():
            await self._changed.wait()
        return self._owner

    def joined(self, owner: Owner, sent_at_s: float) -> None:
        """A reservation or renewal sent at `sent_at_s` was confirmed."""
        self._owner = owner
        self._trust.renewed(sent_at_s)
        self._changed.set()
        self._changed = trio.Event()

    def burnt(self) -> None:
        """Others took us for dead: nothing is ours any more."""
        self._owner = None
        self._trust.lost()

    @property
    def trust_ends_s(self) -> float:
        """The monotonic second at which trust ends unless renewed."""
        return self._trust.until_s
