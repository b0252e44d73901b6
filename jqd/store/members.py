"""The store's methods on its members: the daemons that use it. They join, renew, leave, or are found dead."""

import re
from collections.abc import Callable

from jqd.domain.jobid import journal_number
from jqd.domain.record import Lane
from jqd.store import codec
from jqd.store.keys import lane_field, last_field
from jqd.store.methods import BYTES_MAX, STEP_JOBS, ScriptMethods, in_rows
from jqd.store.types import CALL_JOBS_MAX, JOINS_MAX, JOINS_SOON_S, DurableReply, KeptJob, Member, Owner, Renewed

_SYSID = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # it ends a key and stands in log lines


class MemberMethods(ScriptMethods):
    """Methods on members. Heartbeats have their own connection."""

    _renewals = 0  # number of the latest call of `renew_sysid`
    _is_renewed = False
    """Whether the latest call of `renew_sysid` was answered. If not, the next call asks for its cancels again."""

    async def reserve_sysid(
        self,
        sysid: str,
        previous_epoch_dead: bool,
        *,
        through: bool,
        seen: int | None = None,
        period_ms: int = 0,
        reapply: bool = False,
        died: Callable[[int], None] = lambda jobs: None,
    ) -> Owner:
        """Make this daemon a member of the store under a new epoch.

        `previous_epoch_dead`: whether it is certain that no other process lives under this sysid. If it is not certain
        and the store has a member of this name, raises SysidTaken. If the daemon joined JOINS_MAX times within minutes
        and never came through recovery, while others waited for it, raises SysidRefused; for a minute nobody waits for
        it.

        `through`: this daemon is through recovery in this life of the store; then the jobs that its earlier epoch held
        are made ready. If not, these jobs stay held, because their outcomes are yet to be applied; nobody claims until
        this daemon is through, and the store is not settled. Once it is through, it compares its jobs with `get_held`,
        and releases those that are left.

        `seen`: the fence at the caller's last `look`. If a member joined under this sysid later, that member keeps its
        epoch, and StaleOwner is raised. So a call that was given up, and arrives late, revokes nobody's epoch.

        `reapply`: jobs of this daemon's journal must be applied again, although it is through. Until `renew_sysid`
        reports that all were, the store says of no job that it does not exist.

        `period_ms`: jobs gain a step of priority in each such period; 0: they do not age.

        `died`: called with the number of jobs that were made ready, if the earlier epoch did not leave in good order.
        """
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
            int(reapply),
        )
        epoch, unburnt = self._list("members", answer)
        owner, dead = Owner(sysid, self._whole("members", epoch)), self._whole("members", unburnt)
        if not owner.epoch:
            raise codec.sysid_refused(sysid)
        crash_limit = self._config.crash_limit if dead else 0  # an epoch that was not revoked died
        # Our earlier epochs are revoked by now. Their jobs are put back here, unless we are not through recovery yet:
        # then our outcomes are applied first, for some of these jobs have ended.
        total = 0
        limits = STEP_JOBS, BYTES_MAX, crash_limit
        while through and (moved := await self._left("give_back", *owner, *limits, owner.epoch if total else dead)):
            total += moved
        if dead:
            died(total)
        return owner

    async def renew_sysid(self, owner: Owner, *, through: bool, settle: bool = False, restored: bool = True) -> Renewed:
        """Raise our heartbeat counter and return all members. Raises StaleOwner, StoreChanged.

        Never waits behind other calls. `through`: we are through recovery. `settle`: if all members are through, note
        that (the store is settled). `restored`: we are through, and the store has all jobs of our journal again."""
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
        """Save since when this journal keeps jobs; return since when each journal does. Raises StoreChanged.

        A job that no journal keeps is never applied again, so the store need not remember how it ended.

        `since`: a value of `KeptJob.now` from before the first job that this journal may apply again; it never
        decreases. `last_id`: behind `position`, this journal's lane of jobs has no job with this id or an earlier one.
        So such a job that is not in the store never comes, unless the store loses data and the lane is applied from an
        earlier position."""
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
        """Leave the store: all jobs that this owner holds become ready. Raises StaleOwner when a later epoch is a
        member under the same sysid."""
        while await self._left("release_sysid", *owner, STEP_JOBS, BYTES_MAX):
            pass

    async def reap(self, sysid: str, member: Member, limit: int) -> int:
        """Revoke a dead daemon's epoch and make up to `limit` of its jobs ready; return how many.

        Returns 0 when no job is left, and ends the daemon's membership then. Returns 0 also if the daemon's heartbeat
        is no longer that of `member`: the daemon lives, and nothing changes. Each of its jobs was in flight at one more
        death of a daemon: a job that was alone in flight at `crash_limit` deaths is put among the dead instead."""
        return await self._left(
            "reap", sysid, member.counter, member.epoch, min(limit, CALL_JOBS_MAX), BYTES_MAX, self._config.crash_limit
        )

    async def _left(self, name: str, *arguments: object) -> int:
        return self._whole("held", await self._caller.call(name, *arguments))
