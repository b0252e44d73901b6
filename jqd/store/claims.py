"""The store's methods that claim waiting jobs, and those on jobs that a daemon has in flight."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from jqd.domain.job import Held, Wanted
from jqd.domain.tenant import any_of
from jqd.store import codec
from jqd.store.methods import STEP_JOBS, ScriptMethods, in_rows, in_steps, milliseconds
from jqd.store.types import CALL_JOBS_MAX, Ages, Owner, Release, Suspects, WaitingType

NO_CHANGES: Mapping[str, int] = {}
TYPES_PER_CALL = 500


class Claimed(list[Held]):
    """The jobs that one call of `get_waiting_jobs` leased. The attributes say why it leased no more."""

    more = False
    """Whether another claim may bring more at once, because some queues were not examined."""
    outdated = False
    """Whether nothing was given because the caller's constraints differ from the store's."""
    stale = False
    """Whether nothing was given because the caller does not know of all workers that are backed off."""


class ClaimMethods(ScriptMethods):
    async def get_waiting_jobtypes(
        self, wanted: Sequence[Wanted], limit: int, *, ages: bool = False
    ) -> list[WaitingType]:
        """Return up to `limit` of the wanted jobtypes that have jobs ready, the type of the best job first.

        Jobs of other types, however many are ready, neither slow this call down nor hide wanted types. `ages`: whether
        jobs age. If so, the job with the smallest rank (`WaitingType.rank`) is the best; else the one with the smallest
        priority."""
        found: list[WaitingType] = []
        for part in in_steps(wanted, TYPES_PER_CALL) if limit > 0 else ():
            demand: list[object] = []
            for one in part:
                jobtype = one.jobtype or any_of(one.tenant)
                demand += (jobtype, one.priority_min, one.priority_max, len(one.besides), *one.besides)
            answer = await self._caller.call("get_waiting_jobtypes", limit, int(ages), *demand)
            found += (self._waiting_type(*row) for row in self._rows("types", answer, 6))
        found.sort(key=lambda row: (row.rank, row.head_id))
        # Several calls may have found the same jobtype: its best row counts.
        first = {row.jobtype: row for row in reversed(found)}
        return [row for row in found if first[row.jobtype] is row][:limit]

    def _waiting_type(
        self, jobtype: object, priority: object, head_id: object, waiting: object, suspect: object, rank: object
    ) -> WaitingType:
        return WaitingType(
            self._text("types", jobtype),
            self._whole("ready", priority),
            self._text("ready", head_id),
            self._whole("ready", waiting),
            suspect == 1,
            self._whole("index", rank),
        )

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
        version: str = "",
        rules_at: int | None = None,
        ages: Ages | None = None,
    ) -> Claimed:
        """Lease up to `limit` jobs of a jobtype within the priorities: smallest first, then oldest. Raises StaleOwner.

        All leased jobs get one fence, higher than any before. Their rows have at most `bytes_max` bytes together, but a
        single job may be larger. No job is leased while a living member has not come through recovery in this life of
        the store. If the answer is lost, the jobs are leased nevertheless: `get_held` finds them.

        `suspects`: how to lease jobs that were in flight at two deaths of daemons; each of them is leased alone.

        `version`: the version of the constraints that the caller knows; no job is leased if the store has another
        version. A job that got its queue (`Job.queue`) under other constraints is leased without checking limits: the
        caller gives it back (`requeue`) if a constraint limits it now.

        `rules_at`: the number of the last setting that the caller knows (`Followed.rules_at`). No job is leased if a
        later setting says that a worker is backed off. None: the caller has no worker that other daemons know."""
        limit = min(limit, CALL_JOBS_MAX)
        if limit < 1:
            return Claimed()
        answer = await self._caller.call(
            "get_waiting_jobs",
            *owner,
            jobtype,
            limit,
            priority_min,
            priority_max,
            bytes_max,
            self._caller.identity,
            milliseconds(self._config.alone_s),
            suspects.value,
            version,
            "" if rules_at is None else rules_at,
            ages.words if ages else "",
        )
        first, word, *flat = self._list("ready", answer)
        fence = self._whole("fence", first)
        rows = [
            (self._text("ready", job_id), fence, row, tries, generation)
            for job_id, row, tries, generation in in_rows(flat, 4)
        ]
        claimed = Claimed(one for row in rows if (one := self.burial.held(*row, jobtype=jobtype)) is not None)
        await self.burial.bury()
        claimed.more, claimed.outdated, claimed.stale = word == b"again", word == b"version", word == b"unheard"
        return claimed

    async def save_ageing(self, sysid: str, period_ms: int) -> dict[str, int]:
        """Save the ageing period of the daemon `sysid`; 0: its jobs do not age. Returns sysid → period (ms) of the
        living daemons whose period differs."""
        rows = self._rows("aged", await self._caller.call("save_ageing", sysid, period_ms), 2)
        return {self._text("aged", one): self._whole("aged", its) for one, its in rows}

    async def requeue(self, owner: Owner, held: Sequence[tuple[Held, str]]) -> None:
        """Give held jobs back into other queues (`Job.queue`), where they wait for their constraints. Raises
        StaleOwner.

        `held`: pairs of a job and its new queue. Ignores jobs that this owner does not hold under the fence in `Held`.
        """
        for part in in_steps(held, STEP_JOBS):
            flat: list[object] = []
            for one, queue in part:
                headers = (codec.encode_header(job) for job in (one.job, replace(one.job, queue=queue)))
                flat += (one.job.id, one.fence, *headers)
            await self._caller.call("release_jobs", *owner, "requeue", *flat)

    async def get_held(self, owner: Owner) -> dict[str, int]:
        """Return id → fence of all jobs that the store records as held by this owner. Raises StaleOwner."""
        held: dict[str, int] = {}
        first = 0  # a job released meanwhile moves others up: one may be missed, and is found by the next call
        while rows := [*self._rows("held", await self._caller.call("get_held", *owner, first, CALL_JOBS_MAX), 2)]:
            held |= {self._text("held", job_id): self._whole("held", fence) for job_id, fence in rows}
            first += CALL_JOBS_MAX
        return held

    async def reassert(
        self, owner: Owner, holds: Mapping[str, int], generations: Mapping[str, int] = NO_CHANGES
    ) -> list[str]:
        """Claim jobs again that this daemon holds (`holds`: id → fence), after the store lost the claims. Raises
        StaleOwner.

        Returns the ids of jobs that this daemon no longer holds: the job has ended, or is held under a later claim. A
        job is claimed if it is ready, waits for its date, or is held by this daemon or under an earlier claim. The
        daemon that loses an earlier claim is told to stop the job (`Renewed.cancels`). For a job that is not in the
        store yet, the claim is noted. Cancels that came meanwhile reach this daemon with `Renewed.cancels`, too.

        `generations`: id → generation of the content that runs, for jobs whose content was changed: a success of an
        earlier content does not end such a job."""
        lost: list[str] = []
        for part in in_steps(list(holds.items()), STEP_JOBS):
            flat = (value for job_id, fence in part for value in (job_id, fence, generations.get(job_id, 0)))
            lost += self._texts("held", await self._caller.call("reassert", *owner, self._caller.identity, *flat))
        return lost

    async def release_jobs(self, owner: Owner, held: Mapping[str, int], how: Release = Release.UNGET) -> None:
        """Give jobs (`held`: id → fence) back without an outcome; no attempt is counted. `how`: UNGET, or UNSENT if no
        worker began them, so that they may still expire. Raises StaleOwner.

        A job with a pending cancel ends as cancelled. Ignores jobs that this owner does not hold under their fence.
        """
        for part in in_steps(list(held.items()), STEP_JOBS):
            flat = (value for pair in part for value in pair)
            await self._caller.call("release_jobs", *owner, how.value, *flat)
