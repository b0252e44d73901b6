"""The store's methods on its daemons: who is a member, who lives, what the dead leave behind."""

import re
from collections.abc import Callable

from jqd.domain.jobid import journal_number
from jqd.domain.record import Lane
from jqd.store import codec
from jqd.store.keys import lane_field, last_field
from jqd.store.methods import BYTES_MAX, STEP_JOBS, ScriptMethods, in_rows
from jqd.store.types import CALL_JOBS_MAX, JOINS_MAX, JOINS_SOON_S, DurableReply, KeptJob, Member, Owner, Renewed

_SYSID = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # it ends a key and is part of log lines


class MemberMethods(ScriptMethods):
    """Methods on members; heartbeats go over a connection of their own."""

    _renewals = 0
    _is_renewed = False
    """Whether the latest renewal was answered, so that its cancels need not be repeated."""

    async def reserve_sysid(
        self,
        sysid: str,
        previous_epoch_dead: bool,
        *,
        through: bool,
        seen: int | None = None,
        period_ms: int = 0,
        forgot: bool = False,
        died: Callable[[int], None] = lambda jobs: None,
    ) -> Owner:
        """Join the daemons of the store under a new epoch; if `through`, what an earlier one held is ready again.

        `through`: we are through recovery in this life of the store. If not, nobody claims until we are, and the store
        is not settled any more; what an earlier epoch held stays held, for its outcomes to be applied. A daemon that is
        through compares (`get_held`) and releases the rest.

        `previous_epoch_dead`: no other process lives under this sysid. Without it an unburnt member of that name raises
        SysidTaken. A daemon that joined five times within minutes and was never through, while others wait, gets
        SysidRefused for a minute, and nobody waits for it.

        `seen`: the fence of our last look. A member that joined under this sysid since keeps its epoch: StaleOwner. A
        call that was given up may arrive long after the one that was made instead, and would burn our own epoch.

        `forgot`: although `through`, jobs of our journal are to be applied again. Until `renew_sysid` says that all
        are, the store does not say of anything that nobody has it.

        `period_ms`: in which jobs gain a step of priority here; 0: they do not age. `died`: called with the number of
        jobs that were put back, where an earlier epoch had not left."""
        if not _SYSID.fullmatch(sysid):
            raise ValueError(f"the sysid {sysid!r} is wrong: use 1 to 64 letters, digits, '_', '.' or '-'")
        answer = await self._caller.call(
            "reserve_sysid",
            sysid,
            int(previous_epoch_dead),
            self._caller.identity,
            int(through),
            JOINS_MAX,
            round(JOINS_SOON_S * 1000),
            "" if seen is None else seen,
            period_ms,
            int(forgot),
        )
        epoch, unburnt = self._list("members", answer)
        owner = Owner(sysid, self._whole("members", epoch))
        if not owner.epoch:
            raise codec.seat_refused(sysid)
        crash_limit = self._config.crash_limit if unburnt == 1 else 0  # an unburnt member died without leaving
        # Our earlier epochs are burnt by now: what they hold is nobody's until it is put back. In a life that we are
        # not through yet it waits for our endings to be applied again: some of those jobs have ended.
        total = 0
        while through and (moved := await self._left("give_back", *owner, STEP_JOBS, BYTES_MAX, crash_limit)):
            total += moved
        if unburnt == 1:
            died(total)
        return owner

    async def renew_sysid(self, owner: Owner, *, through: bool, settle: bool = False, restored: bool = True) -> Renewed:
        """Raise our heartbeat counter and read all of them. Raises StaleOwner. Never waits behind other calls.

        `settle`: note that all are through, if they are. `restored`: we are through, and no ordinary job of ours that
        the store forgot is left either. Raises StoreChanged when another life has begun."""
        identity, is_renewed, self._is_renewed = self._heart.identity, self._is_renewed, False
        self._renewals = number = self._renewals + 1
        says = map(int, (through, settle, is_renewed, restored))
        answer = await self._heart.call("renew_sysid", *owner, identity, *says)
        settled, behind, asked, *flat = self._list("members", answer)
        cancels = [
            (self._text("asked", job_id), self._whole("held", fence)) for job_id, fence in self._rows("asked", asked, 2)
        ]
        names = tuple(sorted(self._texts("members", behind)))
        renewed = Renewed(codec.decode_members(self._keys, flat, identity), settled == 1, cancels, names)
        self._is_renewed = number == self._renewals
        return renewed

    async def save_kept(self, journal_id: str, since: int, position: int = 0, last_id: str = "") -> KeptJob:
        """Save since when this journal keeps jobs, and read it of all: nobody needs endings before that.

        `since`: a `KeptJob.now` before all jobs that it may apply again; a later one saved before stays. `last_id`: no
        job with an id up to it comes from this journal's lane of jobs behind `position`: what is not here then never
        comes, unless the store forgot and its lane is before that position again. Raises StoreChanged."""
        place, last = lane_field(journal_id, Lane.JOBS), last_field(journal_number(journal_id))
        identity = self._caller.identity
        answer = await self._caller.call("save_kept", identity, journal_id, since, place, position, last, last_id)
        first, began, *flat = self._list("applied", answer)
        journals = {
            self._text("applied", journal): DurableReply(self._whole("applied", since_here), self._whole("applied", at))
            for journal, since_here, at in in_rows(flat, 3)
        }
        return KeptJob(self._whole("fence", first), self._whole("life", began), journals)

    async def release_sysid(self, owner: Owner) -> None:
        """Leave: what is held becomes ready. Raises StaleOwner when a newer epoch is a member under that name."""
        while await self._left("release_sysid", *owner, STEP_JOBS, BYTES_MAX):
            pass

    async def reap(self, sysid: str, member: Member, limit: int) -> int:
        """Burn a dead daemon's epoch and make up to `limit` of its jobs ready; returns how many.

        0: none is left and its membership is gone, or its heartbeat is no longer that of `member`: it lives. It counts
        as a death of each job: one that was alone in flight at `crash_limit` of them goes to the dead set."""
        return await self._left(
            "reap", sysid, member.counter, member.epoch, min(limit, CALL_JOBS_MAX), BYTES_MAX, self._config.crash_limit
        )

    async def _left(self, name: str, *arguments: object) -> int:
        return self._whole("held", await self._caller.call(name, *arguments))
