"""What the API asks of a store. What loops ask is documented at the methods themselves (`store.py`).

Every method may raise StoreAway (it does not answer, or cannot serve now: try again later; a call may have been applied
although its answer was lost), StoreChanged (another store, or another life of it, answers: nothing is sent before
`look`) and StoreRefused (retrying does not help: an operator looks). Every method may be repeated after a lost answer.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from jqd.domain.job import State
from jqd.domain.results import LargeResult
from jqd.store.counts import TypeView
from jqd.store.names import NameGiven, NameJournaled, NameStanding, NameWanted
from jqd.store.types import (
    NO_LOG,
    EditGiven,
    Entrusted,
    JobView,
    Log,
    OnItsWay,
    Page,
    QueuePlace,
    Release,
    StoreStats,
)


class EdgeStore(Protocol):
    """`Store` for one partition, `PartitionedStore` over several.

    A partition that is away blocks its own jobs and names, and all lists: StoreAway names it."""

    # ------------------------------------------------------------ what is safe

    async def wait_durable(
        self, replicas: int = 0, timeout_s: float = 5.0, where: Collection[int] | None = None
    ) -> bool:
        """Whether all that was applied before the call survives a crash of the server, and is on `replicas` others.

        False when that could not be learned in time; `durability_rule` says how it is. `where`: only these partitions.
        """
        ...

    @property
    def durability_rule(self) -> str:
        """Return one sentence: when applied records count as safe with this server."""
        ...

    # ------------------------------------------------------------ what the store agrees to before it is journaled

    async def reserve_names(self, wanted: Sequence[NameWanted]) -> list[NameGiven]:
        """Give pushers' own ids to jobs. What is not applied in `name_reserve_s` is free again.

        Raises StoreChanged, StoreUnsettled: the owner of an id may be in a journal only. Names in one call must differ.
        The same content pushed again gets the same answer while nothing was applied."""
        ...

    async def free_names(self, wanted: Sequence[NameWanted]) -> None:
        """Free names that `reserve_names` gave to a push that was then refused: no journal has its jobs.

        Raises StoreChanged, StoreUnsettled: they are free by themselves in `name_reserve_s`."""
        ...

    async def confirm_names(
        self, journaled: Sequence[NameJournaled], written: tuple[str, int] | None = None
    ) -> list[NameStanding]:
        """Note that these jobs are in a journal: from now on the same push is a duplicate, on all daemons. Raises
        StoreChanged.

        `written`: in which journal, and the position behind their frame: a job that came from there, and was deleted
        since, gets no name. One that does not stand must not be acknowledged. Without this call a name is taken for
        good when its job is applied."""
        ...

    async def reserve_change(self, job_id: str) -> int:
        """Return a number for a change of that job: later than any fence and any change so far.

        It serves for other jobs of the same partition, too. Raises StoreChanged.
        """
        ...

    async def reserve_edit(self, job_id: str, revision: int) -> EditGiven | None:
        """Return a number for a change of the content of that revision; None when it is not the latest, or while
        another
        change is reserved, at most `name_reserve_s`. Raises StoreChanged, StoreUnsettled."""
        ...

    # ------------------------------------------------------------ looking and cleaning

    async def get_job(self, job_id: str) -> JobView | OnItsWay | None:
        """Return all about one job; None when no journal known to the store can have made that id.

        Raises StoreChanged in another life than the one we looked at: an emptied store may not know it yet."""
        ...

    async def get_briefs(self, job_ids: Sequence[str]) -> list[JobView | OnItsWay | None]:
        """As `get_job` of each, without what may be large: argument, result and log. At most BRIEFS_MAX."""
        ...

    async def queue_place(self, job_id: str, period_ms: int = 0) -> QueuePlace | None:
        """Return what waits before a job; None when it is not ready to run. `period_ms`: where jobs age."""
        ...

    async def get_piece(self, large: LargeResult, at: int) -> bytes | None:
        """A piece of a large result, by its number from 0 on; None when that was dropped meanwhile."""
        ...

    async def drop_result(self, job_id: str) -> None: ...

    async def stats(self) -> StoreStats:
        """Return the numbers of jobs. O(members). Partitions that do not answer are named; StoreAway when none does."""
        ...

    async def unfinished(self, job_ids: Sequence[str], *, dead: bool = False) -> list[str]:
        """Return those of at most CALL_JOBS_MAX jobs that exist and have not ended; `dead`: also those in the dead set.

        StoreChanged in another life."""
        ...

    async def resolve(self, name: str, *, promised: bool = False) -> str | None:
        """Return the id of the job under a pusher's own id; None when there is none. `promised`: nor where it is only
        reserved.

        Raises StoreChanged as `get_job`; StoreUnsettled when a journal may have it."""
        ...

    async def list_jobs(
        self,
        state: State | None,
        jobtype: str | None,
        tag: str | None,
        limit: int,
        cursor: str,
        tenant: str | None = None,
        *,
        row_bytes: int = 0,
    ) -> Page:
        """Return up to `limit` jobs that match, newest first; in exact order if all fit in one page and few lie in each
        place.

        `tenant`: None: of all tenants, with each one's jobtype of that name. `row_bytes`: jobs with larger rows come
        without their argument. A page may be short and have a cursor: then many jobs were looked at that did not match.
        Raises ValueError for a cursor that this store did not give."""
        ...

    async def list_types(self, partition: int | None = None) -> list[TypeView]:
        """Return all jobtypes that have jobs, by name, with exact numbers, read in parts, so not of one moment.

        `partition`: only its numbers.
        """
        ...

    async def delete_dead(self, job_ids: Sequence[str]) -> list[str]:
        """Delete jobs that have ended, dead ones too, for good; returns those that existed."""
        ...

    async def clean_ended(self, before_ms: int, limit: int) -> int:
        """Delete up to `limit` jobs that ended before that date, except failed ones and kept results."""
        ...

    # ------------------------------------------------------------ what workers hold by themselves

    async def touch(
        self,
        claims: Sequence[tuple[str, int]],
        *,
        renew: bool = True,
        silence_s: int = 0,
        progress: bytes = b"",
        log: Log = NO_LOG,
    ) -> list[Entrusted]:
        """The state of claims that workers name, as (id, fence), in their order; leases that stand are renewed.

        Fence 0: whichever lease holds that job. A lease is all that a worker holds under one fence: naming one of its
        jobs renews it. Without `renew` this only looks, and brings no jobs. `silence_s`: the worker timeout of these
        leases from now on; 0: as before. `progress`: one MessagePack value to be shown with these jobs. `log`: what
        their attempt printed, kept while somebody watches them. At most CALL_JOBS_MAX claims.

        Raises StoreChanged, and StoreUnsettled when a claim does not stand and a journal may know better."""
        ...

    async def watch_logs(self, known: Sequence[tuple[str, int, int]], watch_ms: int) -> list[Log | None]:
        """Return, for each job given as (id, fence, known bytes of that attempt), the rest of its log, or the whole log
        of another attempt; None: nothing new. For `watch_ms` its worker learns that the log is watched. StoreChanged in
        another life."""
        ...

    async def release_entrusted(self, claims: Sequence[tuple[str, int]], how: Release = Release.UNSENT) -> list[str]:
        """Give jobs back untried that workers held by themselves; returns the ids that they held. StoreChanged in
        another life.

        `how`: UNSENT, or UNGET of those that their worker may have begun. One whose cancel was asked ends as cancelled.
        """
        ...
