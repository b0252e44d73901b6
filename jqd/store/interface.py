"""What a store promises, method by method, and the shapes it answers with.

Every method may raise StoreAway (it does not answer, or cannot serve now: try again later; a call may have been done
although its answer was lost), StoreChanged (another store, or another life of it, answers: nothing is sent there before
`look`) and StoreRefused (trying again will not mend it: an operator looks). Every method may be repeated after a lost
answer.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from jqd.store.shapes import (
    EditGiven,
    Ends,
    Entrusted,
    Followed,
    JobView,
    Kept,
    Look,
    Member,
    NameGiven,
    NameJournaled,
    NameWanted,
    OnItsWay,
    Owner,
    Page,
    Promoted,
    Release,
    Renewed,
    Silent,
    Standing,
    StoreStats,
    Suspects,
    TypeView,
    WaitingType,
)
from jqd.words.job import Held, Job, Outcome, State, Wanted
from jqd.words.record import Lane
from jqd.words.rules import Rule


class EdgeStore(Protocol):
    """What the edge asks of the store, however many partitions it has: `Store` for one, `Spread` over several.

    A partition that is away stands in the way of what concerns it: its own jobs and names, and all lists. Raises
    StoreAway then, and names it.
    """

    # ------------------------------------------------------------ what is safe

    async def wait_durable(
        self, replicas: int = 0, timeout_s: float = 5.0, where: Collection[int] | None = None
    ) -> bool:
        """Whether all that was applied before the call survives a crash of the server, and is on `replicas` others.

        False when that could not be learned in time. How it is learned is `durability_rule`. `where`: only these
        partitions are asked; a store that is one asks itself.
        """
        ...

    @property
    def durability_rule(self) -> str:
        """One sentence: when what is applied counts as safe with this server."""
        ...

    # ------------------------------------------------------------ what the store agrees to before it is journaled

    async def reserve_names(self, wanted: Sequence[NameWanted]) -> list[NameGiven]:
        """Give pushers' own ids to jobs. What is not applied in `name_reserve_s` is free again.

        Raises StoreChanged, StoreUnsettled: whose an id is may stand in a journal only.

        Names in one call must differ. Who pushes the same content again while nothing was applied gets it again.
        """
        ...

    async def confirm_names(self, journaled: Sequence[NameJournaled]) -> list[Standing]:
        """Their jobs are in a journal: from now on the same push is a duplicate, on all daemons. Raises StoreChanged.

        One that does not stand must not be acknowledged. Without this call a name is taken for good when its job is
        applied.
        """
        ...

    async def reserve_change(self, job_id: str) -> int:
        """A number for a change of that job: later than any fence and any change so far. Raises StoreChanged.

        It serves for other jobs of the same partition, too.
        """
        ...

    async def reserve_edit(self, job_id: str, revision: int) -> EditGiven | None:
        """A number for a change that is made of the content of that revision; None when it is not the latest any more.

        None, too, while another change is about to come, at most `name_reserve_s`. Raises StoreChanged, StoreUnsettled.
        """
        ...

    # ------------------------------------------------------------ looking and cleaning

    async def get_job(self, job_id: str) -> JobView | OnItsWay | None:
        """All about one job; None when no journal known to the store can have made that id.

        Raises StoreChanged in another life than the one we looked at: what an emptied store does not know may exist.
        """
        ...

    async def drop_result(self, job_id: str) -> None:
        """Forget a kept result."""
        ...

    async def stats(self) -> StoreStats:
        """Numbers of jobs. O(members). A partition that does not answer is named in them; StoreAway when none does."""
        ...

    async def unfinished(self, job_ids: Sequence[str], *, dead: bool = False) -> list[str]:
        """Those of at most CALL_JOBS_MAX jobs that are there and have not ended. StoreChanged in another life.

        `dead`: those too that lie in the dead set.
        """
        ...

    async def resolve(self, name: str) -> str | None:
        """The id that a pusher's own id stands for; None when none does.

        Raises StoreChanged as `get_job`; StoreUnsettled when it may be one that is not told yet.
        """
        ...

    async def list_jobs(
        self, state: State | None, jobtype: str | None, tag: str | None, limit: int, cursor: str
    ) -> Page:
        """Up to `limit` jobs that match, newest first; in exact order if all fit in one page and few lie in each place.

        A page may be short and have a cursor: then many jobs were looked at that did not match. Raises ValueError for
        a cursor that this store did not give.
        """
        ...

    async def list_types(self, limit: int) -> list[TypeView]:
        """Jobtypes with jobs waiting or running, by name."""
        ...

    async def delete_dead(self, job_ids: Sequence[str]) -> list[str]:
        """Delete jobs that have ended, dead ones too, for good; returns those that were there."""
        ...

    async def clean_ended(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` jobs that ended before that date, dead ones and kept results excepted."""
        ...

    # ------------------------------------------------------------ what workers hold by themselves

    async def touch(
        self, claims: Sequence[tuple[str, int]], *, renew: bool = True, silence_s: int = 0, progress: bytes = b""
    ) -> list[Entrusted]:
        """How claims stand that workers name, as (id, fence), in their order; the leases that stand are renewed.

        Fence 0: whichever lease holds that job. A lease is all that a worker holds under one fence: a word of one of
        its jobs renews it. Without `renew` this only looks. `silence_s`: these leases may be silent for so long from
        now on; 0: as before. `progress`: one MessagePack value to be shown with these jobs. At most CALL_JOBS_MAX
        claims.

        Raises StoreChanged, and StoreUnsettled when a claim does not stand and a journal may know better.
        """
        ...

    async def release_entrusted(self, claims: Sequence[tuple[str, int]]) -> list[str]:
        """Workers give jobs back untried; returns the ids that they held. StoreChanged in another life.

        One whose cancel was asked ends as cancelled.
        """
        ...


class Store(EdgeStore, Protocol):
    """One partition of the shared store, real or fake. `tests/contract` holds both to the same promises."""

    # ------------------------------------------------------------ which store this is

    async def look(self, *, fresh: bool) -> Look:
        """See who answers, and accept it: from now on nothing is sent to any other, every call raises StoreChanged.

        `fresh`: the caller's journal begins with this start. A store that nobody ever used is settled at once then.
        Before the first look anything is accepted. A server that is no master raises StoreAway.
        """
        ...

    async def new_life(self, identity: str) -> None:
        """Positions went back although the identity is the same: change it, so that everybody notices."""
        ...

    # ------------------------------------------------------------ journal → store
    #
    # Calls of one lane may be made before those made earlier are answered. They are done in the order in which they
    # were made; what follows a call that fails is refused (PositionMismatch) or not sent (StoreAway).

    async def apply_jobs(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> None:
        """Add jobs and move this lane's position from `start` to `end`, in one step.

        At most CALL_JOBS_MAX jobs, best below 1 MiB. A job the store has seen before is left as it is, unless
        `job.change` has a later revision: then its content is exchanged, as `ChangeKind` says. A copy (`job.copied`) is
        only ever new where its original was gone before the store came to it (`skip`). Nothing happens
        when the position is `end` already (an answer was lost). Raises PositionMismatch for any other.
        """
        ...

    async def apply_changes(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> None:
        """As `apply_jobs`, of the lane of changes. It says nothing of how far the ids of that journal came."""
        ...

    async def apply_outcomes(self, journal_id: str, start: int, end: int, outcomes: Sequence[Outcome]) -> list[str]:
        """Settle attempts, or hand jobs over to workers; positions as in `apply_jobs`.

        Returns ids whose outcome came too late to change anything.

        It counts when the job is held under that fence; a success of an older fence counts while the job has not
        ended. Of a job not seen yet it is remembered and meets the job when that comes.
        """
        ...

    async def apply_cancels(self, journal_id: str, start: int, end: int, job_ids: Sequence[str]) -> None:
        """Cancel jobs, positions as in `apply_jobs`: at once when not held, noted when held, remembered when unseen.

        `record.cancel_of` makes such an id: it says up to which generation of the job the cancel is meant.
        """
        ...

    async def apply_rules(self, journal_id: str, start: int, end: int, rules: Sequence[Rule]) -> None:
        """Learn of rules, positions as in `apply_jobs`. Of each kind and name the highest revision stays."""
        ...

    async def follow_rules(self, rules_at: int, signs_at: int, alive: Sequence[str] = ()) -> Followed:
        """What is new since the numbers of an earlier answer, 0 at first: rules, and workers that were heard of.

        `alive`: ids of at most CALL_JOBS_MAX workers that the caller heard of. Numbers of one life are only good in
        that life: raises StoreChanged in another than the one we looked at.
        """
        ...

    async def forget_rules(self, signs_at: int, rules: Sequence[Rule]) -> int:
        """Drop rules that nobody needs any more: those that still hold, and whose workers gave no sign since."""
        ...

    async def get_ends(self, job_ids: Sequence[str]) -> Ends:
        """How those of some jobs ended that did, and whose cancel waits for a hand. StoreChanged in another life."""
        ...

    async def applied(self, journal_id: str) -> dict[Lane, int]:
        """The position up to which each lane was applied; 0 for a lane that never was. Makes the journal known.

        Raises StoreChanged in another life than the one we looked at.
        """
        ...

    async def skip(self, journal_id: str, lane: Lane, start: int, end: int, *, gone: bool = False) -> None:
        """Move a lane's position over a range that holds none of its records. Raises PositionMismatch.

        `gone`: it held some, which its journal has no more. Jobs copied from there count as new.
        """
        ...

    async def tell_kept(self, journal_id: str, since: int) -> Kept:
        """Tell since when this journal keeps jobs, and see what all told: endings before that, nobody needs any more.

        `since`: a `Kept.now` after which all jobs were written that it may apply again; what it told before stays if it
        is later. Raises StoreChanged.
        """
        ...

    # ------------------------------------------------------------ store → runner

    async def get_waiting_jobtypes(self, wanted: Sequence[Wanted], limit: int) -> list[WaitingType]:
        """Jobtypes with jobs ready that are wanted, each once with the best of those; best first, at most `limit`.

        What is not wanted hides nothing that is, and costs nothing, however much of it waits.
        """
        ...

    async def get_waiting_jobs(
        self,
        owner: Owner,
        jobtype: str,
        limit: int,
        *,
        priority_min: int,
        priority_max: int,
        bytes_max: int,
        suspects: Suspects = Suspects.ALONE,
    ) -> list[Held]:
        """Lease up to `limit` jobs within the priorities: smallest first, then oldest. Raises StaleOwner.

        Nothing is given while a living member is not through the recovery barrier of this life of the store.
        All get the same fence, higher than any before. Stops before `bytes_max` of stored bytes, but gives one at
        least. When the answer is lost the jobs are held nevertheless: `get_held` finds them.

        `suspects`: how a job is given that was in hand at two deaths; it is always given by itself.
        """
        ...

    async def get_held(self, owner: Owner) -> dict[str, int]:
        """Id → fence of all jobs the store believes this owner holds. Raises StaleOwner."""
        ...

    async def reassert(self, owner: Owner, holds: Mapping[str, int]) -> list[str]:
        """After the store forgot: say what we hold (id → fence). Returns the ids that are out of our hand. StaleOwner.

        Ours again: what is ready, dated, or ours already. Out: what has ended, or lies in another hand. A job that has
        not come yet is noted as held, and comes into our hand.
        """
        ...

    async def release_jobs(
        self, owner: Owner, held: Mapping[str, int], how: Release = Release.UNGET, delay_ms: int = 0
    ) -> None:
        """Dispose of jobs (id → fence) without an outcome; no attempt is counted. Raises StaleOwner.

        One whose cancel was asked ends as cancelled. Those not held by this owner under that fence are ignored.
        """
        ...

    async def find_silent(self, marks: Mapping[int, int], limit: int) -> Silent:
        """Find leases of which nothing was heard for too long, and set them aside, about `limit` jobs at a time.

        `marks`: of each length of silence where the sequence stood (`Silent.now`) that many seconds ago, on the
        caller's own clock: what has not given a sign of life since has a lower number. Length 0: of leases set aside
        before, by somebody who wrote nothing of them.

        The caller writes how their attempts ended. StoreChanged in another life.
        """
        ...

    async def promote(self, limit: int) -> Promoted:
        """Make up to `limit` jobs ready whose date has come."""
        ...

    # ------------------------------------------------------------ members

    async def reserve_sysid(
        self, sysid: str, previous_epoch_dead: bool, *, through: bool, seen: int | None = None
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
        """
        ...

    async def renew_sysid(self, owner: Owner, *, through: bool, settle: bool = False) -> Renewed:
        """Raise our heartbeat counter and see everybody's. Raises StaleOwner. Never waits behind other calls.

        `settle`: note that all are through, if they are. Raises StoreChanged when another life has begun.
        """
        ...

    async def release_sysid(self, owner: Owner) -> None:
        """Leave: what is held becomes ready, the seat is free. Raises StaleOwner when a newer epoch sits there."""
        ...

    async def reap(self, sysid: str, member: Member, limit: int) -> int:
        """Burn a dead daemon's epoch and make up to `limit` of its jobs ready; returns how many.

        0: none is left and its seat is gone, or its heartbeat is no longer the one in `member`: it lives. It counts as
        a death of each job: one that was alone in hand at `crash_limit` of them goes to the dead set.
        """
        ...

    # ------------------------------------------------------------ cleaning

    async def purge(self, limit: int) -> int:
        """Delete up to `limit` each of old ended jobs, old results and old notes; returns how many rows went."""
        ...
