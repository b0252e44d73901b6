"""This daemon's seat among the daemons of the store: its owner name and epoch, how long it may trust them, and
whether the store is in a state in which anybody may claim.

    looked ──▶ seated ──▶ came through ──▶ everybody through, and a lease has passed ──▶ may claim
      ▲                                                                                     │
      └──────────── disturbed: another life of the store answers, or our epoch was burnt ◀──┘

The waiting for a lease covers daemons that are alive and have not looked yet: what they hold they re-assert meanwhile.
A store whose note says "settled" went through all this before; joining it needs no waiting.
"""

import trio

from jqd.store import Look, Owner, Renewed
from jqd.words.clock import Clock
from jqd.words.lease import LeaseConfig, Trust


class Membership:
    """Shared by the loops: `barrier` takes the seat, `renew` keeps it, `dispatch` and `settle` act under it."""

    def __init__(self, sysid: str, config: LeaseConfig, clock: Clock, *, sole: bool) -> None:
        """`sole`: no other daemon can reach this store, so there is nobody to wait for."""
        self.sysid = sysid
        self.config = config
        self.through = False
        """We are through the barrier of this life of the store: it knows all that our journal knows of endings."""
        self._sole = sole
        self._clock = clock
        self._trust = Trust(config)
        self._owner: Owner | None = None
        self._seated = False
        self._settled = False
        self._others_through = False
        self._looked_at_s = 0.0
        self._changed = trio.Event()
        self._hurry = trio.Event()
        self._disturbed = trio.Event()

    # ------------------------------------------------------------ what may be done

    @property
    def owner(self) -> Owner | None:
        """Under which name and epoch we hold jobs; None before the first seat."""
        return self._owner

    @property
    def seated(self) -> Owner | None:
        """The owner whose seat is good, as far as we know: None while it is being taken anew."""
        return self._owner if self._seated else None

    def trusts(self) -> bool:
        """Whether work in hand may be started now."""
        return self._owner is not None and self._trust.holds(self._clock.boot_s())

    @property
    def trust_left_s(self) -> float:
        """For how long work in hand is trusted still, unless renewed."""
        return self._trust.until_s - self._clock.boot_s()

    @property
    def settled(self) -> bool:
        """Whether everybody is through the barrier, so that nothing old can come up any more."""
        return self.through and self._others_through and (self._settled or self._waited())

    def hold_up(self) -> str | None:
        """Why no jobs may be claimed now, or None."""
        if self._owner is None or not self.trusts():
            return "this daemon has not joined the store yet"
        if not self.through:
            return "the store is another one, or older than it was: what it forgot is applied again first"
        if not self._others_through:
            return "another daemon applies what the store forgot; claims wait for it"
        if not self.settled:
            return f"daemons that have not noticed the new store are given a lease ({self.config.lease_s:g} s) to do so"
        return None

    async def wait_claimable(self) -> Owner:
        """Return the owner once it may claim."""
        while self._owner is None or self.hold_up() is not None:
            await self._changed.wait()
        return self._owner

    async def wait_trusted(self) -> None:
        """Return once work in hand may be started."""
        while not self.trusts():
            await self._changed.wait()

    async def wait_seated(self) -> Owner:
        """Return the owner once its seat is taken."""
        while (owner := self.seated) is None:
            await self._changed.wait()
        return owner

    # ------------------------------------------------------------ what happened

    def looked(self, look: Look) -> None:
        """We know who answers, and that is where we take a seat."""
        self._settled = look.settled
        self._others_through = False
        self._looked_at_s = self._clock.mono_s()

    def took_seat(self, owner: Owner) -> None:
        """A new epoch is ours."""
        self._owner, self._seated = owner, True
        self._tell(hurry=True)

    def came_through(self) -> None:
        """All that the store forgot of ours is applied, all that we hold is settled with it."""
        self.through = True
        self._tell(hurry=True)

    def renewed(self, sent_at_s: float, answer: Renewed) -> None:
        """A renewal sent at `sent_at_s`, since boot, was confirmed."""
        self._trust.renewed(sent_at_s)
        others = (m for sysid, m in answer.members.items() if sysid != self.sysid and m.epoch)
        self._others_through = all(member.through for member in others)
        self._settled = answer.settled
        self._tell(hurry=self.wants_settling)  # until it is noted, the store gives nobody a name

    def disturbed(self) -> None:
        """The store is another one, or says that our epoch was burnt: it must be looked at, and the seat taken anew.

        What is in hand stays trusted for its lease: whoever burnt our epoch waited longer than that.
        """
        self.through = self._seated = self._settled = self._others_through = False
        self._disturbed.set()

    def leave(self) -> Owner | None:
        """This daemon stops: whose seat is to be released, and nobody renews it or takes another meanwhile.

        A renewal that met a seat half released would read that it was burnt, and this daemon would sit down again.
        """
        self._seated = False
        return self._owner

    def resigned(self) -> None:
        """We give our seat up, and trust nothing that we held under it."""
        self.through = self._seated = self._settled = self._others_through = False
        self._trust.lost()
        self._tell()

    def watch_disturbance(self) -> trio.Event:
        """An event for the next disturbance, from now on."""
        self._disturbed = trio.Event()
        return self._disturbed

    # ------------------------------------------------------------ how renewals go

    @property
    def wants_settling(self) -> bool:
        """Whether the store should note that all are through."""
        return self.settled and not self._settled

    @property
    def in_motion(self) -> bool:
        """Whether something is still awaited from others, so that it pays to look often."""
        return not self._settled

    def hurry(self) -> None:
        """Something is to be learned from the store before the next renewal is due."""
        self._hurry.set()

    async def wait_hurry(self) -> None:
        """Return when the store should be asked before the next renewal is due."""
        await self._hurry.wait()
        self._hurry = trio.Event()

    def _waited(self) -> bool:
        return self._sole or self._clock.mono_s() - self._looked_at_s > self.config.lease_s

    def _tell(self, *, hurry: bool = False) -> None:
        if hurry:
            self._hurry.set()
        self._changed.set()
        self._changed = trio.Event()
