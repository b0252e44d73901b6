"""The store's methods on its daemons: who sits there, who still lives, what the dead leave behind."""

import re

from jqd.store import codec
from jqd.store.config import StoreConfig
from jqd.store.jobs import BYTES_MAX, STEP_JOBS, ScriptCaller
from jqd.store.keys import Keys
from jqd.store.types import CALL_JOBS_MAX, SEATS_MAX, SEATS_SOON_S, DurableReply, KeptJob, Member, Owner, Renewed

_SYSID = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # it ends a key and stands in log lines


class MemberMethods:
    """What daemons do to each other: a part of `Store`. Heartbeats go over a connection of their own."""

    def __init__(self, config: StoreConfig, keys: Keys, caller: ScriptCaller, heart: ScriptCaller) -> None:
        self._crash_limit = config.crash_limit
        self._keys = keys
        self._caller = caller
        self._heart = heart
        self._renewals = 0
        self._heard = False
        """Whether the latest of them was answered, so that what it told need not be told again."""

    async def reserve_sysid(
        self, sysid: str, previous_epoch_dead: bool, *, through: bool, seen: int | None = None, period_ms: int = 0
    ) -> Owner:
        """Take a seat among the daemons under a new epoch; if `through`, what an earlier one held is ready again.

        `through`: we are through the recovery barrier of this life of the store. If not, nobody claims until we are,
        and the store is not settled any more.

        What an earlier epoch held stays in the hand then, for outcomes to meet it there; whoever is through compares
        (`get_held`) and releases the rest.

        `previous_epoch_dead`: the caller knows that no other process lives under this sysid. Without it an unburnt
        member of that name raises SysidTaken. Whoever sat down five times within minutes and was never through, while
        others wait, raises SeatRefused for a minute, and nobody waits for it.

        `seen`: the fence of our last look. Who sat down under this sysid since keeps the seat: StaleOwner. A call that
        was given up may come long after the one that was made instead, and would burn our own epoch.

        `period_ms`: in which jobs gain a step of priority here; 0: they do not age.
        """
        if not _SYSID.fullmatch(sysid):
            raise ValueError(f"the sysid {sysid!r} is wrong: use 1 to 64 letters, digits, '_', '.' or '-'")
        answer = await self._caller.call(
            "reserve_sysid",
            sysid,
            int(previous_epoch_dead),
            self._caller.identity,
            int(through),
            SEATS_MAX,
            round(SEATS_SOON_S * 1000),
            "" if seen is None else seen,
            period_ms,
        )
        epoch, unburnt = codec.list_of(self._keys, "members", answer)
        owner = Owner(sysid, codec.whole(self._keys, "members", epoch))
        if not owner.epoch:
            raise codec.seat_refused(sysid)
        crash_limit = self._crash_limit if unburnt == 1 else 0  # whoever sat there died without leaving
        # Our earlier epochs are burnt by now: what they hold is nobody's until it is put back. In a life that we are
        # not through yet it waits for our endings to be told again: some of those jobs have ended.
        while through and await self._left("give_back", *owner, STEP_JOBS, BYTES_MAX, crash_limit):
            pass
        return owner

    async def renew_sysid(self, owner: Owner, *, through: bool, settle: bool = False) -> Renewed:
        """Raise our heartbeat counter and see everybody's. Raises StaleOwner. Never waits behind other calls.

        `settle`: note that all are through, if they are. Raises StoreChanged when another life has begun.
        """
        identity, heard, self._heard = self._heart.identity, self._heard, False
        self._renewals = number = self._renewals + 1
        answer = await self._heart.call("renew_sysid", *owner, identity, int(through), int(settle), int(heard))
        settled, asked, *flat = codec.list_of(self._keys, "members", answer)
        claims = codec.list_of(self._keys, "asked", asked)
        cancels = [
            (codec.text(self._keys, "asked", job_id), codec.whole(self._keys, "held", fence))
            for job_id, fence in zip(claims[::2], claims[1::2], strict=True)
        ]
        renewed = Renewed(codec.decode_members(self._keys, flat, identity), settled == 1, cancels)
        self._heard = number == self._renewals
        return renewed

    async def tell_kept(self, journal_id: str, since: int) -> KeptJob:
        """Tell since when this journal keeps jobs, and see what all told: endings before that, nobody needs any more.

        `since`: a `Kept.now` after which all jobs were written that it may apply again; what it told before stays if it
        is later. Raises StoreChanged.
        """
        answer = await self._caller.call("tell_kept", self._caller.identity, journal_id, since)
        first, began, *flat = codec.list_of(self._keys, "applied", answer)
        journals = {
            codec.text(self._keys, "applied", journal): DurableReply(
                codec.whole(self._keys, "applied", told), codec.whole(self._keys, "applied", at)
            )
            for journal, told, at in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        }
        return KeptJob(codec.whole(self._keys, "fence", first), codec.whole(self._keys, "life", began), journals)

    async def release_sysid(self, owner: Owner) -> None:
        """Leave: what is held becomes ready, the seat is free. Raises StaleOwner when a newer epoch sits there."""
        while await self._left("release_sysid", *owner, STEP_JOBS, BYTES_MAX):
            pass

    async def reap(self, sysid: str, member: Member, limit: int) -> int:
        """Burn a dead daemon's epoch and make up to `limit` of its jobs ready; returns how many.

        0: none is left and its seat is gone, or its heartbeat is no longer the one in `member`: it lives. It counts as
        a death of each job: one that was alone in hand at `crash_limit` of them goes to the dead set.
        """
        return await self._left(
            "reap", sysid, member.counter, member.epoch, min(limit, CALL_JOBS_MAX), BYTES_MAX, self._crash_limit
        )

    async def _left(self, name: str, *arguments: object) -> int:
        return codec.whole(self._keys, "held", await self._caller.call(name, *arguments))
