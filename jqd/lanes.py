"""Applies the journal's records to one partition of the store. Each kind of record (lane) is applied by its own loop,
and afterwards wakes other loops:

jobs, changes ──▶ claims, flows      outcomes ──▶ runner, outbox, flows, claims      cancels ──▶ runner, flows
settings ───────▶ the daemon's table of settings
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from jqd.chaining.flows import Flows
from jqd.chaining.links import Links
from jqd.chaining.outbox import Outbox
from jqd.domain.job import Fate, Job, Outcome
from jqd.domain.jobid import partition_of
from jqd.domain.joblog import job_fields
from jqd.domain.outcome_followers import followers_in
from jqd.domain.record import Lane, split_cancel
from jqd.domain.results import PIECE_BYTES
from jqd.loops.claims import Claims
from jqd.loops.ingest import Ingest, LaneRules
from jqd.loops.lane_records import RECORD_BYTES, job_bytes, outcome_bytes
from jqd.loops.membership import Membership
from jqd.loops.watch import Watch
from jqd.runner import Runner
from jqd.shared_parts import SharedParts
from jqd.store import Store


class Applied(NamedTuple):
    """Outcomes as they were applied to the store, and what the store answered about them."""

    outcomes: Sequence[Outcome]
    late: Collection[int] | None
    """Indexes of outcomes that came too late to count; None: unknown, because the outcomes had been applied before."""
    followers: Mapping[int, Sequence[Job]]
    """Index of an outcome → followers that the outcome contained."""


MATCH_S = 0.01  # the longest time to match jobs with constraints at once, because it blocks the event loop
GATHER_S = 0.005  # pushes that arrive within this time become one call of the store; a job may begin so much later


class PartitionLanes:
    """Applies the journal's records to one partition; each kind of record is a lane with a loop of its own."""

    def __init__(
        self,
        shared: SharedParts,
        number: int,
        store: Store,
        *,
        watch: Watch,
        membership: Membership,
        runner: Runner,
        claims: Claims,
        outbox: Outbox,
        flows: Flows,
    ) -> None:
        self._shared, self._number, self._store, self._watch = shared, number, store, watch
        self._membership, self._runner, self._claims, self._outbox, self._flows = (
            membership,
            runner,
            claims,
            outbox,
            flows,
        )
        self._links = Links(number, store, shared.partitions)

    def is_mine(self, job_id: str) -> bool:
        """Return whether a job is in this partition, by its id."""
        return partition_of(job_id, self._shared.partitions) == self._number

    def build(self, rolled_back: Callable[[], None]) -> dict[Lane, Ingest[Any]]:
        """Return the loop of each lane. `rolled_back`: a function to call when the store has lost records that it had
        applied."""
        shared, store, mine = self._shared, self._store, self.is_mine
        some = shared.partitions > 1
        whole: LaneRules[Job] = LaneRules(
            self._watch.guard(self._apply_jobs),
            lambda job: job_bytes(job, is_known=self._membership.through),
            self._ingested,
            (lambda job: mine(job.id) or self._links.has_group_here(job)) if some else None,
            is_alone=self._links.has_group_here,
        )
        settings: dict[Lane, LaneRules[Any]] = {
            Lane.JOBS: whole._replace(gather_s=GATHER_S),
            Lane.CHANGES: whole._replace(apply=self._watch.guard(self._apply_changes)),
            Lane.OUTCOMES: LaneRules(
                self._apply_outcomes,
                outcome_bytes,
                self._ended,
                (lambda outcome: mine(outcome.job_id)) if some else None,
                is_alone=lambda outcome: len(outcome.result) > PIECE_BYTES,
                is_new=lambda applied: applied.late is not None,
            ),
            Lane.CANCELS: LaneRules(
                store.apply_cancels, lambda _: RECORD_BYTES, self._cancelled, mine if some else None
            ),
            # All partitions get all settings, so that any of them can send them to daemons.
            Lane.RULES: LaneRules(
                store.apply_settings,
                lambda setting: len(bytes(setting.body)) + RECORD_BYTES,
                lambda settings, _: shared.workers.settings.take(settings),
            ),
        }
        return {
            lane: Ingest(
                lane,
                setting,
                journal=shared.journal,
                store=store,
                source=shared.source,
                rolled_back=rolled_back,
                reader=self._number,
            )
            for lane, setting in settings.items()
        }

    async def _apply_jobs(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> int | None:
        await self._links.write_groups(jobs)
        return await self._store.apply_jobs(journal_id, start, end, self._queued(self._links.jobs_here(jobs)))

    async def _apply_changes(self, journal_id: str, start: int, end: int, jobs: Sequence[Job]) -> int | None:
        await self._links.write_groups(jobs)
        return await self._store.apply_changes(journal_id, start, end, self._queued(self._links.jobs_here(jobs)))

    def _queued(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Set the queue of each job by the constraints that limit it, and return the jobs. After MATCH_S the remaining
        jobs get no queue here: the daemon that claims them later determines it."""
        constraints, clock = self._shared.constraints, self._shared.clock
        if not constraints.known:
            return jobs
        until_s = clock.mono_s() + MATCH_S
        return [replace(job, queue=constraints.queue_of(job)) if clock.mono_s() < until_s else job for job in jobs]

    async def _apply_outcomes(self, journal_id: str, start: int, end: int, outcomes: Sequence[Outcome]) -> Applied:
        """Apply outcomes to the store. Returns them as applied: the store may have had no room for a result, which is
        then dropped."""
        journal = self._shared.journal
        # Before this position, followers were applied or copied already, and may have ended and been deleted since.
        left_out = end <= journal.retired
        if left_out:
            outcomes = [replace(each, follows=b"") if each.follows else each for each in outcomes]
        outcomes = await self._store.put_results(journal_id, start, outcomes)
        found = followers_in(outcomes)
        queued = iter(self._queued([job for jobs in found.values() for job in jobs]))
        followers = {place: [next(queued) for _ in jobs] for place, jobs in found.items()}
        late = await self._store.apply_outcomes(
            journal_id,
            start,
            end,
            outcomes,
            old=start < journal.opened_at,
            followers=followers,
            left_out=left_out,
        )
        return Applied(outcomes, late, followers)

    # ------------------------------------------------------------ after records are applied

    def _ingested(self, jobs: Sequence[Job], _: object) -> None:
        self._claims.note_new_jobs(self._links.jobs_here(jobs))
        self._flows.note_jobs(jobs)
        rows = (job_fields(job.id, job.jobtype, job.tags) for job in self._links.jobs_here(jobs))
        self._shared.joblog.write("ingested", rows)

    def _ended(self, outcomes: Sequence[Outcome], answer: Applied | None) -> None:
        shared = self._shared
        outcomes, void, followers = answer or Applied(outcomes, None, {})
        owner = self._membership.owner
        epoch = owner.epoch if owner is not None else 0
        self._runner.forget([(outcome.job_id, outcome.fence) for outcome in outcomes], epoch, void)
        success = Fate.SUCCEEDED
        self._runner.skip_succeeded((outcome.job_id, outcome.fence) for outcome in outcomes if outcome.fate is success)
        shared.wake(outcome.job_id for outcome in outcomes)
        self._claims.note_outcomes(outcomes)
        if void is None or void:  # an outcome of a replaced content makes the new content ready
            self._claims.wake()
        if any(outcome.follows and place not in followers for place, outcome in enumerate(outcomes)):
            self._outbox.wake()
        followed = [job for place, jobs in followers.items() if void is None or place not in void for job in jobs]
        if followed:
            self._followed(followed)
        self._flows.note_ends()
        shared.joblog.ended(outcomes, void)

    def _followed(self, jobs: Sequence[Job]) -> None:
        """Count and log followers that the store got with their parent's outcome, and tell the loops about them, as for
        pushed jobs."""
        self._shared.followed(jobs)
        self._ingested(jobs, None)

    def _cancelled(self, records: Sequence[str], jobtypes: Sequence[str] | None) -> None:
        job_ids = [split_cancel(record)[0] for record in records]
        if any(self._runner.at_work(job_id) for job_id in job_ids):
            self._membership.hurry()  # the next heartbeat returns which running jobs are cancelled
        self._shared.wake(job_ids)
        self._flows.note_ends()
        self._shared.joblog.cancelled(job_ids, jobtypes)
