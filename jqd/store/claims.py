"""The store's methods on jobs that wait, or are in flight at a daemon."""

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
    """The jobs that a claim brought, or why it brought none."""

    more = False
    """There may be more at once: some of the queues that had to wait were not looked at."""
    outdated = False
    """Nothing was given: the store has other constraints than the caller."""
    stale = False
    """Nothing was given: some workers are backed off, by views of other daemons that the caller does not have."""


class ClaimMethods(ScriptMethods):
    async def get_waiting_jobtypes(
        self, wanted: Sequence[Wanted], limit: int, *, ages: bool = False
    ) -> list[WaitingType]:
        """Return wanted jobtypes with jobs ready, each once with the best of these; best first, at most `limit`.

        Others cost nothing and hide nothing, however many jobs wait. `ages`: the best is that of the best rank."""
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
            self._whole("heads", rank),
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
        """Lease up to `limit` jobs within the priorities: smallest first, then oldest. Raises StaleOwner.

        Nothing is given while a living member is not through recovery in this life of the store. All jobs get the same
        fence, higher than any before. Stops before `bytes_max` of stored bytes, but gives one at least. When the answer
        is lost the jobs are held nevertheless: `get_held` finds them.

        `suspects`: how a job is given that was in flight at two deaths; always by itself.

        `version`: of the caller's constraints; nothing is given when the store has others. Jobs that were matched by
        earlier ones (`Job.queue`) are given unlimited: the caller sends those back that are limited now (`requeue`).

        `rules_at`: up to where the caller has settings (`follow_settings`); nothing is given to a caller that lacks a
        worker's backoff. None: the caller gives jobs to no worker that other daemons know."""
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
        claimed.more, claimed.outdated, claimed.stale = (word == each for each in (b"again", b"version", b"unheard"))
        return claimed

    async def save_ageing(self, sysid: str, period_ms: int) -> dict[str, int]:
        """Save how fast jobs age here; 0: not at all. Returns other periods of living daemons, by sysid."""
        rows = self._rows("aged", await self._caller.call("save_ageing", sysid, period_ms), 2)
        return {self._text("aged", one): self._whole("aged", its) for one, its in rows}

    async def requeue(self, owner: Owner, held: Sequence[tuple[Held, str]]) -> None:
        """Put held jobs into other queues (`Job.queue`), where their constraints make them wait. Raises StaleOwner.

        Those not held by this owner under that fence are left alone."""
        for part in in_steps(held, STEP_JOBS):
            flat: list[object] = []
            for one, queue in part:
                headers = (codec.encode_header(job) for job in (one.job, replace(one.job, queue=queue)))
                flat += (one.job.id, one.fence, *headers)
            await self._caller.call("release_jobs", *owner, "requeue", *flat)

    async def get_held(self, owner: Owner) -> dict[str, int]:
        """Return id → fence of all jobs that the store records as held by this owner. Raises StaleOwner."""
        held: dict[str, int] = {}
        first = 0  # a job released meanwhile moves others up: one may be missed, and is found the next time
        while rows := [*self._rows("held", await self._caller.call("get_held", *owner, first, CALL_JOBS_MAX), 2)]:
            held |= {self._text("held", job_id): self._whole("held", fence) for job_id, fence in rows}
            first += CALL_JOBS_MAX
        return held

    async def reassert(
        self, owner: Owner, holds: Mapping[str, int], generations: Mapping[str, int] = NO_CHANGES
    ) -> list[str]:
        """Claim again what we hold (id → fence), after the store forgot it. Returns ids that we do not hold any more.
        StaleOwner.

        `generations`: of changed contents; no success of an older one ends these jobs.

        Ours again: what is ready, dated, ours already, or held under an earlier claim: its daemon gets the order to
        stop with `Renewed.cancels`, as we get the cancels that came meanwhile. Not: what has ended, or is held under a
        later claim.
        A job that has not come yet is noted as held by us."""
        lost: list[str] = []
        for part in in_steps(list(holds.items()), STEP_JOBS):
            flat = (value for job_id, fence in part for value in (job_id, fence, generations.get(job_id, 0)))
            lost += self._texts("held", await self._caller.call("reassert", *owner, self._caller.identity, *flat))
        return lost

    async def release_jobs(self, owner: Owner, held: Mapping[str, int], how: Release = Release.UNGET) -> None:
        """Give jobs (id → fence) back without an outcome; no attempt is counted. Raises StaleOwner.

        A job with a pending cancel ends as cancelled. Jobs not held by this owner under that fence are ignored."""
        for part in in_steps(list(held.items()), STEP_JOBS):
            flat = (value for pair in part for value in pair)
            await self._caller.call("release_jobs", *owner, how.value, *flat)
