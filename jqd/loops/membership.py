"""This daemon's membership among the daemons of the store, shared by its loops: `recovery` joins, `heartbeat` renews,
`dispatch` and `outcomes` act as members. The states and their transitions are in `membership_state.py`; this file has
the lease, the clock, and the events that wake waiting tasks. A *life* of the store lasts from one loss of its data to
the next."""

import math
from dataclasses import replace

import trio

from jqd.domain.clock import Clock
from jqd.domain.lease import LeaseConfig, Trust
from jqd.loops import membership_state
from jqd.loops.membership_state import Joined, Known, Left, Looked, Out, Past, State, Suspect, Through
from jqd.store import Owner, Renewed, StoreLook

BEHIND_S = 30.0  # how long jobs may be applied again before health says so: a million take longer


class Membership:
    """This daemon's membership in one partition of the store."""

    def __init__(self, sysid: str, config: LeaseConfig, clock: Clock, *, sole: bool) -> None:
        """`sysid`: this daemon's name in the store. `sole`: no other daemon can reach this store, so recovery waits
        for none."""
        self.sysid = sysid
        self.config = config
        self.state: State = Out(Past.START)
        self.owner: Owner | None = None
        """Sysid and epoch of our last membership, even a lost one: we hold jobs under them. None before the first."""
        self.sole = self.is_alone = sole
        """`is_alone`: no other daemon was a member at the last renewal."""
        self.others: tuple[str, ...] = ()
        """The other members at the last renewal."""
        self._clock = clock
        self._trust = Trust(config)
        self._changed = trio.Event()
        self._hurry = trio.Event()
        self._disturbed = trio.Event()
        self._behind_since_s = math.inf

    # ------------------------------------------------------------ what may be done

    @property
    def joined_as(self) -> Owner | None:
        """Our sysid and epoch while this daemon is a member, as far as it knows; None: it is not."""
        return self.state.owner if isinstance(self.state, Joined | Through) else None

    @property
    def through(self) -> bool:
        """Whether we are through recovery: this life of the store has applied all ends and changes of jobs in our
        journal."""
        return isinstance(self.state, Through)

    @property
    def restored(self) -> bool:
        """Whether this life of the store has applied all jobs of our journal, not only their ends and changes."""
        return isinstance(self.state, Through) and self.state.restored

    @property
    def life(self) -> str | None:
        """The life of the store (time without a loss of its data) that we are a member of; None: we are no member."""
        return self.state.known.life if isinstance(self.state, Joined | Through) else None

    @property
    def settled(self) -> bool:
        """Whether all daemons have come through recovery, so that no old record can be applied now."""
        return membership_state.is_settled(self.state, waited=self._waited())

    def trusts(self) -> bool:
        """Whether our lease is trusted now, so that claimed jobs may start."""
        return self._trust.holds(self._clock.boot_s())

    @property
    def work_left_s(self) -> float:
        """For how many seconds jobs in flight may go on, unless the lease is renewed. Infinite for a sole daemon until
        it gives its membership up, because no other daemon can claim its jobs."""
        left_s = self._trust.until_s - self._clock.boot_s()
        return math.inf if self.sole and left_s > -math.inf else left_s

    def not_ready_reason(self) -> str | None:
        """Return why no jobs may be claimed now; None: they may."""
        return membership_state.not_ready_reason(
            self.state, trusted=self.trusts(), waited=self._waited(), lease_s=self.config.lease_s
        )

    @property
    def complaint(self) -> str | None:
        """Names, for health, the daemons that have been applying their jobs again for more than BEHIND_S; None: none
        have."""
        is_old = self._clock.mono_s() - self._behind_since_s >= BEHIND_S
        return membership_state.behind_reason(self.state) if is_old else None

    async def wait_trusted(self) -> None:
        while not self.trusts():
            await self._changed.wait()

    async def wait_joined(self) -> Owner:
        while (owner := self.joined_as) is None:
            await self._changed.wait()
        return owner

    # ------------------------------------------------------------ what happened

    def begin_sync(self, look: StoreLook) -> None:
        """Note which life of the store answered `look`. Ignored if `disturbed` was called since the store was asked."""
        if self._disturbed.is_set():
            return
        known = Known(look.identity, self._clock.mono_s(), look.settled)
        match self.state:
            case Out(past) | Suspect(past):
                self.state = Looked(Out(past), known)
            case Looked() | Joined():
                self.state = replace(self.state, known=known)
            case Through():
                raise AssertionError("whoever is through looks again only after a disturbance")

    def joined(self, owner: Owner) -> None:
        """Note that the store made this daemon a member, under a new epoch."""
        self.owner = owner
        match self.state:
            case Looked(back, known) | Joined(back, known):
                self.state = Joined(back, known, owner)
            case Through():
                raise AssertionError("a daemon that came through recovery is a member")
        self._notify(hurry=True)

    def mark_through(self) -> None:
        """Note that the store has applied all ends and changes of jobs in our journal: we are through recovery."""
        match self.state:
            case Joined(_, known, owner):
                self.state = Through(known, owner)
            case Looked() | Through():
                raise AssertionError("a daemon comes through recovery once, as a member")
        self._notify(hurry=True)

    def mark_restored(self) -> None:
        """Note that the store has applied all other records of jobs, too, that our journal had when this recovery
        began."""
        match self.state:
            case Through(known):
                self.state = replace(self.state, restored=True)
                self._notify(hurry=known.waits_for is None or self.sysid in known.behind)
            case Looked() | Joined():
                raise AssertionError("what is ordinary is waited for last")

    def renewed(self, sent_at_s: float, answer: Renewed) -> None:
        """Note a confirmed renewal of the lease. `sent_at_s`: when it was sent, in seconds since boot."""
        self._trust.renewed(sent_at_s)
        others = [(sysid, m) for sysid, m in answer.members.items() if sysid != self.sysid and m.epoch]
        self.is_alone, self.others = not others, tuple(sysid for sysid, _ in others)
        waits_for = tuple(sorted(sysid for sysid, member in others if not member.through))
        if isinstance(self.state, Joined | Through):
            known = self.state.known._replace(waits_for=waits_for, settled=answer.settled, behind=answer.behind)
            self.state = replace(self.state, known=known)
        self._behind_since_s = min(self._behind_since_s, self._clock.mono_s()) if answer.behind else math.inf
        self._notify(hurry=self.may_note_settled)  # until the store notes that, it reserves no names

    def disturbed(self) -> None:
        """Note that another life of the store answers, or that the store took our epoch away. This ends the membership,
        and `recovery` joins again.

        The lease of jobs in flight stays trusted until it runs out: a daemon that reaps our epoch waits longer."""
        self.state = membership_state.back(self.state)
        self._disturbed.set()

    def rolled_back(self) -> bool:
        """Note that the store lost data, as it reports an earlier position of a lane than before. Returns False if the
        caller has nothing to do: the store's life changed since our last recovery, which explains the loss, or this
        daemon has left."""
        match self.state:
            case Looked(back, known) | Joined(back, known) if back.past not in (Past.START, known.life):
                return False
        self.disturbed()
        match self.state:
            case Out(str() as life):
                self.state = Suspect(life)
        return not self.has_left

    def resigned(self) -> None:
        """Give the membership up, and stop trusting the lease of the jobs in flight."""
        if not self.has_left:
            self.state = Out(Past.RESIGNED)
        self._trust.lost()
        self._notify()

    def leave(self) -> Owner | None:
        """End the membership, for shutdown. Returns the owner whose jobs the caller releases; None if it was no member.

        From here on nobody renews or joins: a renewal during the release would find the epoch released, and join again.
        """
        self.state = Left()
        self._disturbed.set()
        return self.owner

    # ------------------------------------------------------------ for recovery

    @property
    def past(self) -> Past | str:
        """The life of the store in which we last came through recovery, or why there is none."""
        return membership_state.back(self.state).past

    @property
    def life_to_end(self) -> str | None:
        """The life of the store that `recovery` has to end, because positions of our journal went back in it; None:
        there is none, or `begin_sync` was called since."""
        return self.state.past if isinstance(self.state, Suspect) else None

    @property
    def has_left(self) -> bool:
        return isinstance(self.state, Left)

    def watch_disturbance(self) -> trio.Event:
        """Return a new event, which is set at the next disturbance (`disturbed`)."""
        self._disturbed = trio.Event()
        return self._disturbed

    # ------------------------------------------------------------ how renewals go

    @property
    def may_note_settled(self) -> bool:
        """Whether to ask the store to note that all daemons have come through recovery."""
        return self.settled and not self._is_settled

    @property
    def waits_for_others(self) -> bool:
        """Whether we wait for other daemons to come through recovery, so that renewals should be frequent."""
        return not self._is_settled

    def hurry(self) -> None:
        """Have the lease renewed before its next renewal is due."""
        self._hurry.set()

    async def wait_hurry(self) -> None:
        await self._hurry.wait()
        self._hurry = trio.Event()

    @property
    def _is_settled(self) -> bool:
        """Whether the store has noted that all daemons came through recovery in this life."""
        return isinstance(self.state, Joined | Through) and self.state.known.settled

    def _waited(self) -> bool:
        if self.sole:
            return True
        state = self.state
        return isinstance(state, Through) and self._clock.mono_s() - state.known.looked_at_s > self.config.lease_s

    def _notify(self, *, hurry: bool = False) -> None:
        if hurry:
            self._hurry.set()
        self._changed.set()
        self._changed = trio.Event()
