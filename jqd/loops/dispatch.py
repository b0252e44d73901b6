"""Store → workers: choose a jobtype, lease a batch of it, give the batch to the runner.

Asks the store only for jobtypes and priorities that some worker with room takes: a full house costs nothing, and what
nobody can run now hides nothing that somebody can. Wakes by hint (jobs ingested here, a slot freed) and by time: jobs
also come from other daemons and from dates that fall due.
"""

import random
from collections.abc import Callable, Sequence

import trio

from jqd.loops.alone import Alone
from jqd.loops.board import Board
from jqd.loops.membership import Membership
from jqd.loops.pace import Pace
from jqd.loops.reconcile import reconcile
from jqd.runner import Offer, Runner
from jqd.scheduler import Scheduler
from jqd.store import Owner, Store, Suspects, WaitingType
from jqd.words.clock import Clock
from jqd.words.errors import StaleOwner, StoreAway, StoreChanged, StoreRefused
from jqd.words.job import Held
from jqd.words.log import get_logger

IDLE_S = 0.05  # how late a job of another daemon, or one that falls due, may be noticed
TYPES = 64  # jobtypes looked at in one round: the best by priority of those that can be run
CLAIM_JOBS = 500  # one script call must stay below about 5 ms
PROMOTE_JOBS = 500


class Dispatch:
    """One claim at a time; the runner works on many batches meanwhile. One for each partition of the store."""

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
        alone: Alone,
        board: Board,
        is_idle: Callable[[], bool],
        partition: int = 0,
    ) -> None:
        """`alone`, `board`: shared by all partitions. `is_idle`: whether this daemon holds no job, of none of them."""
        self.pace = Pace("dispatch", source=source)
        self.reply_lost = False
        """A claim was sent and its answer never came: the store may hold jobs for us that we do not know of."""
        self.claims = trio.Lock()
        """Held while a claim is under way."""
        self._store = store
        self._scheduler = scheduler
        self._runner = runner
        self._membership = membership
        self._clock = clock
        self._started = started
        self._log = get_logger("dispatch")
        self._hint = trio.Event()
        self._promote_at_s = 0.0
        self._alone = alone
        self._board = board
        self._is_idle = is_idle
        self._partition = partition
        board.join(partition, self.wake)
        self._compare_at_s = clock.mono_s() + membership.config.lease_s

    def wake(self) -> None:
        """Something may be ready now. A hint: losing it costs IDLE_S."""
        self._hint.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Dispatch until cancelled."""
        task_status.started()
        while True:
            if self._membership.hold_up() is not None:
                self._board.leave(self._partition)
            owner = await self._membership.wait_claimable()
            self._hint = trio.Event()
            self._board.begin(self._partition)
            try:
                await self._compare(owner)
                await self._promote()
                claimed = await self._round(owner)
            except (StaleOwner, StoreChanged) as error:
                self._board.leave(self._partition)
                if owner == self._membership.seated:
                    self._log.warning("dispatch.disturbed", error=str(error))
                    self._membership.disturbed()
            except (StoreAway, StoreRefused) as error:
                self._board.leave(self._partition)
                await self.pace.wait_after(error)
            else:
                self._board.rest(self._partition)
                self.pace.went_well()
                if not claimed:
                    await self._idle()

    async def run_hints(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Wake for every slot that frees, until cancelled."""
        task_status.started()
        while True:
            await self._runner.wait_free()
            self.wake()

    async def _idle(self) -> None:
        with trio.move_on_after(IDLE_S):
            await self._hint.wait()

    async def _compare(self, owner: Owner) -> None:
        """What the store thinks we hold against what we hold: at once when a claim's answer was lost, and now and then.

        A claim may be on its way yet when its answer is given up, and be done by the store after we compared.
        """
        now_s = self._clock.mono_s()
        if self.reply_lost or now_s >= self._compare_at_s:
            await reconcile(self._store, self._runner, owner)
            self.reply_lost = False
            self._compare_at_s = now_s + self._membership.config.lease_s

    async def _promote(self) -> None:
        now_s = self._clock.mono_s()
        if now_s < self._promote_at_s:
            return
        promoted = await self._store.promote(PROMOTE_JOBS)
        # Never trust a far date for long: another daemon may add a nearer one at any time.
        wait_s = 0.0 if promoted.moved == PROMOTE_JOBS else IDLE_S
        if promoted.next_due_ms is not None:
            wait_s = min(wait_s, promoted.next_due_ms / 1000)
        self._promote_at_s = now_s + wait_s

    async def _round(self, owner: Owner) -> int:
        """One look at what waits; claims until nothing more can be placed. Returns the number of jobs claimed."""
        wanted = self._runner.wanted()
        if not wanted:
            return 0
        waiting = await self._store.get_waiting_jobtypes(wanted, TYPES)
        self._board.put(self._partition, waiting)
        left = list(waiting)
        while left:
            chosen = self._scheduler.select_jobtype_to_run(left, may_run=self._may_run)
            if chosen is None:
                break
            row = next(row for row in left if row.jobtype == chosen.jobtype)
            await self._board.wait_recent(self._partition)
            bound = self._board.bound(self._partition, self._may_run)
            if row.priority > bound:
                return 0  # the workers are wanted for better jobs of another partition
            suspects = self._alone.judge(row, empty=self._is_idle(), partition=self._partition)
            if suspects is None:
                return 0
            if claimed := await self._claim(owner, row, min(chosen.no_worse_than, bound), suspects):
                return claimed  # priorities may have changed meanwhile: look again
            left.remove(row)
        self._board.put(self._partition, left)
        return 0

    def _may_run(self, row: WaitingType) -> bool:
        return self._runner.offer(row.jobtype, row.priority) is not None

    async def _claim(self, owner: Owner, row: WaitingType, no_worse_than: int, suspects: Suspects) -> int:
        async with self.claims:
            if self._membership.hold_up() is not None:
                return 0
            offer = self._runner.offer(row.jobtype, row.priority)
            if offer is None or offer.worker.priority_min > no_worse_than:
                return 0
            self.reply_lost = True
            held = await self._store.get_waiting_jobs(
                owner,
                row.jobtype,
                min(offer.jobs_max, CLAIM_JOBS),
                priority_min=offer.worker.priority_min,
                priority_max=min(no_worse_than, offer.worker.priority_max),
                bytes_max=offer.bytes_max,
                suspects=suspects,
            )
            if owner != self._membership.seated:
                # We were taken for dead while the answer was on its way. These jobs are others' by now, and our trust
                # is that of a new seat: it must not cover them. What the old seat held went back when it was burnt.
                self._log.warning("dispatch.void_claim", jobtype=row.jobtype, count=len(held))
                return 0
            self.reply_lost = False
            if held:
                self._hand_over(offer, row.jobtype, held)
            return len(held)

    def _hand_over(self, offer: Offer, jobtype: str, held: Sequence[Held]) -> None:
        # Each claim counts, also of a job still at work here under an older fence: the runner drops that void attempt,
        # and it stops as any other does.
        self._scheduler.jobs_started(jobtype, len(held))
        self._started(offer.worker.id, held)
        self._runner.run_jobs(offer.worker.id, jobtype, held)
        self._log.info("dispatch.batch", jobtype=jobtype, count=len(held), worker=offer.worker.id)
