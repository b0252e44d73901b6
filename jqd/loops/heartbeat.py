"""Renews this daemon's lease, and stops the jobs in flight when the lease is no longer trusted.

One small call renews the lease of all jobs in flight. Its answer has the heartbeats of all daemons, and cancels of jobs
in flight here. When the store does not answer in time, work is stopped but no job is given up: jobs stay ours until our
epoch is taken away. With a store that no other daemon can reach, work goes on.
"""

import random
from collections.abc import Callable, Sequence

import trio

from jqd.domain.beat import next_beat_s
from jqd.domain.clock import Clock
from jqd.domain.errors import StaleOwner, StoreAway, StoreChanged, StoreRefused
from jqd.domain.lease import BeatAge, Heartbeats, Peer
from jqd.domain.log import get_logger
from jqd.loops.backoff import LoopBackoff
from jqd.loops.membership import Membership
from jqd.store import Member, Owner, Renewed, Store

DOUBT_S = 1.0  # timers stand still while the machine is suspended: work is stopped at most so long after it woke
GRACE_S = 0.02  # for answers that came while our loop stood still: a small part of the margin; no job starts in it
MOTION_S = 0.25  # between renewals while other daemons are waited for: claims begin soon after the last is through


class Heartbeat:
    """Renews the lease while this daemon is a member of the store; `recovery` makes it join."""

    def __init__(
        self,
        *,
        store: Store,
        membership: Membership,
        clock: Clock,
        source: random.Random,
        stop_work: Callable[[], None],
        cancelled: Callable[[Sequence[tuple[str, int]]], None],
        seen: Callable[[dict[str, Member]], None],
    ) -> None:
        self.backoff = LoopBackoff("heartbeat", source=source)
        self._store, self._membership, self._clock = store, membership, clock
        self._stop_work, self._cancelled, self._seen = stop_work, cancelled, seen
        self._trusted_as: tuple[Owner, str | None] | None = None  # our owner and the store's life at the last renewal
        self._peers: dict[str, Member] = {}
        self._heartbeats = Heartbeats(membership.config)
        self._log = get_logger("heartbeat")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        membership = self._membership
        while True:
            owner = await membership.wait_joined()
            try:
                await self._renew(owner)
            except (StaleOwner, StoreChanged) as error:
                if owner == membership.joined_as:
                    self._log.warning("heartbeat.disturbed", sysid=owner.sysid, epoch=owner.epoch, error=str(error))
                    membership.disturbed()
            except (StoreAway, StoreRefused) as error:
                await self.backoff.wait_after_failure(error)
            else:
                period_s = MOTION_S if membership.waits_for_others else membership.config.renew_s
                with trio.move_on_after(next_beat_s(period_s)):
                    await membership.wait_hurry()

    async def run_trust_check(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Stop the jobs in flight whenever the lease is no longer trusted: other daemons may start them soon after."""
        task_status.started()
        while True:
            await self._membership.wait_trusted()
            while (left_s := self._membership.work_left_s) > 0:  # noqa: ASYNC110 - time alone ends it
                await trio.sleep(min(left_s, next_beat_s(DOUBT_S)))
            await trio.sleep(min(GRACE_S, self._membership.config.margin_s / 4))
            if self._membership.work_left_s <= 0:
                self._stop_work()

    def peers(self) -> list[Peer]:
        """Return all daemons in the answer of the last renewal, this one first."""
        now_s, ours = self._clock.mono_s(), self._membership.sysid
        rows = []
        for sysid, member in self._peers.items():
            age = self._heartbeats.age(sysid, now_s)
            living = self._lives(member, age)
            rows.append(Peer(sysid, member.epoch, sysid == ours, living, member.through, age.all_s))
        return sorted(rows, key=lambda peer: (not peer.is_this, peer.sysid))

    def _lives(self, member: Member, age: BeatAge) -> bool | None:
        lease_s = self._membership.config.lease_s
        if not member.epoch:
            return False
        if age.all_s <= lease_s:
            return True
        return False if age.watched_s > lease_s else None

    def _note_members(self, members: dict[str, Member]) -> None:
        """Note which daemons' heartbeats changed since the last answer, and forget daemons that are not members."""
        self._peers = members
        self._heartbeats.observe({sysid: member.counter for sysid, member in members.items()}, self._clock.mono_s())

    async def _renew(self, owner: Owner) -> None:
        membership = self._membership
        sent_at_s, life = self._clock.boot_s(), membership.life
        says = {"through": membership.through, "settle": membership.may_note_settled, "restored": membership.restored}
        answer = await self._store.renew_sysid(owner, **says)
        self.backoff.succeeded()
        if answer.cancels:  # even if our membership has ended: the store reports each once
            self._log.info("heartbeat.cancels", count=len(answer.cancels))
            self._cancelled(answer.cancels)
        if owner != membership.joined_as or life != membership.life:
            return  # the answer is of an earlier membership or life
        self._trust(owner, sent_at_s, answer)
        self._note_members(answer.members)
        if membership.through:
            self._seen(answer.members)

    def _trust(self, owner: Owner, sent_at_s: float, answer: Renewed) -> None:
        """Trust the lease again after a renewal, so that jobs may start.

        If the lease had run out, and our epoch or the store's life is not that of the last renewal, other daemons may
        have our jobs in flight. Then these are stopped first."""
        trusted_as = owner, self._membership.life
        if self._membership.work_left_s <= 0 and trusted_as != self._trusted_as:
            self._stop_work()  # `run_trust_check` is late when the machine was suspended
        self._trusted_as = trusted_as
        self._membership.renewed(sent_at_s, answer)
