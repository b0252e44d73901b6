"""Queries which jobs wait in one partition of the store, and claims them for this daemon's workers.

`dispatch` starts one call to a partition at a time, in a task, and goes on with the other partitions meanwhile.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import trio

from jqd.domain.beat import next_beat_s
from jqd.domain.clock import Clock
from jqd.domain.errors import StaleOwner, StoreAway, StoreChanged, StoreRefused
from jqd.domain.job import Fate, Held, Job, Outcome, Wanted
from jqd.domain.log import get_logger, logging_with
from jqd.domain.queue_name import QueueNames, limits
from jqd.loops.ageing import Ageing
from jqd.loops.backoff import LoopBackoff
from jqd.loops.membership import Membership
from jqd.loops.reap import reconcile
from jqd.loops.rows import Row, rows_of, with_jobs, without_jobs
from jqd.runner import Offer, Runner
from jqd.scheduler import Scheduler
from jqd.store import Ages, Owner, Store, Suspects, WaitingType

IDLE_S = 0.05  # between looks: a job that another daemon ingests, or that falls due, may be noticed this late
UNWANTED_S = 0.5  # the same while no worker takes any job, or no other daemon is there and nothing came for long
DATES_S = UNWANTED_S - IDLE_S  # between checks for due jobs without a hint: shorter than a quiet pause
# With no other daemon the next look waits 1/QUIET_SHARE of the time since the last hint, UNWANTED_S at most. The end of
# a worker's back-off, which gives no hint, may be noticed this late.
QUIET_SHARE = 2
LOOK_SHARE = 10  # without a hint the next look waits this many times as long as the last one took
LOOK_LONG_S = 0.005  # after a look that took so long the next one waits as long even with a hint: 10,000 workers: 40 ms
TYPES = 64  # jobtypes in one look: the best by priority of those that can be run
CLAIM_JOBS = 500  # one call of the store must stay below about 5 ms
PROMOTE_JOBS = 500
MATCH_S = 0.005  # how long constraints are matched before other tasks run
RETRY = Fate.RETRY  # a constant: reading an enumeration's member costs as much as a call
OUTDATED_S = 5.0  # settings reach all daemons in half a second: a longer delay is reported


class ClaimedJobs(NamedTuple):
    jobs: int
    moved: bool
    """Whether another query may find more: jobs were claimed or put back, or the claim was incomplete."""
    is_full: bool = False
    """Whether the claim got all jobs that it asked for, and the answer had no other news."""


class Claims:
    """Queries and claims the waiting jobs of one partition of the store. `dispatch` decides which, and when."""

    def __init__(
        self,
        *,
        store: Store,
        scheduler: Scheduler,
        runner: Runner,
        membership: Membership,
        clock: Clock,
        source: random.Random,
        started: Callable[[str, Sequence[Held]], None],
        constraints: QueueNames,
        outdated: Callable[[], object],
        rules_at: Callable[[], int],
        refresh_settings: Callable[[], Awaitable[object]],
        barred: Callable[[], str | None] = lambda: None,
        ageing: Ageing | None = None,
        log_fields: Mapping[str, object] | None = None,
        died: Callable[[Mapping[str, int]], None] = lambda numbers: None,
    ) -> None:
        """`started`: called with a worker's id and the jobs claimed for it. `outdated`: called when the store's
        constraints differ from this daemon's. `rules_at`: returns the number of the last change of settings that we
        have; `refresh_settings`: fetches newer settings. `barred`: returns why no job may be started, or None. `died`:
        called with jobtype → how many jobs the store itself ended."""
        self.backoff = LoopBackoff("dispatch", source=source)
        self.reply_lost = False
        """Whether the answer of a claim was lost: the store may have leased jobs to us that we do not know of."""
        self.lock = trio.Lock()
        """Held during a claim."""
        self.runner = runner
        self.rows: list[Row] = []
        """Waiting jobtypes, best first, as the scheduler ranked them at the last query."""
        self.looked_at_s = float("-inf")
        self.is_fresh = False
        """Whether the rows are new: nothing was chosen from them yet."""
        self.is_stale = True
        """Whether the waiting jobs, or the jobs that workers take, may have changed since the last query."""
        self.since_s: float | None = None
        """When the running call to the store began (s); None: no call is running."""
        self.is_claiming = False
        self.rest_s = 0.0
        """How long (s) the last query took before its call to the store: it grows with the number of workers."""
        self._found_none = False  # the last look found nothing, and nothing came since
        self._is_guessed = False  # the rows were changed since the look: jobs came, or were claimed
        self._wanted: Sequence[Wanted] = ()  # what workers took at the last look
        self._hold_until_s = float("-inf")  # until when the rows may be chosen from again without a look
        self._hinted = True  # a hint came since due jobs were looked for: one may be due sooner
        self._hinted_at_s = self._look_at_s = clock.mono_s()
        self.changed: Callable[[], None] = lambda: None
        """Called when there may be rows to choose from."""
        self._store = store
        self._scheduler = scheduler
        self._membership, self._clock = membership, clock
        self._started, self._constraints = started, constraints
        self._outdated, self._rules_at, self._refresh_settings = outdated, rules_at, refresh_settings
        self._outdated_since_s: float | None = None
        self._barred, self._ageing, self._died = barred, ageing, died
        self._log_fields = log_fields or {}
        self._log = get_logger("dispatch")
        self._promoted_at_s, self._due_s, self._asked_s = float("-inf"), 0.0, 0.0
        self._compare_at_s = clock.mono_s() + membership.config.lease_s

    @property
    def may_claim(self) -> bool:
        return self._membership.not_ready_reason() is None and self._barred() is None

    @property
    def must_compare(self) -> bool:
        """Whether to compare our jobs in flight with the jobs that the store leased to us. This is due when the answer
        to a claim was lost, and once in each lease, because such a claim may reach the store late."""
        is_due = self.reply_lost or self._clock.mono_s() >= self._compare_at_s
        return is_due and self._membership.not_ready_reason() is None

    @property
    def reason(self) -> str | None:
        """Why claims bring no jobs: the store's constraints have differed from this daemon's for too long. None: they
        have not."""
        since_s = self._outdated_since_s
        if since_s is None or self._clock.mono_s() - since_s < OUTDATED_S:
            return None
        return "the store knows other constraints than this daemon: look whether rules come through (/v1/stats, lanes)"

    @property
    def is_idle(self) -> bool:
        """Whether no job of this partition is in flight here or being claimed."""
        return not self.runner.in_flight and not self.is_claiming

    @property
    def is_working(self) -> bool:
        """Whether a job of this partition is queued or running here."""
        return self.runner.is_working

    def wake(self) -> None:
        """Note that jobs may have become ready, so that the next query of the store comes sooner."""
        self.is_stale = self._hinted = True
        self._found_none = False
        self._hinted_at_s = self._clock.mono_s()
        self.changed()

    def note_free_slot(self) -> None:
        """Note that a worker can take more jobs. Choose from the known rows again where possible, else query first."""
        if self._is_looking or not self._holds:
            self.wake()
        elif not self.is_claiming:  # else the end of the claim chooses again
            self._choose_again()
            self.changed()

    def note_new_jobs(self, jobs: Sequence[Job]) -> None:
        """Note that the store took new jobs. If no jobs waited before, the new ones are claimed without a query."""
        if any(job.eligible_at_ms or job.expires_at_ms or job.change for job in jobs):
            self.wake()
            return
        self._hinted_at_s = self._clock.mono_s()
        if self._found_none and self.since_s is None and not self._scheduler.period_ms:
            self.rows, self.is_fresh = self._scheduler.ranked(rows_of(jobs, self)), True
            # The best job of a type may need a busy worker while another worker takes those behind it.
            self._is_guessed, self.is_stale = True, not all(map(self.may_run, self.rows))
        elif not self._is_looking and self._holds and (rows := with_jobs(self.rows, jobs)):
            self.rows, self.is_fresh, self._is_guessed = rows, self.since_s is None, True
        else:
            self.is_stale = True
        self._found_none = False
        self.changed()

    def note_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Note that the store applied these outcomes. Query again if they may have made jobs ready: if one is a retry,
        or if constraints or suspected crashers exist. `note_free_slot` handles the slots that became free."""
        is_retried = any(outcome.fate is RETRY for outcome in outcomes)
        if is_retried or self._constraints.version or any(row.suspect for row in self.rows):
            self.wake()

    def due_s(self, now_s: float) -> float:
        """Return in how many seconds the next query is due if no hint comes."""
        return min(self._look_at_s, max(self._promoted_at_s + self._due_s, self.looked_at_s + IDLE_S)) - now_s

    def may_run(self, row: Row) -> bool:
        """Return whether a worker has room for the first job of this row (a waiting jobtype)."""
        return self.runner.offer(row.jobtype, row.priority, row.waiting) is not None

    def start_look(self, nursery: trio.Nursery) -> None:
        """Start a task in `nursery` that queries which jobs wait."""
        self.is_stale = self.is_fresh = self._found_none = self._is_guessed = False
        self._start(nursery, self._look)

    def start_claim(
        self,
        nursery: trio.Nursery,
        row: Row,
        no_worse_than: int,
        suspects: Suspects,
        taken: Callable[[int], None] | None,
    ) -> None:
        """Start a task that claims jobs of this row (waiting jobtype) of rank `no_worse_than` or smaller. `suspects`:
        how to treat jobs that may crash daemons. `taken`: called with the number of claimed jobs, also with 0."""
        self.is_claiming = True

        async def claim() -> None:
            claimed = await self._claim(row, no_worse_than, suspects)
            if taken is not None:
                taken(claimed.jobs)
            if claimed.is_full and self._holds and (rows := without_jobs(self.rows, row.jobtype, claimed.jobs)):
                self.rows, self._is_guessed = self._scheduler.ranked(rows), True  # another equal row may be next
                self._choose_again()
            elif claimed.moved or self._is_guessed or self.runner.offer(row.jobtype, row.priority) is None:
                self.is_stale = True  # priorities may have changed meanwhile, or no worker has room
            else:
                self.rows = [each for each in self.rows if each.jobtype != row.jobtype]
                self.is_fresh = True

        self._start(nursery, claim)

    @property
    def _is_looking(self) -> bool:
        """Whether a query is running, which may miss jobs that arrive now."""
        return self.since_s is not None and not self.is_claiming

    @property
    def _holds(self) -> bool:
        """Whether the rows (waiting jobtypes) of the last query may be chosen from again without a query."""
        return bool(self.rows) and not self.is_stale and self._clock.mono_s() < self._hold_until_s

    def _choose_again(self) -> None:
        """Choose from the last query's rows again if workers still take the same jobs as then; else query again."""
        wanted = self.runner.wanted()
        self.is_fresh = wanted == self._wanted
        self.is_stale = bool(wanted) and not self.is_fresh

    def _start(self, nursery: trio.Nursery, call: Callable[[], Awaitable[None]]) -> None:
        self.since_s = self._clock.mono_s()
        nursery.start_soon(self._run, call)

    async def _run(self, call: Callable[[], Awaitable[None]]) -> None:
        with logging_with(**self._log_fields):
            owner = self._membership.joined_as
            try:
                await call()
            except (StaleOwner, StoreChanged) as error:
                self.rows = []
                if owner == self._membership.joined_as:
                    self._log.warning("dispatch.disturbed", error=str(error))
                    self._membership.disturbed()
            except (StoreAway, StoreRefused) as error:
                self.rows, self.is_claiming, self.is_stale = [], False, True
                await self.backoff.wait_after_failure(error)
            else:
                self.backoff.succeeded()
        self.since_s, self.is_claiming = None, False
        self.changed()

    async def _look(self) -> None:
        if self.rest_s > LOOK_LONG_S:
            await trio.sleep(self.rest_s)
        owner = self._membership.joined_as
        if owner is not None and self.must_compare:
            await reconcile(self._store, self.runner.get_running_jobs, owner)
            self.reply_lost, self._compare_at_s = False, self._clock.mono_s() + self._membership.config.lease_s
        if owner is None or not self.may_claim:
            self.rows = []
            return
        if self._ageing is not None:
            await self._ageing.compare_if_due()
        began_s = self._clock.mono_s()
        wanted = self.runner.wanted()
        self.rest_s = self._clock.mono_s() - began_s
        is_any = await self._promote(IDLE_S if wanted and self._hinted else DATES_S)
        if wanted:
            seen: Sequence[WaitingType] = []
            if is_any:
                seen = await self._store.get_waiting_jobtypes(wanted, TYPES, ages=self._scheduler.period_ms > 0)
            self.rows = self._scheduler.ranked(Row(*row, self) for row in seen)
            self.is_fresh, self._found_none = True, not (self.rows or self.is_stale)
        # With no worker free the rows stay, so that other partitions claim nothing worse meanwhile.
        self.looked_at_s = self._clock.mono_s()
        is_plain = not (self._scheduler.period_ms or self._constraints.version or any(row.suspect for row in self.rows))
        is_quick = self.rest_s <= LOOK_LONG_S
        self._wanted = wanted
        self._hold_until_s = self.looked_at_s + IDLE_S if wanted and is_plain and is_quick else float("-inf")
        self._look_at_s = self.looked_at_s + self._pause_s()

    def _pause_s(self) -> float:
        quiet_s = (self.looked_at_s - self._hinted_at_s) / QUIET_SHARE if self._membership.is_alone else 0.0
        if not self.runner.is_served or quiet_s >= UNWANTED_S:
            return max(IDLE_S, next_beat_s(UNWANTED_S))
        return max(IDLE_S, self.rest_s * LOOK_SHARE, quiet_s)

    async def _promote(self, late_s: float) -> bool:
        """Make scheduled jobs that are due ready, at most every `late_s` s. Returns whether any job may be ready."""
        now_s = self._clock.mono_s()
        # A job may become due sooner than was known; the daemon that pushed it gets a hint.
        if now_s < self._promoted_at_s + min(late_s, self._due_s):
            return True
        self._hinted = False
        promoted = await self._store.promote(PROMOTE_JOBS)
        self._died(promoted.died)
        self._promoted_at_s = now_s
        due_ms = 0 if promoted.moved == PROMOTE_JOBS else promoted.next_due_ms
        self._due_s = float("inf") if due_ms is None else due_ms / 1000
        return promoted.is_any

    async def _claim(self, row: Row, no_worse_than: int, suspects: Suspects) -> ClaimedJobs:
        async with self.lock:
            owner, offer = self._membership.joined_as, self.runner.offer(row.jobtype, row.priority, row.waiting)
            if owner is None or not self.may_claim or offer is None:
                return ClaimedJobs(0, moved=False)
            priority_max, ages = offer.worker.priority_max, None
            if self._scheduler.period_ms:
                ages = Ages(no_worse_than, row.priority)
            else:
                priority_max = min(no_worse_than, priority_max)
            if offer.worker.priority_min > priority_max:
                return ClaimedJobs(0, moved=False)
            with offer.promised():
                return await self._claim_for(offer, owner, row.jobtype, priority_max, ages, suspects)

    async def _claim_for(
        self, offer: Offer, owner: Owner, jobtype: str, priority_max: int, ages: Ages | None, suspects: Suspects
    ) -> ClaimedJobs:
        life = self._membership.life
        self.reply_lost, self._asked_s = True, self._clock.boot_s()
        limit = min(offer.jobs_max, CLAIM_JOBS)
        claimed = await self._store.get_waiting_jobs(
            owner,
            jobtype,
            limit,
            priority_min=offer.worker.priority_min,
            priority_max=priority_max,
            ages=ages,
            bytes_max=offer.bytes_max,
            suspects=suspects,
            version=self._constraints.version,
            rules_at=self._rules_at(),
        )
        held, sent_back = await self._checked(owner, claimed)
        is_late = self._clock.boot_s() - self._asked_s > self._membership.config.lease_s
        if owner != self._membership.joined_as or life != self._membership.life or is_late:
            # Our epoch was given up while the answer was on its way, and these jobs went back with it: we must not run
            # them under the new epoch. A store that was set back since may still have us as their owner; then
            # `reconcile` gives them back.
            self._log.warning("dispatch.void_claim", jobtype=jobtype, count=len(held))
            return ClaimedJobs(0, moved=False)
        self.reply_lost = False
        if held:
            self._hand_over(offer, jobtype, held)
        if self._constraints.version:
            self._hinted = True  # a rate-limited job may have got a due time now, without any hint
        if claimed.outdated:
            self._outdated_since_s = self._outdated_since_s or self._clock.mono_s()
            self._outdated()
        else:
            self._outdated_since_s = None
        if claimed.stale:
            await self._refresh_settings()  # at once: while many workers come and go the next view follows soon
        is_other = bool(sent_back or claimed.more or claimed.stale)
        is_full = len(held) == limit and not (is_other or claimed.outdated)
        return ClaimedJobs(len(held), moved=bool(held) or is_other, is_full=is_full)

    async def _checked(self, owner: Owner, held: Sequence[Held]) -> tuple[list[Held], int]:
        """Requeue jobs that a changed constraint limits. Returns the jobs that may start, and how many were requeued.

        Constraints that arrived after the claim was sent are not enforced on its jobs."""
        if all(map(self._constraints.is_current, {each.job.queue for each in held})):
            return list(held), 0
        free: list[Held] = []
        back: list[tuple[Held, str]] = []
        checkpoint_s = self._clock.mono_s() + MATCH_S
        for each in held:
            if self._clock.mono_s() > checkpoint_s:
                await trio.lowlevel.checkpoint()
                checkpoint_s = self._clock.mono_s() + MATCH_S
            is_current = self._constraints.is_current(each.job.queue)
            queue = each.job.queue if is_current else self._constraints.queue_of(each.job)
            if is_current or not limits(queue):
                free.append(each)
            else:
                back.append((each, queue))
        if back:
            await self._store.requeue(owner, back)
        return free, len(back)

    def _hand_over(self, offer: Offer, jobtype: str, held: Sequence[Held]) -> None:
        # Counted also for a job still running here under an older fence: the runner stops that void attempt.
        for name, count in Counter(each.job.jobtype for each in held).items():
            self._scheduler.jobs_started(name, count)
        for worker_id, part in self.runner.divide(offer, jobtype, held).items():
            self._started(worker_id, part)
            self.runner.run_jobs(worker_id, jobtype, part, offer.pull)
            self._log.debug("dispatch.batch", jobtype=jobtype, count=len(part), worker=worker_id)
